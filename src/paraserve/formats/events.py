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
