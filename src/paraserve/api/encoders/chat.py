"""Reply events as ``chat.completion`` and ``chat.completion.chunk``.

Both encoders read the same events. A stream's chunk is a prefix and a suffix, prepared once a choice, around the text
that is new: nothing is built per token but the text itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from paraserve.api.encoders.logprobs import chat_logprobs
from paraserve.api.encoders.shape import OpenAIStream, ReplyShape
from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.generation.events import ChoiceEnd, GeneratedToken, ReplyDelta, ReplyEvent, Usage
from paraserve.protocol.chat import (
    AssistantMessage,
    ChatCompletion,
    Choice,
    ChoiceLogprobs,
    FunctionCall,
    ToolCall,
)

_json = msgspec.json.encode
_RUNNING = b',"finish_reason":null'
_PLAIN_END = b'},"logprobs":null' + _RUNNING + b"}]}\n\n"


@dataclass(slots=True)
class _ChoiceFold:
    reasoning: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)
    calls: list[tuple[ToolCallStart, list[str]]] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    tokens: list[GeneratedToken] = field(default_factory=list)
    end: ChoiceEnd | None = None

    def take(self, event: FormatEvent) -> None:
        if isinstance(event, ContentDelta):
            self.content.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self.reasoning.append(event.text)
        elif isinstance(event, ToolCallStart):
            self.calls.append((event, []))
        elif isinstance(event, ToolCallDelta):
            self.calls[event.index][1].append(event.arguments)
        elif isinstance(event, ToolCallEnd):
            self.whole.add(event.index)

    def message(self) -> AssistantMessage:
        content = "".join(self.content)
        only_whole = self.end is not None and self.end.finish_reason == "tool_calls"
        calls = [
            ToolCall(start.id, FunctionCall(start.name, "".join(arguments)))
            for start, arguments in self.calls
            if start.index in self.whole or not only_whole
        ]
        return AssistantMessage(
            content=None if calls and not content else content,
            reasoning_content="".join(self.reasoning) if self.reasoning else UNSET,
            tool_calls=calls or UNSET,
        )


class ChatFold:
    """The whole response, from the events that a stream would have sent.

    Args:
        named_tool: calls end with ``stop``, as OpenAI has it for a function that was forced by name.
    """

    def __init__(self, shape: ReplyShape, *, named_tool: bool = False) -> None:
        self._shape = shape
        self._named_tool = named_tool
        self._choices = [_ChoiceFold() for _ in range(shape.choices)]
        self._usage: Usage | None = None

    def take(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyDelta):
            choice = self._choices[event.choice]
            choice.tokens += event.tokens
            for format_event in event.events:
                choice.take(format_event)
        elif isinstance(event, ChoiceEnd):
            self._choices[event.choice].end = event
        elif isinstance(event, Usage):
            self._usage = event

    def response(self) -> bytes:
        """JSON, once the last event was taken."""
        shape = self._shape
        assert self._usage is not None
        return _json(
            ChatCompletion(
                id=shape.id,
                created=shape.created,
                model=shape.model,
                choices=[self._choice(i, choice) for i, choice in enumerate(self._choices)],
                usage=shape.usage(self._usage),
            )
        )

    def _choice(self, index: int, choice: _ChoiceFold) -> Choice:
        shape, end = self._shape, choice.end
        assert end is not None
        logprobs = ChoiceLogprobs(chat_logprobs(choice.tokens, shape.token_bytes)) if shape.logprobs else None
        return Choice(index, choice.message(), logprobs, _reason(end, self._named_tool), end.matched_stop)


class ChatStream(OpenAIStream):
    """The same events as server-sent events. ``named_tool`` as above."""

    def __init__(self, shape: ReplyShape, *, named_tool: bool = False) -> None:
        self._shape = shape
        self._named_tool = named_tool
        self._running = shape.choices
        head = _json(
            {"id": shape.id, "object": "chat.completion.chunk", "created": shape.created, "model": shape.model}
        )
        self._head = b"data: " + head[:-1] + b',"choices":['
        self._choices: dict[int, _ChoiceStream] = {}
        self._lean = not (shape.logprobs or shape.continuous_usage)
        self._last_end: ChoiceEnd | None = None

    def encode(self, event: ReplyEvent) -> bytes:
        """The frames of one event; empty when it shows nothing."""
        if type(event) is ReplyDelta:
            choice = self._choices.get(event.choice)
            if choice is not None and self._lean and choice.begun and len(event.events) == 1:
                return choice.text(event.events[0])
            return self._delta(event)
        if isinstance(event, ChoiceEnd):
            return self._end(event)
        if isinstance(event, Usage):
            return self._usage(event)
        return b""

    def _delta(self, delta: ReplyDelta) -> bytes:
        choice = self._choice(delta.choice)
        choice.completion_tokens, choice.reasoning_tokens = delta.completion_tokens, delta.reasoning_tokens
        return choice.delta(delta, self._tail())

    def _end(self, end: ChoiceEnd) -> bytes:
        self._running -= 1
        if self._shape.usage_in_last_choice and not self._running:
            self._last_end = end  # the usage is next
            return b""
        return self._choice(end.choice).end(end, self._tail())

    def _usage(self, usage: Usage) -> bytes:
        if not self._shape.include_usage:
            return b""
        counts = _json(self._shape.usage(usage))
        frames = self._head + b'],"usage":' + counts + b"}\n\n"
        end = self._last_end
        return frames if end is None else self._choice(end.choice).end(end, self._tail(), counts) + frames

    def _choice(self, index: int) -> _ChoiceStream:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _ChoiceStream(
                self._shape, self._head + b'{"index":%d,"delta":{' % index, self._named_tool
            )
        return choice

    def _tail(self) -> bytes:
        """The end of a chunk: the totals so far, when every chunk shall have them."""
        if not self._shape.continuous_usage:
            return b"}\n\n"
        choices = self._choices.values()
        running = Usage(
            prompt_tokens=self._shape.prompt_tokens,
            completion_tokens=sum(choice.completion_tokens for choice in choices),
            reasoning_tokens=sum(choice.reasoning_tokens for choice in choices),
            cached_tokens=None,
        )
        return b',"usage":' + _json(self._shape.usage(running)) + b"}\n\n"


class _ChoiceStream:
    """Frames of one choice. Tokens whose text is still held back wait here for the next frame, so that the joined
    entries are the generated tokens, once each."""

    def __init__(self, shape: ReplyShape, opening: bytes, named_tool: bool) -> None:
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._shape = shape
        self._named_tool = named_tool
        self._open = opening
        self._tokens: list[GeneratedToken] = []
        self.begun = False
        """Whether the role has been said."""
        self._content = opening + b'"content":'
        self._reasoning = opening + b'"reasoning_content":'
        self._call = (-1, b"")
        """The call that goes on, and the opening of its chunks."""

    def text(self, event: FormatEvent) -> bytes:
        """The frame of an event that comes alone, behind the role and without log probabilities or usage."""
        if type(event) is ContentDelta:
            return b"%b%b%b" % (self._content, _json(event.text), _PLAIN_END)
        if type(event) is ToolCallDelta:
            index, opening = self._call
            if index != event.index:
                opening = self._open + b'"tool_calls":[{"index":%d,"function":{"arguments":' % event.index
                self._call = (event.index, opening)
            return b"%b%b}}]%b" % (opening, _json(event.arguments), _PLAIN_END)
        if type(event) is ReasoningDelta:
            return b"%b%b%b" % (self._reasoning, _json(event.text), _PLAIN_END)
        body = _delta_body(event)
        return self._frame(body, _RUNNING, b"}\n\n") if body else b""

    def delta(self, delta: ReplyDelta, tail: bytes) -> bytes:
        self._tokens += delta.tokens
        frames = [self._frame(body, _RUNNING, tail) for event in delta.events if (body := _delta_body(event))]
        return self._begin(tail) + b"".join(frames)

    def end(self, end: ChoiceEnd, tail: bytes, usage: bytes | None = None) -> bytes:
        reason = _json(_reason(end, self._named_tool))
        last = b',"finish_reason":%b,"matched_stop":%b' % (reason, _json(end.matched_stop))
        if usage is not None:
            last += b',"usage":' + usage
        return self._begin(tail) + self._frame(b"", last, tail)

    def _begin(self, tail: bytes) -> bytes:
        """The role, once and before everything else."""
        if self.begun:
            return b""
        self.begun = True
        return b"".join((self._open, b'"role":"assistant","content":""},"logprobs":null', _RUNNING, b"}]", tail))

    def _frame(self, body: bytes, last: bytes, tail: bytes) -> bytes:
        return b"".join((self._open, body, b'},"logprobs":', self._logprobs(), last, b"}]", tail))

    def _logprobs(self) -> bytes:
        if not self._tokens:
            return b"null"
        tokens, self._tokens = self._tokens, []
        return _json(ChoiceLogprobs(chat_logprobs(tokens, self._shape.token_bytes)))


def _reason(end: ChoiceEnd, named_tool: bool) -> str:
    return "stop" if named_tool and end.finish_reason == "tool_calls" else end.finish_reason


def _delta_body(event: FormatEvent) -> bytes:
    """The inside of ``delta``. A call's first delta has index, id, type, name and empty arguments; later ones have
    index and arguments only."""
    if isinstance(event, ContentDelta):
        return b'"content":' + _json(event.text)
    if isinstance(event, ReasoningDelta):
        return b'"reasoning_content":' + _json(event.text)
    if isinstance(event, ToolCallDelta):
        return b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (event.index, _json(event.arguments))
    if isinstance(event, ToolCallStart):
        return b'"tool_calls":[{"index":%d,"id":%b,"type":"function","function":{"name":%b,"arguments":""}}]' % (
            event.index,
            _json(event.id),
            _json(event.name),
        )
    return b""
