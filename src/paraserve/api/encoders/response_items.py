"""Reply events as the items of OpenAI's Responses API: what both the whole response and its stream are made of.

Never knows events of a stream: whoever writes one is told when an item opens, grows and closes. Invariants: an item's
id, call id and place never change, and a call that did not become whole is never closed (clients run what is).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET

from paraserve.api.decoders.response_tools import ClientTool, client_tool
from paraserve.api.encoders.custom_input import CustomInput
from paraserve.api.encoders.logprobs import chat_logprobs
from paraserve.api.encoders.shape import TokenBytes
from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.generation.events import GeneratedToken
from paraserve.protocol.chat import TokenLogprobEntry
from paraserve.protocol.responses import (
    ItemStatus,
    OutputCustomToolCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningText,
    SummaryText,
)

Kind = Literal["reasoning", "message", "function_call", "custom_tool_call"]
_PREFIXES: Mapping[Kind, str] = {
    "reasoning": "rs",
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemForm:
    """Args:
    suffix: of every item's id.
    tools: by the name that the model reads.
    seal: makes ``encrypted_content``, where it was asked for.
    summaries: reasoning is shown as a summary as well.
    logprobs: texts have those of their tokens.
    """

    suffix: str
    token_bytes: TokenBytes
    tools: Mapping[str, ClientTool] = field(default_factory=dict)
    seal: Callable[[str], str] | None = None
    summaries: bool = False
    logprobs: bool = False


@dataclass(slots=True)
class Item:
    form: ItemForm
    index: int
    kind: Kind
    call: ToolCallStart | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobEntry] = field(default_factory=list)
    input: CustomInput | None = None
    status: ItemStatus = "in_progress"

    @property
    def id(self) -> str:
        return f"{_PREFIXES[self.kind]}_{self.form.suffix}{self.index:02x}"

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def wire(self, *, empty: bool = False) -> OutputItem:
        """``empty``: as it is when it opens."""
        text, status = self.text, self.status
        if self.kind == "message":
            return OutputMessage(
                id=self.id, status=status, content=[] if empty else [OutputText(text, [], self.logprobs)]
            )
        if self.kind == "reasoning":
            seal = self.form.seal
            return OutputReasoning(
                id=self.id,
                summary=[SummaryText(text)] if self.form.summaries and not empty else [],
                content=[] if empty else [ReasoningText(text)],
                encrypted_content=UNSET if seal is None else None if empty else seal(text),
                status=status,
            )
        assert self.call is not None
        tool = client_tool(self.form.tools, self.call.name)
        space = tool.namespace or UNSET
        if self.kind == "function_call":
            return OutputFunctionCall(
                id=self.id, call_id=self.call.id, name=tool.name, namespace=space, arguments=text, status=status
            )
        return OutputCustomToolCall(
            id=self.id, call_id=self.call.id, name=tool.name, namespace=space, input=text, status=status
        )


@dataclass(slots=True)
class Watcher:
    """Who wants to know what happens to items: by default nobody."""

    opened: Callable[[Item], None] = lambda _: None
    grown: Callable[[Item, str, Sequence[TokenLogprobEntry]], None] = lambda *_: None
    closed: Callable[[Item], None] = lambda _: None


class Items:
    """The items of one reply, in their order."""

    def __init__(self, form: ItemForm, watcher: Watcher | None = None) -> None:
        self._form = form
        self._watcher = watcher or Watcher()
        self._tokens: list[GeneratedToken] = []
        self._open: Item | None = None
        self.all: list[Item] = []

    def take(self, events: Sequence[FormatEvent], tokens: Sequence[GeneratedToken]) -> None:
        """One step."""
        self._tokens += tokens
        for event in events:
            self._take(event)

    def _take(self, event: FormatEvent) -> None:
        if isinstance(event, ContentDelta):
            self._text("message", event.text)
        elif isinstance(event, ReasoningDelta):
            self._text("reasoning", event.text)
        elif isinstance(event, ToolCallStart):
            custom = client_tool(self._form.tools, event.name).custom
            item = self._new("custom_tool_call" if custom else "function_call", event)
            item.input = CustomInput() if custom else None
        elif isinstance(event, ToolCallDelta):
            assert self._open is not None
            reader = self._open.input
            self._grow(self._open, event.arguments if reader is None else reader.feed(event.arguments))
        elif isinstance(event, ToolCallEnd):
            assert self._open is not None
            if self._open.input is not None:
                self._grow(self._open, self._open.input.end())
            self._close(self._open, "completed")

    def end(self, *, cut: bool) -> None:
        """The reply is over: the last text is closed, a call that goes on is not. An empty reply is an empty message.

        Args:
            cut: a limit ended it.
        """
        if not self.all:
            self._new("message")
        if self._open is not None and self._open.call is None:
            self._close(self._open, "incomplete" if cut else "completed")

    def output(self) -> list[OutputItem]:
        """The response's; an item that is still open is incomplete."""
        for item in self.all:
            if item.status == "in_progress":
                item.status = "incomplete"
        return [item.wire() for item in self.all]

    def _text(self, kind: Literal["message", "reasoning"], text: str) -> None:
        item = self._open
        if item is None or item.kind != kind:
            item = self._new(kind)
        self._grow(item, text)

    def _new(self, kind: Kind, call: ToolCallStart | None = None) -> Item:
        if self._open is not None and self._open.call is None:
            self._close(self._open, "completed")
        item = self._open = Item(self._form, len(self.all), kind, call)
        self.all.append(item)
        self._watcher.opened(item)
        return item

    def _grow(self, item: Item, text: str) -> None:
        if not text:
            return
        logprobs: list[TokenLogprobEntry] = []
        if self._form.logprobs:
            shown, self._tokens = tokens_of(text, self._tokens) if item.call is None else ([], [])
            if item.kind == "message":
                logprobs = chat_logprobs(shown, self._form.token_bytes)
                item.logprobs += logprobs
        item.texts.append(text)
        self._watcher.grown(item, text, logprobs)

    def _close(self, item: Item, status: ItemStatus) -> None:
        item.status = status
        self._open = None
        self._watcher.closed(item)


def tokens_of(text: str, tokens: Sequence[GeneratedToken]) -> tuple[list[GeneratedToken], list[GeneratedToken]]:
    """Those of ``tokens`` that spell ``text``, and those behind it.

    Markers and space that the reader left out stand before it. Tokens that add no text of their own (parts of a
    character) go with the next that does; one that reaches over the text's end belongs to it.
    """
    shown: list[GeneratedToken] = []
    waiting: list[GeneratedToken] = []
    at = 0
    for place, token in enumerate(tokens):
        if at == len(text):
            return shown, [*waiting, *tokens[place:]]
        piece = token.text if at else token.text.lstrip() or token.text
        if not piece:
            waiting.append(token)
        elif text.startswith(piece, at) or piece.startswith(text[at:]):
            shown += [*waiting, token]
            waiting = []
            at = min(at + len(piece), len(text))
        elif at:
            return shown, [*waiting, *tokens[place:]]
        else:
            waiting = []
    return shown, waiting
