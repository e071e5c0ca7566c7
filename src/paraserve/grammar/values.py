"""Spells the values that a schema admits: JSON, Python literals, or objects with bare keys and quote marks.

Knows a schema's tree and how values are written, never a family's name or an engine's syntax. Invariant: a text of
the grammar, read back in its spelling, gives a value that the schema admits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paraserve.grammar import numbers
from paraserve.grammar.emptiness import has_no_string
from paraserve.grammar.limits import go_on
from paraserve.grammar.nodes import (
    AnyValue,
    Array,
    Boolean,
    Const,
    GrammarError,
    Node,
    Null,
    Number,
    Object,
    OneOf,
    Ref,
    String,
)
from paraserve.grammar.regex import (
    ANY_CHAR,
    ANY_TEXT,
    WORD,
    Alt,
    Cat,
    Chars,
    Regex,
    Repeat,
    alt,
    avoiding,
    chars,
    each_char,
    has_both,
    never_spelling,
    other_than,
    text,
    without,
)
from paraserve.grammar.spelling import (
    Spelling,
    char_of_no_marker,
    chars_in_quotes,
    escaped_chars,
    first_of_markers,
    quoted,
)
from paraserve.grammar.tree import EMPTY, Alternation, Literal, Many, Pattern, Rule, Tree, Until, choice, sequence

_LAYOUT = Alt((Cat(()), chars(" "), Cat((chars("\n"), Repeat(chars(" \t"), 0, 32)))))
"""Between tokens: nothing, a space, or a line break and an indent. Bounded, so that no reply is endless layout."""
BARE_KEY = Chars((*chars("-").ranges, *WORD.ranges))
MOST_KEY = 40
"""Characters of an undeclared key where no quotes bound it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the parts of one schema's grammar share."""

    key: str
    """Tells this schema's rules from other schemas' rules."""
    path: str
    definitions: Mapping[str, Node]
    rules: dict[str, Tree]
    """Collects the recursive rules of the whole grammar."""
    intersections: bool = True
    """Whether the target can intersect regular languages."""
    lenient: bool = False
    made: dict[Any, Tree] = field(default_factory=dict)
    """Leaves that have been written already: a grammar says each of them once."""

    def refusal(self, keyword: str, why: str) -> GrammarError:
        return GrammarError(why, keyword=keyword, path=self.path)

    def unspellable(self, key: str) -> GrammarError:
        return self.refusal("properties", f"the family cannot spell the key {key!r}")

    def once(self, key: Any, make: Callable[[], Tree]) -> Tree:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def named(self, tree: Tree) -> Rule:
        """A rule of its own for a part that stands in several places, or deep in others of its kind."""
        key = f"{self.key}:part:{len(self.rules)}"
        self.rules[key] = tree
        return Rule(key)

    def string_regex(self, node: String) -> Regex | None:
        """The strings themselves, before any spelling; None: all of them. Raises `GrammarError`."""
        regex = node.language
        if regex == ANY_TEXT:
            return None
        if not self.intersections and has_both(regex):
            if self.lenient:
                return node.patterns[0]
            why = "cannot be combined with a length or another pattern for this engine"
            raise GrammarError(f"the keyword 'pattern' {why}", keyword="pattern", path=node.path)
        return regex

    def free_key(self, node: Object, allowed: Chars, *, most: int | None = None) -> Regex:
        """Undeclared keys that can be spelled with the ``allowed`` characters."""
        if node.extra_keys is None:
            return other_than(allowed, [item.name for item in node.properties], most=most)
        options = node.extra_keys.options if isinstance(node.extra_keys, OneOf) else (node.extra_keys,)
        languages: list[Regex] = []
        for option in options:
            if isinstance(option, Const) and not without(chars(str(option.value)), allowed).ranges:
                languages.append(text(str(option.value)))
            elif isinstance(option, String):
                whole = self.string_regex(option) or ANY_TEXT
                languages.append(each_char(whole, lambda found: without(found, without(ANY_CHAR, allowed))))
        spoken = [language for language in languages if not has_no_string(language)]
        if not spoken:
            raise self.refusal("propertyNames", "the family cannot spell the keys")
        return Alt(tuple(spoken))


