"""What a parser says about a reply, in order.

These are the only words that leave ``formats``. They know one choice of one reply: which choice it is, its log
probabilities and its token counts are ``generation``'s business, which wraps them (``generation/events.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the model's reasoning; never empty."""

    text: str


class ContentDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the answer that the user reads; never empty."""

    text: str


class ToolCallStart(msgspec.Struct, frozen=True, gc=False):
    """A call has begun: its name and id are known and will not change. ``index`` counts from 0 in one reply."""

    index: int
    id: str
    name: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """More of the JSON text of a call's arguments object; joined over a call it is a prefix of valid JSON."""

    index: int
    arguments: str


class ToolCallEnd(msgspec.Struct, frozen=True, gc=False):
    """The call is whole: its joined arguments are one complete JSON object."""

    index: int


FormatEvent = ReasoningDelta | ContentDelta | ToolCallStart | ToolCallDelta | ToolCallEnd


LONGEST_DELTA = 4096
"""Characters of a delta. With six bytes each, which is the most that JSON makes of one, an event of a stream stays
below 32 KB: some of its readers have lines of 64."""


def cut_deltas(events: Sequence[FormatEvent]) -> Sequence[FormatEvent]:
    """The same events, longer deltas as several. What they fold to stays the same."""
    if all(len(_text(event)) <= LONGEST_DELTA for event in events):
        return events
    cut: list[FormatEvent] = []
    for event in events:
        text = _text(event)
        pieces = [text[at : at + LONGEST_DELTA] for at in range(0, len(text), LONGEST_DELTA)]
        if len(pieces) < 2:
            cut.append(event)
        elif isinstance(event, ToolCallDelta):
            cut += [ToolCallDelta(event.index, piece) for piece in pieces]
        else:
            cut += [type(event)(piece) for piece in pieces]  # type: ignore[call-arg,arg-type]
    return cut


def _text(event: FormatEvent) -> str:
    if type(event) is ContentDelta or type(event) is ReasoningDelta:
        return event.text
    return event.arguments if type(event) is ToolCallDelta else ""


def join_deltas(events: Sequence[FormatEvent]) -> list[FormatEvent]:
    """The same events with neighbouring deltas of one kind as one delta. What they fold to stays the same."""
    joined: list[FormatEvent] = []
    for _, group in groupby(events, lambda event: (type(event), getattr(event, "index", None))):
        first, *more = group
        match first:
            case ContentDelta() | ReasoningDelta() if more:
                joined.append(type(first)("".join(event.text for event in (first, *more))))  # type: ignore[union-attr]
            case ToolCallDelta() if more:
                arguments = "".join(event.arguments for event in (first, *more))  # type: ignore[union-attr]
                joined.append(ToolCallDelta(first.index, arguments))
            case _:
                joined += [first, *more]
    return joined
