"""Spells arguments that stand between tags: one element for each parameter, strings raw and the rest as literals.

Reads a description's `Parameters` or `Elements` and a schema's tree. Where the type is not written, the reader takes
it from the schema, and a string wins: so wherever a schema admits a string, only strings are written. Raw text never
holds the marker that ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from paraserve.formats.spec import Elements, Parameters
from paraserve.formats.templates import Field, fill, pieces
from paraserve.grammar.nodes import (
    AnyValue,
    Array,
    Boolean,
    Const,
    Node,
    Null,
    Number,
    Object,
    OneOf,
    Ref,
    String,
)
from paraserve.grammar.regex import ANY_CHAR, Regex, alt, chars, without
from paraserve.grammar.regex import text as exactly
from paraserve.grammar.spelling import JSON, PYTHON
from paraserve.grammar.tree import EMPTY, Literal, Many, Rule, Tree, Until, Word, choice, sequence
from paraserve.grammar.values import BARE_KEY, MOST_KEY, Scope, ValueWriter


def options_of(node: Node, scope: Scope, seen: frozenset[str] = frozenset()) -> list[Node]:
    """What ``node`` admits, alternative by alternative, with references followed."""
    match node:
        case OneOf(options):
            return [found for option in options for found in options_of(option, scope, seen)]
        case Ref(key):
            return [] if key in seen else options_of(scope.definitions[key], scope, seen | {key})
        case _:
            return [node]


def is_string(node: Node) -> bool:
    return isinstance(node, String) or (isinstance(node, Const) and isinstance(node.value, str))


def reading(options: Sequence[Node]) -> str:
    """How a reader that knows only the schema takes a value: by its look, as a string, or as a literal."""
    if AnyValue() in options:
        return "by look"
    if all(isinstance(option, Const) for option in options):
        return "string" if all(is_string(option) for option in options) else "member"
    if any(is_string(option) for option in options):
        return "nullable" if any(_type_name(option) == "null" for option in options) else "string"
    return "literal"


def raw_text(options: Sequence[Node], close: str, marker: str, scope: Scope) -> Tree:
    """A string of one of ``options`` as it is, then ``close``. ``marker`` is what a reader looks for.

    An option that is ``null`` is written as this word: a reader knows it beside strings.
    """
    languages: list[Regex | None] = []
    constants: list[str] = []
    for option in options:
        if isinstance(option, String):
            languages.append(scope.string_regex(option))
        elif isinstance(option, AnyValue):
            languages.append(None)
        elif _type_name(option) == "null":
            constants.append("null")
        elif isinstance(option, Const) and is_string(option):
            first = (option.value + close).find(marker)
            constants += [option.value] if first == len(option.value) + close.find(marker) else []
    end = close.find(marker) + len(marker)
    known = [language for language in languages if language is not None]
    if languages:
        whole = None if None in languages else alt(*(exactly(value) for value in constants), *known)
        text = scope.once((close[:end], whole), lambda: Until(close[:end], (marker,), whole))
        return sequence(text, Literal(close[end:]))
    if not constants:
        why = f"every value holds {marker!r}, which ends a value in this family's syntax"
        raise scope.refusal("enum", why)
    return choice([Literal(value + close) for value in constants])


@dataclass(frozen=True, slots=True)
class ParameterWriter:
    parameters: Parameters
    scope: Scope

    def all(self, node: Object) -> Tree:
        """Every parameter in the schema's order, those that are not required optional, undeclared ones last."""
        self.check_keys(self.parameters.spelled(item.name) for item in node.properties)
        parts: list[Tree] = []
        for item in node.properties:
            one = self.parameter(partial(self.opening, item.name), item.value)
            parts.append(one if item.required else Many(one, 0, 1))
        if node.extra is not None:
            key = self.scope.free_key(node, BARE_KEY, most=MOST_KEY)
            extra = self.parameter(partial(self.free_opening, key), node.extra)
            parts.append(Many(extra, node.least_extra, node.most_extra))
        return sequence(*parts)

    def opening(self, key: str, fields: dict[str, str]) -> Tree:
        return Literal(fill(self.parameters.open, key=self.parameters.spelled(key), **fields))

    def free_opening(self, key: Regex, fields: dict[str, str]) -> Tree:
        before, _, after = self.parameters.open.partition("{key}")
        return Word(fill(before, **fields), key, fill(after, **fields))

    def check_keys(self, names: Iterable[str]) -> None:
        allowed = without(ANY_CHAR, chars('<>"\n'))
        for name in names:
            if not name or without(chars(name), allowed).ranges or name != name.strip():
                raise self.scope.unspellable(name)

    def parameter(self, opening: Callable[[dict[str, str]], Tree], node: Node) -> Tree:
        options = options_of(node, self.scope)
        kinds = {piece.name for piece in pieces(self.parameters.open) if isinstance(piece, Field)}
        if not kinds & {"type", "string"}:
            return sequence(opening({}), self.untyped(options, node))
        if AnyValue() in options:
            options = [String(), Number(), Boolean(), Null(), Object((), AnyValue()), Array((), AnyValue(), 0, None)]
        groups: dict[str, list[Node]] = {}
        for option in options:
            groups.setdefault(_type_name(option), []).append(option)
        if "type" not in kinds and len(groups) > 1:
            others = [option for kind, group in groups.items() if kind != "string" for option in group]
            groups = {"string": groups["string"], "": others} if "string" in groups else {"": others}
        return choice([self.typed(opening, kind, group) for kind, group in groups.items()])

    def typed(self, opening: Callable[[dict[str, str]], Tree], kind: str, options: list[Node]) -> Tree:
        fields = {"type": kind, "string": "true" if kind == "string" else "false"}
        value = self.raw(options) if kind == "string" else self.literals(options)
        return sequence(opening(fields), value)

    def untyped(self, options: list[Node], node: Node) -> Tree:
        match reading(options):
            case "by look" | "string" | "nullable":
                return self.raw(options)
            case "member":
                strings = [option for option in options if is_string(option)]
                others = self.literals([option for option in options if option not in strings])
                return choice([self.raw(strings), others]) if strings else others
            case _:
                return self.literals([node] if isinstance(node, Ref) else options)

    def raw(self, options: list[Node]) -> Tree:
        close = self.parameters.close
        return raw_text(options, close, close.strip(), self.scope)

    def literals(self, options: list[Node]) -> Tree:
        spelling = PYTHON if self.parameters.style == "python" else JSON
        writer = ValueWriter(replace(spelling, avoid=(self.parameters.close.strip(),)), self.scope)
        values = [writer.value(option) for option in options]
        if self.parameters.style == "python_scalars":
            # The models write Python's words; JSON's are understood as well.
            python = ValueWriter(PYTHON, self.scope)
            values += [python.value(option) for option in options if _is_word(option)]
        return sequence(choice(values), Literal(self.parameters.close))


