"""Delimiters that a checkpoint declares, in a stream: regular expressions from outside, compiled.

An expression (`expressions.py`) becomes a `Pattern` of the one theory of "not yet" (`reading/patterns.py`), with the
facts that its use needs. It knows nothing of fields or of what a delimiter means. Invariant: whatever the chunks, the
answer is that of the expression on the whole text; what is held back is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from paraserve.formats.declared.expressions import (
    ANY,
    Ahead,
    Char,
    Either,
    End,
    Named,
    Node,
    Repeat,
    Row,
    UnsafePatternError,
    begins,
    example,
    flat,
    literal,
    literals,
    read_pattern,
    ways,
)
from paraserve.formats.reading.patterns import Atom, Pattern, compile_marked

_MAX_WAYS = 2**17
"""In so many ways at most may an expression match at one place: the bound of its backtracking (milliseconds)."""

Label = TypeVar("Label")


@dataclass(frozen=True, slots=True)
class Anchor:
    """A delimiter, compiled."""

    pattern: Pattern
    first: str
    """A class of characters with one of which every match begins."""
    literals: tuple[str, ...]
    """All pieces of literal text in it, for the tokens that must stay in the text."""
    example: str
    """The shortest text that it matches, of several the first."""
    names: frozenset[str]
    empty: bool
    """It may match nothing (a lookahead)."""

    def at(self, text: str, position: int, *, final: bool = False) -> re.Match[str] | bool | None:
        """The match that begins here, None, or True for "not yet". ``final``: nothing follows the text."""
        return self.pattern.match(text, position) if final else self.pattern.settled(text, position)


class AnchorSet(Generic[Label]):
    """Anchors that are watched for at the same time."""

    def __init__(self, anchors: Sequence[tuple[Label, Anchor]]) -> None:
        self._anchors = tuple(anchors)
        self.trigger = re.compile("|".join(anchor.first for _, anchor in anchors) or r"(?!)")

    def search(
        self, text: str, position: int, *, final: bool = False
    ) -> tuple[tuple[Label, re.Match[str]] | None, int]:
        """The first anchor, of several at one place the longest; and where it begins, or what comes after begins that
        must be held back."""
        while candidate := self.trigger.search(text, position):
            position = candidate.start()
            best: tuple[Label, re.Match[str]] | None = None
            for label, anchor in self._anchors:
                match = anchor.at(text, position, final=final)
                if match is True:
                    return None, position
                if isinstance(match, re.Match) and (best is None or match.end() > best[1].end()):
                    best = (label, match)
            if best is not None:
                return best, position
            position += 1
        return None, len(text)


def literal_anchor(texts: Sequence[str]) -> Anchor:
    """Any of some literals, the longest first.

    Raises:
        UnsafePatternError: when there are none, or an empty one.
    """
    if not texts or not all(texts):
        raise UnsafePatternError("a delimiter cannot be empty")
    rows = [Row(tuple(literal(char) for char in text)) for text in sorted(set(texts), key=len, reverse=True)]
    return _compile(Either(tuple(rows)))


def pattern_anchor(pattern: str) -> Anchor:
    """An expression in the syntax of Python's ``re`` with ``DOTALL``, every repetition in it bounded.

    Raises:
        UnsafePatternError: for what cannot be run on a stream.
    """
    return _compile(read_pattern(pattern))


def compile_row(items: Sequence[Node]) -> Anchor:
    """A part of an expression, as an anchor of its own."""
    return _compile(Row(tuple(items)))


def _compile(node: Node) -> Anchor:
    beginning = begins(node)
    if not beginning.sources:
        raise UnsafePatternError("an expression that begins with nothing can be found anywhere")
    if ANY in beginning.sources:
        raise UnsafePatternError("an expression that begins with any character is too wide")
    if ways(flat(node)) > _MAX_WAYS:
        raise UnsafePatternError("it can match one text in too many ways")
    pattern = compile_marked(lambda atom: _source(node, atom))
    return Anchor(
        pattern=pattern,
        first="|".join(sorted(beginning.sources)),
        literals=tuple(dict.fromkeys(literals(node))),
        example=example(node),
        names=frozenset(pattern.whole.groupindex),
        empty=beginning.nullable,
    )


def _source(node: Node, atom: Atom) -> str:
    match node:
        case Char(source):
            return atom(source)
        case Row(items):
            return "".join(_source(item, atom) for item in items)
        case Either(items):
            return f"(?:{'|'.join(_source(item, atom) for item in items)})"
        case Repeat(item, least, most, lazy):
            return f"(?:{_source(item, atom)}){{{least},{most}}}{'?' if lazy else ''}"
        case Named(name, item):
            return f"(?P<{name}>{_source(item, atom)})"
        case Ahead(item, True):
            return f"(?!{_source(item, str)})(?:(?={_source(item, atom)})|)"
        case Ahead(item):
            return f"(?={_source(item, atom)})"
        case End():
            return rf"\Z{atom('')}"