class ValueWriter:
    """Makes trees for values in one spelling."""

    def __init__(self, spelling: Spelling, scope: Scope) -> None:
        self.spelling = spelling
        self.scope = scope
        self.comma = scope.once("comma", lambda: Pattern(Cat((chars(","), _LAYOUT))))
        self.colon = scope.once(("colon", bool(spelling.quote)), self.made_colon)

    def made_colon(self) -> Tree:
        return Literal(":") if self.spelling.quote else Pattern(Cat((chars(":"), Repeat(chars(" "), 0, 1))))

    def value(self, node: Node) -> Tree:
        go_on()
        if isinstance(node, Number | String):
            return self.scope.once((self.spelling, node), lambda: self.written(node))
        return self.written(node)

    def written(self, node: Node) -> Tree:
        match node:
            case AnyValue():
                return self.anything()
            case Null():
                return Literal(self.spelling.null)
            case Boolean():
                return Alternation((Literal(self.spelling.true), Literal(self.spelling.false)))
            case Number():
                return Pattern(numbers.within(node))
            case String():
                return self.string(node)
            case Const():
                return self.constants(node.value)
            case Array():
                return self.array(node)
            case Object():
                return self.object(node)
            case OneOf(options):
                return choice([self.value(option) for option in options])
            case Ref(key):
                return self.reference(key)

    def reference(self, key: str) -> Tree:
        name = f"{self.scope.key}:{self.spelling}:{key}"
        if name not in self.scope.rules:
            self.scope.rules[name] = EMPTY
            self.scope.rules[name] = self.value(self.scope.definitions[key])
        return Rule(name)

    def anything(self) -> Tree:
        name = f"any:{self.spelling}"
        if name not in self.scope.rules:
            self.scope.rules[name] = EMPTY
            options: tuple[Node, ...] = (
                Null(), Boolean(), Number(), String(), Array((), AnyValue(), 0, None), Object((), AnyValue()),
            )  # fmt: skip
            self.scope.rules[name] = Alternation(tuple(self.value(option) for option in options))
        return Rule(name)

    def constants(self, value: Any) -> Tree:
        if isinstance(value, str) and self.spelling.python:
            return choice([Literal(quoted(value, quote)) for quote in self.spelling.quotes])
        written = self.constant(value)
        self.refuse_markers(written, "enum")
        return Literal(written)

    def refuse_markers(self, written: str, keyword: str) -> None:
        for marker in self.spelling.avoid:
            if marker in written:
                why = f"a value or key holds {marker!r}, which means something else in this family's syntax"
                raise self.scope.refusal(keyword, why)

    def constant(self, value: Any) -> str:
        match value:
            case bool():
                return self.spelling.true if value else self.spelling.false
            case None:
                return self.spelling.null
            case str() if self.spelling.quote:
                if self.spelling.quote in value:
                    raise self.scope.refusal("const", "a constant holds the family's quote mark")
                return self.spelling.quote + value + self.spelling.quote
            case dict() if self.spelling.quote:
                return "{" + ",".join(f"{key}:{self.constant(value[key])}" for key in sorted(value)) + "}"
            case dict():
                members = (
                    f"{json.dumps(key, ensure_ascii=False)}: {self.constant(item)}" for key, item in value.items()
                )
                return "{" + ", ".join(members) + "}"
            case list():
                return "[" + ("," if self.spelling.quote else ", ").join(self.constant(item) for item in value) + "]"
            case _:
                return json.dumps(value, ensure_ascii=False)

    def string(self, node: String) -> Tree:
        if self.spelling.quote:
            content = self.scope.string_regex(node)
            quote = self.spelling.quote
            return sequence(Literal(quote), Until(quote, (quote,), content, nested=True))
        forms = [Cat((chars(q), self.escaped(node, q), chars(q))) for q in self.spelling.quotes]
        return Pattern(alt(*forms))

    def escaped(self, node: String, quote: str) -> Regex:
        """What stands between the quotes."""
        avoid = self.spelling.avoid
        if node.patterns:
            regex: Regex | None = self.scope.string_regex(node)
            for marker in avoid:
                regex = never_spelling(regex, marker) if regex else None
            if regex is None:
                why = f"the keyword 'pattern' asks for a part of {avoid!r}, which the family's syntax cannot hold here"
                raise GrammarError(why, keyword="pattern", path=node.path)
            return each_char(regex, lambda found: escaped_chars(found, quote))
        if avoid and node.least == 0 and node.most is None:
            plain, escapes = chars_in_quotes(self.spelling, quote)
            return avoiding(avoid, plain, *escapes)
        return Repeat(char_of_no_marker(self.spelling, quote), node.least, node.most)

    def free_key(self, node: Object) -> Tree:
        """A key that is none of the declared ones, spelled without escapes (so that it cannot be one in disguise)."""
        if self.spelling.quote:
            return Pattern(self.scope.free_key(node, BARE_KEY, most=MOST_KEY))
        inner = self.scope.free_key(
            node, without(without(ANY_CHAR, chars("\"'\\", ("\x00", "\x1f"))), first_of_markers(self.spelling))
        )
        return Pattern(alt(*(Cat((chars(quote), inner, chars(quote))) for quote in self.spelling.quotes)))

    def member(self, name: str, value: Tree) -> Tree:
        self.refuse_markers(name, "properties")
        if self.spelling.quote:
            if not re.fullmatch(r"[^:={}\[\]()\"',<>\s]+", name):
                raise self.scope.unspellable(name)
            return sequence(Literal(f"{name}:"), value)
        key = alt(*(text(quoted(name, quote)) for quote in self.spelling.quotes))
        return sequence(Pattern(Cat((key, chars(":"), Repeat(chars(" "), 0, 1)))), value)

    def object(self, node: Object) -> Tree:
        extra: Tree = EMPTY
        if node.extra is not None:
            pair = sequence(self.free_key(node), self.colon, self.value(node.extra))
            extra = self.listed(pair, node.least_extra, node.most_extra)
        members = [(self.member(item.name, self.value(item.value)), item.required) for item in self.ordered(node)]
        body = self.members(members, extra, node)
        return sequence(self.opening("{"), body, self.closing("}"))

    def ordered(self, node: Object) -> Sequence[Any]:
        return sorted(node.properties, key=lambda item: item.name) if self.spelling.quote else node.properties

    def opening(self, mark: str) -> Tree:
        if self.spelling.quote:
            return Literal(mark)
        return self.scope.once(mark, lambda: Pattern(Cat((text(mark), _LAYOUT))))

    def closing(self, mark: str) -> Tree:
        if self.spelling.quote:
            return Literal(mark)
        return self.scope.once(mark, lambda: Pattern(Cat((_LAYOUT, text(mark)))))

    def listed(self, item: Tree, least: int, most: int | None) -> Tree:
        """``least`` to ``most`` items with commas between; the result may be empty only if ``least`` is 0."""
        if most == 0:
            return EMPTY
        more = Many(sequence(self.comma, item), max(least - 1, 0), None if most is None else most - 1)
        some = item if most == 1 else sequence(item, more)
        return some if least else Many(some, 0, 1)

    def members(self, members: Sequence[tuple[Tree, bool]], extra: Tree, node: Object) -> Tree:
        """Members in their order, with a comma before each but the first that is written.

        Only members up to the first required one can be the first. What may follow each of those is a rule of its own,
        so that the grammar grows with the number of members and not with its square.
        """
        after: Tree = EMPTY
        if extra is not EMPTY:
            follow = sequence(self.comma, extra.item if isinstance(extra, Many) and not node.least_extra else extra)
            after = follow if node.least_extra else Many(follow, 0, 1)
        last = next((index for index, (_, required) in enumerate(members) if required), len(members) - 1)
        after = sequence(*(self.step(*member) for member in members[last + 1 :]), after)
        firsts: list[Tree] = [extra] if extra is not EMPTY and not any(required for _, required in members) else []
        for index in range(last, -1, -1):
            if index < last or len(members) > last + 1:
                after = self.scope.named(after)
            firsts.append(sequence(members[index][0], after))
            after = sequence(self.step(*members[index]), after)
        if not firsts:
            return EMPTY
        first = choice(firsts[::-1])
        may_be_empty = extra is EMPTY and not any(required for _, required in members)
        return Many(first, 0, 1) if may_be_empty else first

    def step(self, member: Tree, required: bool) -> Tree:
        """A member that is not the first."""
        step = sequence(self.comma, member)
        return step if required else Many(step, 0, 1)

    def array(self, node: Array) -> Tree:
        prefix = [self.value(item) for item in node.prefix]
        rest: Tree = EMPTY
        if node.rest is not None:
            beyond = None if node.most is None else node.most - len(prefix)
            least = max(node.least - len(prefix), 0)
            item = self.value(node.rest)
            if not prefix:
                return sequence(self.opening("["), self.listed(item, least, beyond), self.closing("]"))
            rest = Many(sequence(self.comma, item), least, beyond)
        for index in range(len(prefix) - 1, -1, -1):
            step = sequence(prefix[index] if index == 0 else sequence(self.comma, prefix[index]), rest)
            rest = step if index < node.least else self.scope.named(Many(step, 0, 1))
        return sequence(self.opening("["), rest, self.closing("]"))
