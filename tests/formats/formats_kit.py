"""What the tests of output formats share: tools, running a parser, folding its events, and cutting text."""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.formats.families import FORMATS
from paraserve.formats.output import parser_for
from paraserve.formats.reading.literals import LiteralReader
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.spec import Format
from paraserve.formats.types import TextEnd, ToolSpec

SAVE_NOTE = ToolSpec(
    "save_note",
    {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "body": {"type": "string"},
            "stars": {"type": "integer"},
            "opts": {"type": "object"},
        },
    },
)
LIST_SHELVES = ToolSpec("list_shelves", {"type": "object", "properties": {}})
SET_RATE = ToolSpec(
    "v2.set-rate",
    {
        "type": "object",
        "properties": {
            "rate": {"type": "number"},
            "exact": {"type": "boolean"},
            "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
)
TOOLS = (SAVE_NOTE, LIST_SHELVES, SET_RATE)


WITH_CALLS = [format for format in FORMATS if format.calls]


def kind_of(format: Format) -> Hashable:
    """What makes the machine take another way; the rest is which strings it looks for."""
    styles = [(type(calls.arguments), getattr(calls.arguments, "style", "")) for calls in format.calls]
    frames = [(calls.section_open != "", calls.bare) for calls in format.calls]
    return *styles, *frames, format.reasoning is None, format.channels is None, format.ids


def each(formats: Sequence[Format]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A rule for each of these families. Before a commit it is tried on one of every kind, another one for every rule;
    the others are heavy."""
    kinds: dict[Hashable, list[Format]] = {}
    for format in formats:
        kinds.setdefault(kind_of(format), []).append(format)

    def rule(test: Callable[..., Any]) -> Callable[..., Any]:
        turn = zlib.crc32(test.__name__.encode())
        quick = {alike[turn % len(alike)].name for alike in kinds.values()}
        cases = [
            pytest.param(format, id=format.name, marks=() if format.name in quick else pytest.mark.heavy)
            for format in formats
        ]
        marked: Callable[..., Any] = pytest.mark.parametrize("format", cases)(test)
        return marked

    return rule


@dataclass
class FoldedCall:
    index: int
    id: str
    name: str
    arguments: str = ""
    ended: bool = False
    deltas: int = 0


@dataclass
class Folded:
    """What a client has when it has joined all events."""

    reasoning: str = ""
    content: str = ""
    calls: list[FoldedCall] = field(default_factory=list)

    @property
    def plain_calls(self) -> list[tuple[str, Any]]:
        return [(call.name, json.loads(call.arguments)) for call in self.calls if call.ended]

    @property
    def comparable(self) -> tuple[str, str, list[tuple[int, str, str, bool]]]:
        """All that may not depend on how the text was cut (generated ids are random)."""
        return self.reasoning, self.content, [(c.index, c.name, c.arguments, c.ended) for c in self.calls]


def fold(events: Iterable[FormatEvent]) -> Folded:
    """Join events, and check what holds for every stream of them."""
    folded = Folded()
    for event in events:
        match event:
            case ReasoningDelta(text):
                assert text
                folded.reasoning += text
            case ContentDelta(text):
                assert text
                folded.content += text
            case ToolCallStart(index, id_, name):
                assert index == len(folded.calls)
                assert id_
                assert name
                folded.calls.append(FoldedCall(index, id_, name))
            case ToolCallDelta(index, arguments):
                assert arguments
                call = folded.calls[index]
                assert not call.ended
                call.arguments += arguments
                call.deltas += 1
            case ToolCallEnd(index):
                assert not folded.calls[index].ended
                folded.calls[index].ended = True
    for call in folded.calls:
        assert is_prefix_of_object(call.arguments), call.arguments
        if call.ended:
            assert isinstance(json.loads(call.arguments), dict)
    return folded


def is_prefix_of_object(text: str) -> bool:
    reader = LiteralReader()
    end = reader.read(text, 0)
    return not reader.broken and (text == "" or text[0] == "{") and (not reader.closed or not text[end:].strip())


def parse(
    format: Format, chunks: str | Sequence[str], reason: TextEnd = "stop", **options: Any
) -> tuple[Folded, ReplyParser]:
    """Run a parser over chunks (a string is one chunk), with the tools above unless told otherwise."""
    options.setdefault("tools", TOOLS)
    parser = parser_for(format)(format, **options)
    events: list[FormatEvent] = []
    for chunk in [chunks] if isinstance(chunks, str) else chunks:
        events += parser.feed(chunk)
    events += parser.finish(reason)
    return fold(events), parser


def next_message(format: Format, text: str) -> str:
    """What stands before a text that begins another message, where its own header does not begin with an opener."""
    return format.content_close if format.channels and not text.startswith(format.channels.opens) else ""


def every_split(text: str) -> Iterable[list[str]]:
    """Whole, by characters, and every two-way split."""
    yield [text]
    yield list(text)
    for cut in range(1, len(text)):
        yield [text[:cut], text[cut:]]


def random_split(text: str, seed: int) -> list[str]:
    chooser = random.Random(seed)
    cuts = sorted(chooser.sample(range(len(text) + 1), min(len(text), chooser.randint(1, 40))))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def parse_invariant(format: Format, text: str, reason: TextEnd = "stop", **options: Any) -> Folded:
    """The result of the text, checked to be the same in every split."""
    whole, parser = parse(format, text, reason, **options)
    for chunks in every_split(text):
        other, cut_parser = parse(format, chunks, reason, **options)
        assert other.comparable == whole.comparable, chunks
        assert cut_parser.completed_calls == parser.completed_calls
        assert cut_parser.broken_calls == parser.broken_calls
    return whole


def steps_of(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, were called: a cost that depends on no clock."""
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return steps // 2  # each call comes with a return
