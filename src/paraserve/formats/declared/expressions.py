"""Regular expressions from outside, as trees: read, bounded, and refused where they could run away.

A checkpoint's ``response_template`` may hold any regular expression. This module reads the part of the syntax that can
be run safely on a stream (literals, classes, groups, alternatives, repetition, lookahead), puts a bound on every
repetition, and measures what a match can begin with and in how many ways it can be made. It knows nothing of streams
or of what an expression is for. Invariant: every tree that leaves it matches a bounded number of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MAX_SPACE = 64
_MAX_RUN = 256
_MAX_ROUNDS = 16
_CLASSES = frozenset("sSwWdD")
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
ANY = r"[\s\S]"
_SAMPLE = [*map(chr, range(256)), "\u0416", "\u4e2d", "\u3000", "\u0660", "\U0001f324"]
_SET = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_COUNT = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}")
_GROUP_NAME = re.compile(r"\?P<([A-Za-z_]\w*)>")


class UnsafePatternError(ValueError):
    """The expression cannot be run on a stream; the message says why."""


@dataclass(frozen=True, slots=True)
class Char:
    """One character of a class, by its source; ``literal`` where it is just one."""

    source: str
    literal: str | None = None

    @property
    def members(self) -> frozenset[str]:
        """The characters of a sample that the class holds."""
        return frozenset(filter(re.compile(self.source).fullmatch, _SAMPLE)) | set(self.literal or ())


@dataclass(frozen=True, slots=True)
class Row:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Node
    least: int
    most: int
    lazy: bool


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    item: Node


@dataclass(frozen=True, slots=True)
class Ahead:
    item: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class End:
    """The end of the reply."""


Node = Char | Row | Either | Repeat | Named | Ahead | End


def read_pattern(pattern: str) -> Node:
    """An expression as a tree.

    Raises:
        UnsafePatternError: for syntax that is not understood, and for wrong syntax.
    """
    try:
        re.compile(pattern, re.DOTALL)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafePatternError(f"{pattern!r} is no regular expression: {error}") from error
    return _Reader(pattern).read()


class _Reader:
    """Reads the syntax by descent."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def read(self) -> Node:
        node = self._either()
        if self._at < len(self._text):
            raise self._refusal("a bracket")
        return node

    def _refusal(self, what: str) -> UnsafePatternError:
        return UnsafePatternError(f"{self._text!r}: {what} is not supported")

    def _either(self) -> Node:
        rows = [self._row()]
        while self._take("|"):
            rows.append(self._row())
        return rows[0] if len(rows) == 1 else Either(tuple(rows))

    def _row(self) -> Node:
        items = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else Row(tuple(items))

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _repeated(self, item: Node) -> Node:
        counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._text[self._at : self._at + 1]
        least, most = 0, None
        if char and char in counts:
            least, most = counts[char]
            self._at += 1
        elif match := _COUNT.match(self._text, self._at):
            least = int(match[1])
            most = least if match[2] is None else int(match[3]) if match[3] else None
            self._at = match.end()
        else:
            return item
        if isinstance(item, Ahead | End):
            raise self._refusal("a repeated assertion")
        if self._text[self._at : self._at + 1] in ("+", "*", "{"):
            raise self._refusal("possessive or double repetition")
        return self._bounded(item, least, most, lazy=self._take("?"))

    def _bounded(self, item: Node, least: int, most: int | None, *, lazy: bool) -> Node:
        taken = [node for node in flat(item) if not isinstance(node, Ahead)]
        if len(taken) == 1 and isinstance(taken[0], Char):
            bound = _MAX_SPACE if all(char.isspace() for char in taken[0].members) else _MAX_RUN
        else:
            bound = _MAX_ROUNDS
            if any(isinstance(node, Repeat | Either) for node in walk(item)) and most != 1:
                raise self._refusal("repetition within repetition")
        if least > bound or (most or 0) > _MAX_RUN:
            raise self._refusal(f"more than {bound} repetitions")
        return Repeat(item, least, bound if most is None else most, lazy)

    def _atom(self) -> Node:
        char = self._text[self._at]
        if char == "[":
            match = _SET.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            return Char(ANY if match[0] in (r"[\s\S]", r"[\S\s]", r"[\w\W]", r"[\d\D]") else match[0])
        self._at += 1
        match char:
            case "(":
                return self._group()
            case ".":
                return Char(ANY)
            case "$":
                return End()
            case "\\":
                return self._escaped()
            case "^":
                raise self._refusal("'^'")
            case _:
                return literal(char)

    def _escaped(self) -> Node:
        char = self._text[self._at]
        self._at += 1
        if char in _CLASSES:
            return Char("\\" + char)
        if char in _CONTROLS:
            return literal(_CONTROLS[char])
        if char in "Zz":
            return End()
        if char.isalnum():
            raise self._refusal(f"'\\{char}'")
        return literal(char)

    def _group(self) -> Node:
        name = None
        ahead: bool | None = None
        if self._take("?="):
            ahead = False
        elif self._take("?!"):
            ahead = True
        elif match := _GROUP_NAME.match(self._text, self._at):
            name, self._at = match[1], match.end()
        elif not self._take("?:") and self._text[self._at : self._at + 1] == "?":
            raise self._refusal("this kind of group")
        item = self._either()
        self._at += 1  # the closing parenthesis: ``re`` has accepted the syntax
        if ahead is not None:
            if any(isinstance(node, Named | Ahead) for node in walk(item)):
                raise self._refusal("a group within lookahead")
            return Ahead(item, ahead)
        return Named(name, item) if name else item


