"""Templates as regular expressions that know the difference between "no" and "not yet".

A streaming reader must tell three things apart: the text matches, it cannot match any more, or it may still match when
more comes. `Pattern` answers all three for a sequence of template pieces; `Markers` finds the first of several literal
markers in free text, and says how much of the text's end may still become one. Neither knows what a marker means.
Invariant: a `Pattern` or marker is bounded in length, so that what it holds back is bounded too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paraserve.formats.spec import Field, Piece, Space, Text

_LAYOUT = "[ \\t\\r\\n]{0,64}"
_NAME = "[^ \\t\\r\\n<>{}()\\[\\]\"'|｜,]{1,256}?"
_WORD_FIELDS = {"name": _NAME, "index": "[0-9]{0,9}?"}
_MAX_FIELD = 512
# Fields are lazy: the shortest text that makes a header is the one that a reader of single characters sees first.


@dataclass(frozen=True, slots=True)
class Pattern:
    """A sequence of template pieces, anchored. Fields become groups of their names."""

    full: re.Pattern[str]
    partial: re.Pattern[str]

    def match(self, text: str, position: int) -> re.Match[str] | None:
        return self.full.match(text, position)

    def may_match(self, text: str, position: int) -> bool:
        """Whether more text could still make it match. Ask only after `match` said no."""
        return self.partial.match(text, position) is not None


def compile_pattern(sequence: Sequence[Piece], ahead: Sequence[Sequence[Piece]] = ()) -> Pattern:
    """``sequence``, followed (after layout) by one of ``ahead``, which is looked at and not taken."""
    full, _ = _sources(sequence)
    tails = [_sources(tail) for tail in ahead]
    lookahead = partial_ahead = ""
    if tails:
        lookahead = f"(?={_LAYOUT}(?:{'|'.join(_anonymous(f) for f, _ in tails)}))"
        partial_ahead = f"{_LAYOUT}(?:{'|'.join(_anonymous(p) for _, p in tails)}|\\Z)"
    _, partial = _sources(sequence, partial_ahead)
    return Pattern(re.compile(full + lookahead), re.compile(_anonymous(partial)))


def compile_end(
    before: str, close: str, ahead: Sequence[Sequence[Piece]]
) -> tuple[re.Pattern[str], re.Pattern[str], int]:
    """For searching: at most ``before``, then ``close``, then layout and one of ``ahead``.

    Returns the full expression, the one for a part at the text's end, and how long such a part can be.
    """
    tails = [_sources(tail) for tail in ahead]
    full = f"{_at_most(before)}{re.escape(close)}(?={_LAYOUT}(?:{'|'.join(_anonymous(f) for f, _ in tails)}))"
    rest = f"{_LAYOUT}(?:{'|'.join(_anonymous(p) for _, p in tails)}|\\Z)"
    partial = f"{_at_most(before)}{_literal_part(close, rest)}"
    longest = max((_longest(tail) for tail in ahead), default=0)
    return re.compile(full), re.compile(partial), len(before) + len(close) + 64 + longest


def _sources(sequence: Sequence[Piece], tail: str = "") -> tuple[str, str]:
    """The source that matches the whole sequence, and the one that matches any beginning of it at the text's end."""
    full, partial = "", tail
    sequence = _loosened(sequence)
    for position in range(len(sequence) - 1, -1, -1):
        match sequence[position]:
            case Text(text):
                full = re.escape(text) + full
                partial = _literal_part(text, partial)
            case Space():
                full = _LAYOUT + full
                partial = f"{_LAYOUT}(?:\\Z|{partial})"
            case Field(name):
                group = f"(?P<{name}>{_field(name, sequence[position + 1 :])})"
                full = f"{_LAYOUT}{group}{_LAYOUT}{full}"
                partial = f"{_LAYOUT}(?:{group}{_LAYOUT}(?:\\Z|{partial})|\\Z)"
    return full, partial


def _loosened(sequence: Sequence[Piece]) -> tuple[Piece, ...]:
    """With layout between any two tags, whether the family writes it or not."""
    found: list[Piece] = []
    for piece in sequence:
        if isinstance(piece, Text):
            for tag in re.split(r"(?<=>)(?=<)", piece.text):
                found += [Text(tag), Space("")]
            found.pop()
        else:
            found.append(piece)
    return tuple(found)


def _field(name: str, following: Sequence[Piece]) -> str:
    if name in _WORD_FIELDS:
        return _WORD_FIELDS[name]
    stop = next((re.escape(piece.text[0]) for piece in following if isinstance(piece, Text)), "<")
    return f"[^{stop}<\\n]{{0,{_MAX_FIELD}}}?"


def _literal_part(text: str, tail: str) -> str:
    """``text`` and what follows it, or a beginning of ``text`` at the end."""
    beginnings = "|".join(re.escape(text[:length]) for length in range(len(text) - 1, 0, -1))
    return f"(?:{re.escape(text)}{tail}|(?:{beginnings}|)\\Z)" if beginnings else f"(?:{re.escape(text)}{tail}|\\Z)"


def _at_most(separator: str) -> str:
    """The separator or what is left of it when its beginning is missing."""
    if not separator:
        return ""
    return "(?:" + "|".join(re.escape(separator[start:]) for start in range(len(separator))) + ")?"


def _anonymous(source: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", source)


def _longest(sequence: Sequence[Piece]) -> int:
    return sum(
        len(p.text) if isinstance(p, Text) else 64 if isinstance(p, Space) else _MAX_FIELD + 128 for p in sequence
    )


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal in free text, with the separator that belongs to it rather than to the text before it."""

    text: str
    before: str = ""


class Markers:
    """The markers that mean something in one state of the machine."""

    __slots__ = ("_full", "_partial", "_window", "trigger")

    def __init__(self, markers: Iterable[Marker]) -> None:
        groups: dict[str, list[str]] = {}
        for marker in markers:
            groups.setdefault(marker.before, []).append(marker.text)
        full, partial, firsts, window = [], [], set(), 0
        for before, texts in groups.items():
            texts.sort(key=len, reverse=True)
            full.append(f"{_at_most(before)}({'|'.join(map(re.escape, texts))})")
            beginnings = {text[:length] for text in texts for length in range(len(text))}
            ordered = sorted(beginnings, key=len, reverse=True)
            partial.append(f"{_at_most(before)}(?:{'|'.join(map(re.escape, ordered))})\\Z")
            firsts |= {text[0] for text in texts} | set(before)
            window = max(window, len(before) + len(texts[0]))
        self._full = re.compile("|".join(full) or r"(?!)")
        self._partial = re.compile("|".join(partial) or r"\Z")
        self._window = window
        self.trigger = re.compile("[" + "".join(map(re.escape, sorted(firsts))) + "]" if firsts else r"(?!)")
        """Finds a character without which no marker (nor its separator) begins."""

    def search(self, text: str, position: int) -> tuple[int, str, int] | None:
        """The first marker: where its separator begins, its text, where it ends."""
        match = self._full.search(text, position)
        return (match.start(), match[match.lastindex or 0], match.end()) if match else None

    def at(self, text: str, position: int) -> tuple[int, str, int] | None:
        """The marker that stands exactly here."""
        match = self._full.match(text, position)
        return (match.start(), match[match.lastindex or 0], match.end()) if match else None

    def held_from(self, text: str, position: int) -> int:
        """Where the end of the text begins that may still become a marker; its length when there is none."""
        match = self._partial.search(text, max(position, len(text) - self._window))
        return match.start() if match else len(text)

    def may_begin(self, text: str, position: int) -> bool:
        """Whether all the text from here may still become a marker."""
        return self._partial.match(text, position) is not None
