"""The one grammar tree that both engine syntaxes are written from.

Knows texts and regular languages; no schema, no model family, no engine. Invariants: a node is immutable and may stand
in several places (a writer names it once), and recursion happens only through `Rule`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paraserve.grammar.regex import Chars, Regex


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """Exact text. Marker tokens in it are the writer's to find."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A string of a regular language, read as one piece: what follows must not be able to prolong it."""

    regex: Regex


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """A string of a regular language between two literals; one piece together with what of them is no token."""

    before: str
    regex: Regex
    after: str


@dataclass(frozen=True, slots=True, eq=False)
class Until:
    """Free text and then ``close``. The text holds none of ``excludes`` and, if given, is in ``regex``."""

    close: str
    excludes: tuple[str, ...]
    regex: Regex | None = None
    nested: bool = False
    """Deep in a value, where a syntax may do with less text rather than with a larger grammar."""


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """Free text up to the end of the reply that holds none of ``excludes`` and, if given, begins with ``first``."""

    excludes: tuple[str, ...]
    first: Chars | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Alternation:
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Many:
    item: Tree
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A named rule of `Grammar.rules`."""

    key: str


@dataclass(frozen=True, slots=True, eq=False)
class EndTokens:
    """Optionally one of these tokens: the ends of a turn, where an engine masks all but one of them."""

    texts: tuple[str, ...]


Tree = Literal | Pattern | Word | Until | Tail | Row | Alternation | Many | Rule | EndTokens
EMPTY = Literal("")


@dataclass(frozen=True, slots=True)
class Grammar:
    root: Tree
    rules: Mapping[str, Tree] = field(default_factory=dict)


def sequence(*items: Tree) -> Tree:
    """Items in a row; neighbouring literals become one, because a longer literal is cheaper and never ambiguous."""
    flat: list[Tree] = []
    for item in _flatten(items):
        if isinstance(item, Literal):
            if not item.text:
                continue
            if flat and isinstance(previous := flat[-1], Literal):
                flat[-1] = Literal(previous.text + item.text)
                continue
        flat.append(item)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Row(tuple(flat))


def _flatten(items: Iterable[Tree]) -> Iterable[Tree]:
    for item in items:
        if isinstance(item, Row):
            yield from item.items
        else:
            yield item


def prefixed(text: str, item: Tree) -> Tree:
    """``text`` and then ``item``, joined with the literals that ``item`` may begin with.

    A lexer that has to choose between a short literal and a longer one that begins like it takes the longer: so what
    alternatives have in common is said in each of them.
    """
    match item:
        case Alternation(items):
            return Alternation(tuple(prefixed(text, alternative) for alternative in items))
        case Row((first, *rest)) if isinstance(first, Literal | Alternation):
            return sequence(prefixed(text, first), *rest)
        case _:
            return sequence(Literal(text), item)


def choice(items: Sequence[Tree]) -> Tree:
    return items[0] if len(items) == 1 else Alternation(tuple(items))


def optional(item: Tree) -> Tree:
    return item if item is EMPTY or (isinstance(item, Literal) and not item.text) else Many(item, 0, 1)


def children(tree: Tree) -> tuple[Tree, ...]:
    match tree:
        case Row(items) | Alternation(items):
            return items
        case Many(item):
            return (item,)
        case _:
            return ()


def count_uses(*roots: Tree, rules: Mapping[str, Tree] | None = None) -> Counter[int]:
    """In how many places each node stands, by its `id`. With ``rules``, a rule's name leads to its tree."""
    uses: Counter[int] = Counter()
    pending = [*roots]
    while pending:
        tree = pending.pop()
        uses[id(tree)] += 1
        if uses[id(tree)] == 1:
            pending += [rules[tree.key]] if rules and isinstance(tree, Rule) else children(tree)
    return uses


_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(32), 127)},
    **str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}),
}


def quoted(text: str) -> str:
    """A string in any of the syntaxes: JSON's escapes are theirs."""
    return f'"{text.translate(_ESCAPES)}"'