def literal(char: str) -> Char:
    return Char(re.escape(char), char)


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Row(items) | Either(items):
            return items
        case Repeat(item) | Named(item=item) | Ahead(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    yield node
    for part in _parts(node):
        yield from walk(part)


@dataclass(frozen=True, slots=True)
class Beginning:
    sources: frozenset[str]
    members: frozenset[str]
    nullable: bool


_NOTHING = Beginning(frozenset(), frozenset(), nullable=True)


def begins(node: Node) -> Beginning:
    """What a match can begin with."""
    match node:
        case Char(source):
            return Beginning(frozenset({source}), node.members, nullable=False)
        case Row(items):
            return _row_begins(items)
        case Either(items):
            parts = [begins(item) for item in items]
            sources = frozenset().union(*(p.sources for p in parts))
            members = frozenset().union(*(p.members for p in parts))
            return Beginning(sources, members, any(p.nullable for p in parts))
        case Repeat(item, least):
            part = begins(item)
            return Beginning(part.sources, part.members, part.nullable or least == 0)
        case Named(_, item):
            return begins(item)
        case Ahead(item, negative):
            part = begins(item)
            return (
                Beginning(frozenset(), frozenset(), True) if negative else Beginning(part.sources, part.members, True)
            )
        case End():
            return Beginning(frozenset(), frozenset(), False)


def _row_begins(items: Sequence[Node]) -> Beginning:
    sources: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    for item in items:
        part = begins(item)
        sources, members = sources | part.sources, members | part.members
        if not part.nullable:
            return Beginning(sources, members, nullable=False)
    return Beginning(sources, members, nullable=True)


def flat(node: Node) -> tuple[Node, ...]:
    """A row without rows and groups in it."""
    match node:
        case Row(items):
            return tuple(part for item in items for part in flat(item))
        case Named(_, item):
            return flat(item)
        case _:
            return (node,)


def ways(row: Sequence[Node]) -> int:
    """A bound for the number of ways in which a row can match at one place."""
    found = 1
    for index, node in enumerate(row):
        if isinstance(node, Repeat) and node.most > node.least:
            after = _row_begins(row[index + 1 :])
            inner = begins(node.item)
            ends = not row[index + 1 :]
            if not ends and (after.nullable or after.members & inner.members):
                found *= node.most - node.least + 1
        if isinstance(node, Either):
            found *= sum(ways(flat(item)) for item in node.items)
        elif isinstance(node, Repeat | Ahead):
            found *= ways(flat(node.item))
    return found


def literals(node: Node) -> Iterator[str]:
    run = ""
    for item in flat(node):
        if isinstance(item, Char) and item.literal:
            run += item.literal
            continue
        if run.strip():
            yield run.strip()
        run = ""
        for part in _parts(item):
            yield from literals(part)
    if run.strip():
        yield run.strip()


def example(node: Node) -> str:
    match node:
        case Char(literal=str(char)):
            return char
        case Char():
            return min(node.members, default="x", key=lambda char: (not char.isalnum(), char != " ", char))
        case Either(items):
            return example(items[0])
        case Repeat(item, least):
            return example(item) * least
        case Row(items):
            return "".join(map(example, items))
        case Named(_, item):
            return example(item)
        case _:
            return ""
