"""The templates in which a description spells markup (`spec.py` says what they mean), and the marks in them.

It knows no family and no reply. Invariant: the pieces of a template, joined, are the template.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A literal piece of a template, without whitespace at its edges."""

    text: str


@dataclass(frozen=True, slots=True)
class Lacked:
    """The end of a marker, which may be missing where something else follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Space:
    """Layout."""

    text: str


@dataclass(frozen=True, slots=True)
class Field:
    name: str


Piece = Text | Lacked | Space | Field

_FIELD = re.compile(r"\{(name|id|index|key|type|string|sources)\}|((?! [a-z])\s+)")


def pieces(template: str, may_lack: str = "") -> tuple[Piece, ...]:
    """A template in its parts, in order. A literal ends with what it may lack."""
    found: list[Piece] = []
    position = 0
    for match in _FIELD.finditer(template):
        found += _literal_pieces(template[position : match.start()], may_lack)
        found.append(Field(match[1]) if match[1] else Space(match[2]))
        position = match.end()
    return (*found, *_literal_pieces(template[position:], may_lack))


def _literal_pieces(text: str, may_lack: str) -> Iterator[Piece]:
    *lacking, rest = text.split(may_lack) if may_lack else [text]
    for part in lacking:
        yield from (Text(part), Lacked(may_lack)) if part else (Text(may_lack),)
    if rest:
        yield Text(rest)


_MARK = r"\]<\][a-z]+\[>\[|\[[A-Z_]+\]|<[^<>]*>?|[\[\]{}()\">]|[^<>\[\]{}()\"]+"
_MARKS = re.compile(_MARK)
_UNITS = re.compile(r"<\|(?:open|close)\|>[^<>]*(?:<\|sep\|>)?|\]<\][a-z]+\[>\[<[^<>]*>?|" + _MARK)


_SPECIAL = re.compile(
    r"<[|｜].*[|｜]>|<\|[^<>|]+>|<[^<>|]+\|>|</?[a-z]+\|[^<>|]+>|<\|.*|\[/?[A-Z_]+\]|\]<\][a-z]+\[>\[.*", re.DOTALL
)


def is_special(marker: str) -> bool:
    """Whether a marker is written with special tokens, which are never meant as text: they are spelled like that."""
    return _SPECIAL.fullmatch(marker) is not None


def begins_specially(text: str, markers: Collection[str]) -> bool:
    """Whether a text is the beginning of a marker from its first special token on, but not all of it."""
    text = text.lstrip()
    first = next(iter(marks(text)), "")
    return is_special(first) and any(marker.startswith(text) and marker != text for marker in markers)


def marks(text: str) -> list[str]:
    """The marks of a literal, between which whitespace means nothing: tags, words, brackets and quotes."""
    return _MARKS.findall(text)


def units(template: str) -> tuple[str, ...]:
    """The literals of a template, as far as each means something alone: tags whose name stands behind them are one."""
    texts = (piece.text for piece in pieces(template) if isinstance(piece, Text))
    return tuple(unit for text in texts for unit in _UNITS.findall(text))


def is_markup(text: str) -> bool:
    """Whether a text is nothing but tags, the last of which may not be whole."""
    return not any(unit[0] != "<" and unit.strip() for unit in _UNITS.findall(text))


def fill(template: str, **fields: str) -> str:
    """A template with its fields filled in."""
    return "".join(p.text if not isinstance(p, Field) else fields[p.name] for p in pieces(template))
