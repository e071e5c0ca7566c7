"""Reply events as OpenAI's ``response`` and its stream of events.

Both are made of the same `Items`; the last event of a stream holds the whole response. A frame of text is prepared once
an item, with places for the text and the number. Invariant: each event that opens an item, a part or a response has the
one that closes it, but for a call that did not become whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paraserve.api.encoders.response_items import Item, ItemForm, Items, Kind, Watcher
from paraserve.api.streams import COMMENT
from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta, ToolCallDelta
from paraserve.generation.events import ChoiceEnd, ReplyDelta, ReplyEvent, Usage
from paraserve.protocol.chat import TokenLogprobEntry
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.protocol.responses import (
    IncompleteDetails,
    InputTokensDetails,
    OutputCustomToolCall,
    OutputFunctionCall,
    OutputText,
    OutputTokensDetails,
    ReasoningText,
    ResponseFailure,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
    SummaryText,
)
from paraserve.secrets import client_text

_json = msgspec.json.encode

FAILURE_CODES: Mapping[str | None, str] = {
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: "context_length_exceeded",
    ErrorCode.RATE_LIMIT_EXCEEDED: "rate_limit_exceeded",
    ErrorCode.OVERLOADED: "server_is_overloaded",
    ErrorCode.ENGINE_OVERLOADED: "server_is_overloaded",
}
"""``error.code`` of a response that failed, where clients act on one; ``invalid_prompt`` for what else is the
request's fault, ``server_error`` for the rest (Codex tries only that one and the rate limit again)."""


def failure_of(error: RequestError) -> ResponseFailure:
    other = "invalid_prompt" if error.status < 500 else "server_error"
    return ResponseFailure(FAILURE_CODES.get(error.code, other), client_text(error.message))


def usage_of(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens or 0),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )


@dataclass(frozen=True, slots=True)
class ResponseForm:
    """Args:
    response: as it is when it begins, with what is echoed of the request.
    items: what its items are made with.
    """

    response: ResponseObject
    items: ItemForm


class ResponsesFold:
    """The whole response."""

    def __init__(self, form: ResponseForm, watcher: Watcher | None = None) -> None:
        self.form = form
        self.items = Items(form.items, watcher)
        self._end: ChoiceEnd | None = None
        self._usage: Usage | None = None
        self.told: ResponseObject | None = None
        """What it ended as."""

    def take(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyDelta):
            self.items.take(event.events, event.tokens)
        elif isinstance(event, ChoiceEnd):
            self._end = event
            self.items.end(cut=event.finish_reason == "length")
        elif isinstance(event, Usage):
            self._usage = event

    def whole(self) -> ResponseObject:
        """Once the last event was taken; the same whenever it is asked for."""
        if self.told is None:
            assert self._end is not None
            cut = self._end.finish_reason == "length"
            self.told = self._ended(
                "incomplete" if cut else "completed",
                incomplete_details=IncompleteDetails("max_output_tokens") if cut else None,
            )
        return self.told

    def failed(self, error: RequestError) -> ResponseObject:
        """What there is of one that failed."""
        return self._ended("failed", error=failure_of(error))

    def response(self) -> bytes:
        return _json(self.whole())

    def _ended(self, status: ResponseStatus, **fields: Any) -> ResponseObject:
        return msgspec.structs.replace(
            self.form.response,
            status=status,
            completed_at=int(time.time()),
            output=self.items.output(),
            usage=None if self._usage is None else usage_of(self._usage),
            **fields,
        )


