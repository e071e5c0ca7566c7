"""A message as regions between delimiters: the description for what a checkpoint's ``response_template`` declares.

A declaration says what no `Format` of literals can (free expressions, several delimiters for one field, lines of keys
and values, transforms), and is kept as it is: fields, the delimiters around each, and how a call is read from the text
between. `declared/parser.py` runs it. It knows nothing of how text arrives. Invariant: immutable, and compared
by identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from paraserve.formats.declared.anchors import Anchor, AnchorSet
from paraserve.formats.declared.content import BodyReader


class RegionKind(Enum):
    REASONING = auto()
    CONTENT = auto()
    CALLS = auto()
    IGNORED = auto()
    """What no client wants to see (the message's role)."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """One field of a message."""

    kind: RegionKind
    open: Anchor | None = None
    """None: the field takes all that stands in no other region."""
    close: Anchor | None = None
    """None: the region ends with the reply."""
    repeats: bool = False
    strip: bool = True
    """Whitespace at both ends of a text is layout."""
    join: str | None = None
    """What stands between two texts of the field."""
    read: BodyReader | None = None
    transform: Any = None
    transform_each: bool = False
    whole_by_itself: bool = False
    """Its text shows whether it is whole, though the closing delimiter is missing (JSON)."""


@dataclass(frozen=True, slots=True)
class Edge:
    region: Region
    is_open: bool


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """All fields of a message, in the order of their declaration: a `spec.Declaration`."""

    items: tuple[Region, ...]
    frame: Anchor | None = None
    """What begins a message. Where every field has delimiters, a model may write it between two of them."""
    unwritten: str = ""

    @property
    def implicit(self) -> Region | None:
        return next((region for region in self.items if region.open is None), None)

    def first(self, kind: RegionKind) -> Region | None:
        return next((region for region in self.items if region.kind is kind), None)

    def without_calls(self) -> Regions:
        return self._without(RegionKind.CALLS)

    def without_reasoning(self) -> Regions:
        return self._without(RegionKind.REASONING)

    def _without(self, kind: RegionKind) -> Regions:
        return replace(self, items=tuple(region for region in self.items if region.kind is not kind))

    @property
    def literals(self) -> Iterator[str]:
        for region in self.items:
            for anchor in (region.open, region.close):
                yield from anchor.literals if anchor else ()

    def spells(self, opening: str, name: str) -> bool:
        region = self.first(RegionKind.CALLS)
        match = region.open.pattern.match(opening + "{", 0) if region and region.open else None
        return match is not None and match.end() == len(opening) and match.groupdict().get("name", name) == name

    @property
    def call_ends(self) -> tuple[str, ...]:
        region = self.first(RegionKind.CALLS)
        return region.close.literals if region and region.close else ()

    def watch(self, inside: Region | None, *, may_reason: bool) -> AnchorSet[Edge]:
        """The delimiters that mean something: of an open region its own end; else every beginning."""
        return _watch(self, inside, may_reason)


_DROPPED = (RegionKind.CONTENT, RegionKind.IGNORED)
"""Whose closing delimiters are markup wherever they stand: the opening one may have been in the prompt."""


@lru_cache(maxsize=256)
def _watch(regions: Regions, inside: Region | None, may_reason: bool) -> AnchorSet[Edge]:
    edges: list[tuple[Edge, Anchor]] = []
    if inside is not None:
        return AnchorSet([(Edge(inside, False), inside.close)] if inside.close else [])
    for region in regions.items:
        if region.open is not None and (may_reason or region.kind is not RegionKind.REASONING):
            edges.append((Edge(region, True), region.open))
    implicit = regions.implicit
    stray = (implicit,) if implicit else (Region(RegionKind.IGNORED, close=regions.frame), *regions.items)
    for region in stray:
        if region.close is not None and not region.close.empty and region.kind in _DROPPED:
            edges.append((Edge(region, False), region.close))
    return AnchorSet(edges)
