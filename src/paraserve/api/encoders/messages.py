"""Reply events as Anthropic's ``message`` and its stream of blocks.

Both read the same events. Blocks never overlap; a call that is not whole is no block of the whole response, and its
block of a stream is never stopped: clients run what is stopped.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from paraserve.api.call_ids import safe_id
from paraserve.api.encoders.shape import ReplyShape
from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.generation.events import ChoiceEnd, ReplyDelta, ReplyEvent, Usage
from paraserve.observability.logs import request_id
from paraserve.protocol.anthropic import (
    ANTHROPIC_ERROR_TYPES,
    UNSIGNED,
    AnthropicError,
    AnthropicErrorDetail,
    AnthropicMessage,
    AnthropicUsage,
    OutputTokensDetails,
    TextContent,
    ThinkingContent,
    ToolUseContent,
)
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.secrets import client_text

_json = msgspec.json.encode
_END = b"}}\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """How a reply's end is told.

    Args:
        stop_sequences: the client's own.
        cut_to_room: the context, and not ``max_tokens``, is what limits the reply.
    """

    stop_sequences: Collection[str] = ()
    cut_to_room: bool = False

    def reason(self, end: ChoiceEnd) -> tuple[str, str | None]:
        """``stop_reason`` and ``stop_sequence``."""
        if end.finish_reason == "tool_calls":
            return "tool_use", None
        if end.finish_reason == "length":
            return ("model_context_window_exceeded" if self.cut_to_room else "max_tokens"), None
        if end.matched_stop in self.stop_sequences:
            return "stop_sequence", str(end.matched_stop)
        return "end_turn", None


def encode_anthropic_error(error: RequestError) -> bytes:
    """Anthropic's object. Agents look for its own words for a prompt that does not fit."""
    message = client_text(error.message)
    if error.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED:
        message = f"prompt is too long: {message}"
    details = None
    if error.code == ErrorCode.THREAD_UNSUPPORTED:
        details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    kind = ANTHROPIC_ERROR_TYPES.get(error.status, "api_error")
    return _json(AnthropicError(error=AnthropicErrorDetail(kind, message, details), request_id=request_id.get(None)))


def _usage(usage: Usage) -> AnthropicUsage:
    cached = usage.cached_tokens or 0
    return AnthropicUsage(
        input_tokens=usage.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(usage.reasoning_tokens) if usage.reasoning_tokens else UNSET,
    )


@dataclass(slots=True)
class _Block:
    opened_by: FormatEvent
    texts: list[str] = field(default_factory=list)
    whole: bool = True

    def content(self) -> ThinkingContent | TextContent | ToolUseContent:
        text = "".join(self.texts)
        if isinstance(self.opened_by, ToolCallStart):
            return ToolUseContent(safe_id(self.opened_by.id), self.opened_by.name, msgspec.Raw(text.encode() or b"{}"))
        return ThinkingContent(text) if isinstance(self.opened_by, ReasoningDelta) else TextContent(text)


class MessagesFold:
    """The whole response."""

    def __init__(self, shape: ReplyShape, ends: Ends) -> None:
        self._shape = shape
        self._ends = ends
        self._blocks: list[_Block] = []
        self._end: ChoiceEnd | None = None
        self._usage: Usage | None = None

    def take(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyDelta):
            for of_format in event.events:
                self._take(of_format)
        elif isinstance(event, ChoiceEnd):
            self._end = event
        elif isinstance(event, Usage):
            self._usage = event

    def _take(self, event: FormatEvent) -> None:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(event, ToolCallStart):
            self._blocks.append(_Block(event, whole=False))
        elif isinstance(event, ToolCallEnd):
            assert last is not None
            last.whole = True
        elif isinstance(event, ToolCallDelta):
            assert last is not None
            last.texts.append(event.arguments)
        elif last is not None and type(last.opened_by) is type(event):
            last.texts.append(event.text)
        else:
            self._blocks.append(_Block(event, [event.text]))

    def response(self) -> bytes:
        assert self._end is not None
        assert self._usage is not None
        reason, sequence = self._ends.reason(self._end)
        return _json(
            AnthropicMessage(
                id=self._shape.id,
                model=self._shape.model,
                content=[block.content() for block in self._blocks if block.whole] or [TextContent("")],
                stop_reason=reason,
                stop_sequence=sequence,
                usage=_usage(self._usage),
            )
        )


class MessagesStream:
    """The same events as server-sent events. A frame of text is a prefix, the text and an end."""

    keep_alive = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, shape: ReplyShape, ends: Ends) -> None:
        self._shape = shape
        self._ends = ends
        self._index = -1
        self._open: type[FormatEvent] | None = None
        """What the open block is made of."""
        self._prefix = b""
        self._end: ChoiceEnd | None = None

    def begin(self) -> bytes:
        shape = self._shape
        message = AnthropicMessage(
            id=shape.id,
            model=shape.model,
            content=[],
            stop_reason=None,
            stop_sequence=None,
            usage=AnthropicUsage(input_tokens=shape.prompt_tokens, output_tokens=0),
        )
        return _event("message_start", message=message)

    def encode(self, event: ReplyEvent) -> bytes:
        if type(event) is ReplyDelta:
            events = event.events
            return self._format(events[0]) if len(events) == 1 else b"".join(map(self._format, events))
        if isinstance(event, ChoiceEnd):
            self._end = event
            empty = self._start(ContentDelta, {"type": "text", "text": ""}) if self._index < 0 else b""
            return empty if self._open is ToolCallDelta else empty + self._stop()
        if isinstance(event, Usage):
            assert self._end is not None
            reason, sequence = self._ends.reason(self._end)
            delta = {"stop_reason": reason, "stop_sequence": sequence}
            return _event("message_delta", delta=delta, usage=_usage(event)) + _event("message_stop")
        return b""

    def end(self) -> bytes:
        return b""

    def failure(self, error: RequestError) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_anthropic_error(error)

    def _format(self, event: FormatEvent) -> bytes:
        kind = type(event)
        if kind is self._open:
            text = event.arguments if kind is ToolCallDelta else event.text  # type: ignore[union-attr]
            return b"%b%b%b" % (self._prefix, _json(text), _END)
        if isinstance(event, ToolCallEnd):
            return self._stop()
        before = b"" if self._open is ToolCallDelta else self._stop()
        if isinstance(event, ToolCallStart):
            block = {"type": "tool_use", "id": safe_id(event.id), "name": event.name, "input": {}}
            return before + self._start(ToolCallDelta, block)
        field = "thinking" if isinstance(event, ReasoningDelta) else "text"
        empty = {"type": field, field: "", **({"signature": ""} if isinstance(event, ReasoningDelta) else {})}
        return before + self._start(kind, empty) + self._format(event)

    def _start(self, kind: type[FormatEvent], block: dict[str, Any]) -> bytes:
        self._index += 1
        self._open = kind
        self._prefix = _DELTA % (self._index, *_FIELDS[kind])
        return _event("content_block_start", index=self._index, content_block=block)

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        signature = _event("content_block_delta", index=self._index, delta=_SIGNATURE)
        closed = signature if self._open is ReasoningDelta else b""
        self._open = None
        return closed + _event("content_block_stop", index=self._index)


_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b_delta","%b":'
_FIELDS: dict[type[FormatEvent], tuple[bytes, bytes]] = {
    ContentDelta: (b"text", b"text"),
    ReasoningDelta: (b"thinking", b"thinking"),
    ToolCallDelta: (b"input_json", b"partial_json"),
}
_SIGNATURE = {"type": "signature_delta", "signature": UNSIGNED}


def _event(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _json({"type": name, **fields}))