def _is_word(node: Node) -> bool:
    return isinstance(node, Boolean | Null) or (isinstance(node, Const) and node.json in ("true", "false", "null"))


def _type_name(node: Node) -> str:
    match node:
        case Const():
            return _type_name(_SHAPES[type(node.value)])
        case String():
            return "string"
        case Number():
            return "number"
        case Boolean():
            return "boolean"
        case Null():
            return "null"
        case Array():
            return "array"
        case _:
            return "object"


_SHAPES: dict[type, Node] = {
    str: String(), int: Number(), float: Number(), bool: Boolean(), type(None): Null(),
    list: Array((), None, 0, None), dict: Object((), None),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElementWriter:
    """Nested elements: objects and arrays as elements in elements, everything else as the text of a leaf."""

    elements: Elements
    scope: Scope

    def members(self, node: Object) -> Tree:
        parts: list[Tree] = []
        for item in node.properties:
            if without(chars(item.name), without(ANY_CHAR, chars("<>/\n"))).ranges or not item.name:
                raise self.scope.unspellable(item.name)
            one = self.element(item.name, item.value)
            parts.append(one if item.required else Many(one, 0, 1))
        if node.extra is not None and node.most_extra != 0:
            why = "must be false: the family's closing tags repeat the key, which has to be known"
            raise self.scope.refusal("additionalProperties", f"the keyword 'additionalProperties' {why}")
        return sequence(*parts)

    def element(self, key: str, node: Node) -> Tree:
        if any(isinstance(option, Ref) for option in (node.options if isinstance(node, OneOf) else (node,))):
            name = f"{self.scope.key}:element:{key}:{node}"
            if name not in self.scope.rules:
                self.scope.rules[name] = EMPTY
                self.scope.rules[name] = self.element(key, OneOf(tuple(options_of(node, self.scope))))
            return Rule(name)
        tag = self.elements.tag
        opening, close = Literal(f"{tag}<{key}>"), f"{tag}</{key}>"
        options = options_of(node, self.scope)
        kind = reading(options)
        strings = [option for option in options if kind in ("by look", "nullable") or is_string(option)]
        if kind in ("literal", "member"):
            # An element of elements is read as an object wherever it may be one.
            objects = [option for option in options if isinstance(option, Object)]
            bodies = [
                option for option in options if option not in strings and not (objects and isinstance(option, Array))
            ]
            literals = [sequence(self.body(option), Literal(close)) for option in bodies]
            raw = [raw_text(strings, close, tag, self.scope)] if strings else []
            return sequence(opening, choice([*raw, *literals]))
        return sequence(opening, raw_text(strings, close, tag, self.scope))

    def body(self, node: Node) -> Tree:
        match node:
            case Object():
                return self.members(node)
            case Array(prefix, rest, least, most):
                if prefix:
                    why = "the keyword 'prefixItems' is not supported in this family's syntax"
                    raise self.scope.refusal("prefixItems", why)
                return EMPTY if rest is None else Many(self.element(self.elements.item, rest), least, most)
            case _:
                return ValueWriter(JSON, self.scope).value(node)
