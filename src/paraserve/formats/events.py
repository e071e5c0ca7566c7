"""What a parser says about a reply, in order.

These are the only words that leave ``formats``. They know one choice of one reply: which choice it is, its log
probabilities and its token counts are ``generation``'s business, which wraps them (``generation/events.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    parts: list[str] = []

    def close() -> None:
        if len(parts) > 1:
            text, last = "".join(parts), joined[-1]
            joined[-1] = ToolCallDelta(last.index, text) if isinstance(last, ToolCallDelta) else type(last)(text)  # type: ignore[call-arg,arg-type]
        parts.clear()

    for event in events:
        text = _text_of(event)
        if text is not None and parts and type(joined[-1]) is type(event) and _index_of(joined[-1]) == _index_of(event):
            parts.append(text)
            continue
        close()
        joined.append(event)
        if text is not None:
            parts.append(text)
    close()
    return joined


def _text_of(event: FormatEvent) -> str | None:
    if isinstance(event, ContentDelta | ReasoningDelta):
        return event.text
    return event.arguments if isinstance(event, ToolCallDelta) else None


def _index_of(event: FormatEvent) -> int:
    return event.index if isinstance(event, ToolCallDelta) else -1