class ResponsesStream:
    """The same as server-sent events."""

    keep_alive = COMMENT

    def __init__(self, form: ResponseForm) -> None:
        self._form = form
        self.fold = ResponsesFold(form, Watcher(self._opened, self._grown, self._closed))
        self._number = 0
        self._frames: list[bytes] = []
        self._parts: Sequence[tuple[_Part, bytes]] = ()
        """Of the open item, and where each stands; a call has none."""
        self._growing: Item | None = None
        self._keep: Callable[[str], None]
        """Adds to the text of that item."""
        self._more = b""
        """The frames that tell of more text of that item, with places for the text and their numbers."""
        self._twice = False
        """Whether they are two: reasoning that is shown as a summary as well."""
        self._plain: type[FormatEvent] | None = None
        """What only adds to the text of that item, as most events do."""

    def begin(self) -> bytes:
        response = b'"response":' + _json(self._form.response)
        return self._event(b"created", response) + self._event(b"in_progress", response)

    def encode(self, event: ReplyEvent) -> bytes:
        if type(event) is ReplyDelta and len(event.events) == 1 and type(only := event.events[0]) is self._plain:
            text: str = only.arguments if type(only) is ToolCallDelta else only.text  # type: ignore[union-attr]
            self._keep(text)
            if self._twice:
                return self._delta(text)
            self._number = 1 + (number := self._number)
            return self._more % (_json(text), number)
        self.fold.take(event)
        frames = self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
        self._frames.clear()
        return frames

    def end(self) -> bytes:
        response = self.fold.whole()
        return self._event(response.status.encode(), b'"response":' + _json(response))

    def failure(self, error: RequestError) -> bytes:
        return self._event(b"failed", b'"response":' + _json(self.fold.failed(error)))

    def _event(self, name: bytes, fields: bytes) -> bytes:
        self._number = 1 + (number := self._number)
        return _EVENT % (name, name, number, fields)

    def _say(self, name: bytes, fields: bytes) -> None:
        self._frames.append(self._event(name, fields))

    def _opened(self, item: Item) -> None:
        self._growing = self._plain = None
        place = _place(item)
        self._parts = [(part, b'%b,"%b":0' % (place, part.index)) for part in self._parts_of(item)]
        self._say(b"output_item.added", b'"output_index":%d,"item":%b' % (item.index, _json(item.wire(empty=True))))
        for part, where in self._parts:
            self._say(part.name + b".added", b'%b,"part":%b' % (where, _json(part.type(""))))

    def _grown(self, item: Item, text: str, logprobs: Sequence[TokenLogprobEntry]) -> None:
        if logprobs:
            ((part, place),) = self._parts
            fields = b'%b,"delta":%b,"logprobs":%b' % (place, _json(text), _json(logprobs))
            self._say(part.text + b".delta", fields)
            return
        if self._growing is not item:
            self._growing, self._keep = item, item.texts.append
            told = [(part.text, place) for part, place in self._parts] or [(_CALL_TEXTS[item.kind][0], _place(item))]
            tail = b',"logprobs":[]' if item.kind == "message" else b""
            self._more = b"".join(_delta_frame(name, place, tail) for name, place in told)
            self._twice = len(told) == 2
            self._plain = None if self._form.items.logprobs else _PLAIN.get(item.kind)
        self._frames.append(self._delta(text))

    def _delta(self, text: str) -> bytes:
        """What tells of more text of the item that grows."""
        shown, number = _json(text), self._number
        self._number += 1 + self._twice
        return self._more % ((shown, number, shown, number + 1) if self._twice else (shown, number))

    def _closed(self, item: Item) -> None:
        self._growing = self._plain = None
        whole, text, shown = item.wire(), item.text, _json(item.text)
        if isinstance(whole, OutputFunctionCall | OutputCustomToolCall):
            name, field = _CALL_TEXTS[item.kind]
            self._say(name + b".done", b'%b,"name":%b,"%b":%b' % (_place(item), _json(whole.name), field, shown))
        logprobs = b',"logprobs":' + _json(item.logprobs) if item.kind == "message" else b""
        for part, place in self._parts:
            closed = part.type(text, [], item.logprobs) if item.logprobs else part.type(text)
            self._say(part.text + b".done", b'%b,"text":%b%b' % (place, shown, logprobs))
            self._say(part.name + b".done", b'%b,"part":%b' % (place, _json(closed)))
        self._say(b"output_item.done", b'"output_index":%d,"item":%b' % (item.index, _json(whole)))

    def _parts_of(self, item: Item) -> Sequence[_Part]:
        if item.kind == "reasoning":
            return (_THOUGHT, _SUMMARY) if self._form.items.summaries else (_THOUGHT,)
        return (_ANSWER,) if item.kind == "message" else ()


@dataclass(frozen=True, slots=True)
class _Part:
    """What the events of one part of an item are called, and what it is."""

    name: bytes
    text: bytes
    index: bytes
    type: Callable[..., OutputText | ReasoningText | SummaryText]


_ANSWER = _Part(b"content_part", b"output_text", b"content_index", OutputText)
_THOUGHT = _Part(b"content_part", b"reasoning_text", b"content_index", ReasoningText)
_SUMMARY = _Part(b"reasoning_summary_part", b"reasoning_summary_text", b"summary_index", SummaryText)
_CALL_TEXTS = {
    "function_call": (b"function_call_arguments", b"arguments"),
    "custom_tool_call": (b"custom_tool_call_input", b"input"),
}


_PLAIN: Mapping[Kind, type[FormatEvent]] = {
    "message": ContentDelta,
    "reasoning": ReasoningDelta,
    "function_call": ToolCallDelta,
}

_EVENT = b'event: response.%b\ndata: {"type":"response.%b","sequence_number":%d,%b}\n\n'


def _place(item: Item) -> bytes:
    return b'"item_id":"%b","output_index":%d' % (item.id.encode(), item.index)


def _delta_frame(name: bytes, place: bytes, tail: bytes) -> bytes:
    """No name or id has a percent sign."""
    head = b'event: response.%b.delta\ndata: {"type":"response.%b.delta",%b,"delta":' % (name, name, place)
    return b'%b%%b%b,"sequence_number":%%d}\n\n' % (head, tail)
