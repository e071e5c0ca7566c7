"""Reply events as OpenAI's ``response`` and its stream of events.

Both are made of the same `Items`; the last event of a stream holds the whole response. A frame of text is a prefix, a
number and the text. Invariant: each event that opens an item, a part or a response has the one that closes it, but for
a call that did not become whole.
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
        self._watcher = Watcher(self._opened, self._grown, self._closed)
        self.fold = ResponsesFold(form, self._watcher)
        self._number = 0
        self._frames: list[bytes] = []
        self._growing: Item | None = None
        self._tail = b""
        self._prefixes: tuple[bytes, ...] = ()
        """Of the frames that tell of more text of one item."""
        self._plain: type[FormatEvent] | None = None
        """What only adds to the text of that item, as most events do."""

    def begin(self) -> bytes:
        response = self._form.response
        return self._event("created", response=response) + self._event("in_progress", response=response)

    def encode(self, event: ReplyEvent) -> bytes:
        if type(event) is ReplyDelta and len(event.events) == 1 and type(event.events[0]) is self._plain:
            return self._more(event.events[0])
        self.fold.take(event)
        frames = self._frames[0] if len(self._frames) == 1 else b"".join(self._frames)
        self._frames.clear()
        return frames

    def end(self) -> bytes:
        response = self.fold.whole()
        return self._event(response.status, response=response)

    def failure(self, error: RequestError) -> bytes:
        return self._event("failed", response=self.fold.failed(error))

    def _event(self, name: str, /, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        name = f"response.{name}"
        payload = _json({"type": name, "sequence_number": number, **fields})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), payload)

    def _say(self, name: str, /, **fields: Any) -> None:
        self._frames.append(self._event(name, **fields))

    def _opened(self, item: Item) -> None:
        self._growing = self._plain = None
        self._say("output_item.added", output_index=item.index, item=item.begun)
        for part in self._parts(item):
            self._say(f"{part.name}.added", **part.place(item), part=part.type(""))

    def _grown(self, item: Item, text: str, logprobs: Sequence[TokenLogprobEntry]) -> None:
        if self._growing is not item:
            self._growing = item
            parts = self._parts(item)
            self._prefixes = tuple(_prefix(f"{part.text}.delta", part.place(item)) for part in parts) or (
                _prefix(f"{_CALL_TEXTS[item.kind][0]}.delta", _place(item)),
            )
            self._tail = b',"logprobs":[]}\n\n' if item.kind == "message" else b"}\n\n"
            self._plain = None if self._form.items.logprobs else _PLAIN.get(item.kind)
        tail = self._tail if not logprobs else b',"logprobs":%b}\n\n' % _json(logprobs)
        self._frames += [self._delta(prefix, text, tail) for prefix in self._prefixes]

    def _more(self, event: FormatEvent) -> bytes:
        """The frames of an event that comes alone and only adds to the text that grows."""
        assert self._growing is not None
        text: str = event.arguments if type(event) is ToolCallDelta else event.text  # type: ignore[union-attr]
        self._growing.texts.append(text)
        if len(self._prefixes) == 1:
            return self._delta(self._prefixes[0], text, self._tail)
        return b"".join([self._delta(prefix, text, self._tail) for prefix in self._prefixes])

    def _delta(self, prefix: bytes, text: str, tail: bytes) -> bytes:
        number = self._number
        self._number = number + 1
        return b'%b%d,"delta":%b%b' % (prefix, number, _json(text), tail)

    def _closed(self, item: Item) -> None:
        self._growing = self._plain = None
        whole, text = item.wire(), item.text
        if isinstance(whole, OutputFunctionCall | OutputCustomToolCall):
            name, field = _CALL_TEXTS[item.kind]
            self._say(f"{name}.done", **_place(item), name=whole.name, **{field: text})
        logprobs = {"logprobs": item.logprobs} if item.kind == "message" else {}
        for part in self._parts(item):
            self._say(f"{part.text}.done", **part.place(item), text=text, **logprobs)
            self._say(f"{part.name}.done", **part.place(item), part=part.type(text, **logprobs))
        self._say("output_item.done", output_index=item.index, item=whole)

    def _parts(self, item: Item) -> Sequence[_Part]:
        """A call has none."""
        if item.kind == "reasoning":
            return (_THOUGHT, _SUMMARY) if self._form.items.summaries else (_THOUGHT,)
        return (_ANSWER,) if item.kind == "message" else ()


@dataclass(frozen=True, slots=True)
class _Part:
    """What the events of one part of an item are called, and what it is."""

    name: str
    text: str
    index: str
    type: Callable[..., OutputText | ReasoningText | SummaryText]

    def place(self, item: Item) -> dict[str, Any]:
        return {**_place(item), self.index: 0}


_ANSWER = _Part("content_part", "output_text", "content_index", OutputText)
_THOUGHT = _Part("content_part", "reasoning_text", "content_index", ReasoningText)
_SUMMARY = _Part("reasoning_summary_part", "reasoning_summary_text", "summary_index", SummaryText)
_CALL_TEXTS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}


_PLAIN: Mapping[Kind, type[FormatEvent]] = {
    "message": ContentDelta,
    "reasoning": ReasoningDelta,
    "function_call": ToolCallDelta,
}


def _place(item: Item) -> dict[str, Any]:
    return {"item_id": item.id, "output_index": item.index}


def _prefix(name: str, place: dict[str, Any]) -> bytes:
    name = f"response.{name}"
    fields = _json({"type": name, **place})
    return b'event: %b\ndata: %b,"sequence_number":' % (name.encode(), fields[:-1])
