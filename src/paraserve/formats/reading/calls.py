"""The calls of one reply: which tool each one means, whether it counts, and what has become of it.

It knows names, ids and counts, and nothing of markup or of the text around calls. Invariants: indices count from 0
without gaps in the order of `ToolCallStart`, and ``completed`` counts exactly the calls that got a `ToolCallEnd`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Literal

from msgspec.structs import replace

from paraserve.formats.events import FormatEvent, ToolCallDelta, ToolCallEnd, ToolCallStart
from paraserve.formats.reading.arguments import ArgumentReader
from paraserve.formats.reading.names import call_id, id_maker, resolve_id, resolve_name, undeclared_name
from paraserve.formats.reading.tables import Spelling
from paraserve.formats.spec import IdStyle
from paraserve.formats.types import ToolSpec

Undeclared = Literal["content", "call"]
"""What becomes of a call to a tool that was not declared: its raw text is content, or it is a call like any other."""


class Outcome(Enum):
    """What becomes of the text that a reader of arguments takes."""

    UNKNOWN = auto()
    """The name stands in the arguments and has not been read; the text is kept."""
    CALL = auto()
    TEXT = auto()
    """An undeclared tool: the text stays text."""
    DROPPED = auto()
    """One call too many."""


class OpenCall:
    """A call whose header has been read and whose arguments have not ended."""

    __slots__ = ("ended", "header", "index", "outcome", "raw", "reader", "spelling")

    def __init__(self, spelling: Spelling, reader: ArgumentReader, header: str) -> None:
        self.spelling = spelling
        self.reader = reader
        self.header = header
        self.outcome = Outcome.UNKNOWN
        self.raw: list[str] = [header]
        """All its text, as long as its outcome is unknown."""
        self.index = 0
        self.ended = False

    def keeps_text(self, closer: str) -> bool:
        """Whether closing markup right behind the arguments is text: the text of what is no call, or (where they broke)
        what may be a part of the arguments just as well."""
        broke = self.outcome is Outcome.CALL and self.reader.broken
        return self.outcome is Outcome.TEXT or (broke and closer not in self.spelling.strong_closers)


class CallLedger:
    """Admits calls, numbers them, and counts what became of them."""

    def __init__(
        self,
        ids: IdStyle,
        tools: Sequence[ToolSpec],
        offset: int,
        new_id: Callable[[], str] | None,
        undeclared: Undeclared,
    ) -> None:
        self._ids = ids
        self._tools = {tool.name: tool.parameters for tool in tools}
        self.parallel = True
        """False drops every call after the first complete one."""
        self._offset = offset
        self._new_id = new_id or id_maker(ids)
        self._undeclared = undeclared
        self.begun = 0
        self.completed = 0
        self.broken = 0
        self.strays = 0

    def resolve(self, written: str) -> str | None:
        """The tool that is meant; None when it is none that may be called."""
        name = resolve_id(written, self._tools) if self._ids == "counted" else None
        name = name or resolve_name(written, self._tools)
        if name is None and self._undeclared == "call":
            return (undeclared_name(written) if self._ids == "counted" else written.strip()) or None
        return name

    def declares(self, written: str) -> bool:
        return self.resolve(written) is not None

    def longest(self, text: str, position: int) -> str | None:
        """The longest declared name that stands there."""
        return max((name for name in self._tools if text.startswith(name, position)), key=len, default=None)

    def schema(self, name: str | None) -> Mapping[str, Any]:
        return self._tools.get(name or "", {})

    @property
    def admits_more(self) -> bool:
        return self.parallel or not self.completed

    def admit(self, call: OpenCall, name: str, written_id: str) -> list[FormatEvent]:
        """Let a call count, unless it is one too many."""
        if not self.admits_more:
            call.outcome = Outcome.DROPPED
            return []
        call.outcome = Outcome.CALL
        call.index = self.begun
        self.begun += 1
        return [self._start(call.index, name, written_id)]

    def _start(self, index: int, name: str, written_id: str) -> ToolCallStart:
        return ToolCallStart(index, call_id(self._ids, name, self._offset + index, written_id, self._new_id), name)

    def add_whole(self, name: str, arguments: str, written_id: str = "") -> list[FormatEvent]:
        """A call that came whole: ``arguments`` is the text of its JSON object."""
        if not self.admits_more:
            return []
        index = self.begun
        self.begun += 1
        self.completed += 1
        return [self._start(index, name, written_id), ToolCallDelta(index, arguments), ToolCallEnd(index)]

    def arguments(self, call: OpenCall) -> list[FormatEvent]:
        """What the call's reader has given since the last time."""
        events: list[FormatEvent] = []
        if call.outcome is Outcome.CALL:
            if arguments := "".join(call.reader.out):
                events.append(ToolCallDelta(call.index, arguments))
            if call.reader.whole and not call.ended:
                call.ended = True
                self.completed += 1
                events.append(ToolCallEnd(call.index))
        call.reader.out.clear()
        return events

    def begin_anew(self, open_call: OpenCall | None, events: Sequence[FormatEvent] = ()) -> list[FormatEvent]:
        """Forget all calls but an open one: they belong to the conversation before this reply. Of the events so far,
        those of the open one are returned, as the reply's first."""
        kept = open_call is not None and open_call.outcome is Outcome.CALL
        self._offset += self.begun - kept
        self.begun = int(kept)
        self.completed = self.broken = self.strays = 0
        if open_call is None or not kept:
            return []
        open_call.index = 0
        start = max(i for i, event in enumerate(events) if isinstance(event, ToolCallStart))
        return [replace(event, index=0) for event in events[start:]]
