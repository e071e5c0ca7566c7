"""Spells a tool call in a family's own syntax, its arguments constrained by the tool's schema.

Reads the description of a format and a schema's tree; never a family's name. Invariant: a text of the grammar is a
call that can be read back with the description, and its arguments are such as the schema admits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from keyword import kwlist

from paraserve.formats.spec import Calls, Elements, JsonEnvelope, JsonObject, Keywords, Parameters, QuotedObject
from paraserve.formats.templates import Field, pieces
from paraserve.grammar.nodes import AnyValue, Node, Object, OneOf, Ref
from paraserve.grammar.parameters import ElementWriter, ParameterWriter, options_of, reading
from paraserve.grammar.regex import DIGIT, WORD, Alt, Cat, Regex, Repeat, chars, other_than, without
from paraserve.grammar.regex import text as exactly
from paraserve.grammar.spelling import JSON, PYTHON, quoted_spelling
from paraserve.grammar.tree import EMPTY, Literal, Pattern, Tree, Word, choice, sequence
from paraserve.grammar.values import MOST_KEY, Scope, ValueWriter

_IDS: Mapping[str, Regex] = {
    "nine": Repeat(chars(("0", "9"), ("A", "Z"), ("a", "z")), 9, 9),
    "generic": Cat((exactly("call_"), Repeat(chars(("0", "9"), ("a", "f")), 24, 24))),
}
_INDEX = Alt((chars("0"), Cat((chars(("1", "9")), Repeat(DIGIT, 0, 3)))))


@dataclass(frozen=True, slots=True)
class CallWriter:
    """Writes calls in one spelling. ``ids`` is the format's id style; ``avoid`` is what no value may hold, where
    quotes do not protect it."""

    spelling: Calls
    ids: str
    scope: Scope
    avoid: tuple[str, ...] = ()

    def call(self, name: str, arguments: Node, *, close: str) -> Tree:
        """One call of the tool ``name``; ``close`` is the spelling's own, or what of it is the model's to write."""
        objects = self.objects(arguments, frozenset())
        if not objects:
            raise self.scope.refusal("type", "the arguments of a call must be an object")
        opening = self.opening(name)
        readable = [node for index, node in enumerate(objects) if self.read_alike(node, objects[:index])]
        return choice([sequence(opening, self.arguments(name, node), Literal(close)) for node in readable])

    def read_alike(self, node: Object, others: list[Object]) -> bool:
        """Whether untyped values come out right: a reader takes a key's type from the first object that has it."""
        first: dict[str, str] = {}
        for item in (item for other in others for item in other.properties):
            first.setdefault(item.name, reading(options_of(item.value, self.scope)))
        if not isinstance(self.spelling.arguments, Parameters | Elements):
            return True
        kinds = {item.name: reading(options_of(item.value, self.scope)) for item in node.properties}
        return all(first.get(name, kind) == kind for name, kind in kinds.items())

    def opening(self, name: str) -> Tree:
        parts: list[Tree] = []
        for piece in pieces(self.spelling.open):
            match piece:
                case Field("name"):
                    parts.append(Literal(name))
                case Field("id") if self.ids == "counted":
                    parts += [Literal(f"functions.{name}:"), Pattern(_INDEX)]
                case Field("id"):
                    parts.append(Pattern(_IDS[self.ids]))
                case Field():
                    parts.append(Pattern(_INDEX))
                case _:
                    parts.append(Literal(piece.text))
        return sequence(*parts)

    def objects(self, node: Node, seen: frozenset[str]) -> list[Object]:
        """The object schemas among what ``node`` admits."""
        match node:
            case Object():
                return [node]
            case AnyValue():
                return [Object((), AnyValue())]
            case OneOf(options):
                return [found for option in options for found in self.objects(option, seen)]
            case Ref(key) if key not in seen:
                return self.objects(self.scope.definitions[key], seen | {key})
            case _:
                return []

    def arguments(self, name: str, node: Object) -> Tree:
        match self.spelling.arguments:
            case JsonObject():
                return ValueWriter(replace(JSON, avoid=self.avoid), self.scope).value(node)
            case JsonEnvelope() as envelope:
                return self.envelope(envelope, name, node)
            case Parameters() as parameters:
                return ParameterWriter(parameters, self.scope).all(node)
            case Elements() as elements:
                return ElementWriter(elements, self.scope).members(node)
            case Keywords():
                return self.keywords(node)
            case QuotedObject(quote=quote):
                return ValueWriter(quoted_spelling(quote), self.scope).value(node)

    def envelope(self, envelope: JsonEnvelope, name: str, node: Object) -> Tree:
        """The call as one JSON object, piece by piece as any other object: a lexer has to tell them apart later."""
        writer = ValueWriter(replace(JSON, avoid=self.avoid), self.scope)
        members = [
            writer.member(envelope.name_keys[0], Literal(json.dumps(name, ensure_ascii=False))),
            writer.member(envelope.arguments_keys[0], writer.value(node)),
        ]
        if envelope.id_key:
            id_text = Pattern(Cat((chars('"'), _IDS[self.ids], chars('"'))))
            members.append(writer.member(envelope.id_key, id_text))
        rest = [part for member in members[1:] for part in (writer.comma, member)]
        return sequence(writer.opening("{"), members[0], *rest, writer.closing("}"))

    def keywords(self, node: Object) -> Tree:
        writer = ValueWriter(replace(PYTHON, avoid=self.avoid), self.scope)
        names = [item.name for item in node.properties]
        if unspeakable := [name for name in names if not name.isidentifier() or name in kwlist]:
            raise self.scope.unspellable(unspeakable[0])
        extra: Tree = EMPTY
        if node.extra is not None:
            if node.extra_keys is None:
                key = other_than(WORD, [*names, *kwlist], first=without(WORD, DIGIT), most=MOST_KEY)
            else:
                key = self.scope.free_key(node, WORD, most=MOST_KEY)
            pair = sequence(Word("", key, "="), writer.value(node.extra))
            extra = writer.listed(pair, node.least_extra, node.most_extra)
        members = [
            (sequence(Literal(f"{item.name}="), writer.value(item.value)), item.required) for item in node.properties
        ]
        return writer.members(members, extra, node)
