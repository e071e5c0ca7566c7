"""What every parser of replies is: text in, events out, for one reply in one format.

It holds what does not depend on how a format is described: the arguments, the calls, and the rule for a prefill. It
knows nothing of markup. Invariants: see `parser.py`; every parser keeps them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from paraserve.formats.events import FormatEvent
from paraserve.formats.reading.calls import CallLedger, Undeclared
from paraserve.formats.reading.window import Window
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, TextEnd, ToolSpec


class ReplyParser(ABC):
    """Reads one reply.

    Args:
        format: the family's description.
        tools: the declared tools; their schemas give untyped values their type.
        start: where the prompt left the model.
        prefill: assistant text that the prompt already holds. It sets the state and gives no events, and it may hold
            several calls, whatever ``parallel_tool_calls`` says of the rest. A call that it leaves open is reported
            whole.
        parse_tool_calls: False makes call markup plain text.
        parallel_tool_calls: False drops every call after the first complete one.
        call_index_offset: calls in the conversation before this reply (for ids that count them).
        new_id: makes ids for families that have none of their own; by default ``call_`` and 24 hex digits, or nine
            alphanumerics where the family wants them.
        undeclared: see `Undeclared`.
    """

    def __init__(
        self,
        format: Format,
        *,
        tools: Sequence[ToolSpec] = (),
        start: ReplyStart = ReplyStart.HEADER,
        prefill: str = "",
        parse_tool_calls: bool = True,
        parallel_tool_calls: bool = True,
        call_index_offset: int = 0,
        new_id: Callable[[], str] | None = None,
        undeclared: Undeclared = "content",
    ) -> None:
        self._format = format
        self._parse_calls = (
            parse_tool_calls and bool(format.calls or format.declared) and (bool(tools) or undeclared == "call")
        )
        self._ledger = CallLedger(format.ids, tools, call_index_offset, new_id, undeclared)
        self._window = Window()
        self._begin(start)
        if prefill:
            self._window.known = len(prefill)
            self._take_prefill(prefill)
        self._ledger.parallel = parallel_tool_calls

    @property
    def completed_calls(self) -> int:
        return self._ledger.completed

    @property
    def broken_calls(self) -> int:
        """What looked like a call and did not become one: undeclared, no valid arguments, or cut."""
        return self._ledger.broken

    @property
    def stray_markers(self) -> int:
        """Special tokens of the format that opened or closed nothing where they stood. They are in no event."""
        return self._ledger.strays

    @property
    @abstractmethod
    def in_reasoning(self) -> bool:
        """Whether the text fed so far ends inside reasoning. A marker that is not whole has not ended it yet."""

    @property
    @abstractmethod
    def open_call(self) -> bool:
        """Whether a call was begun and is not complete. It stays so when the reply ends within it."""

    @abstractmethod
    def plain(self, text: str) -> FormatEvent | None:
        """Feed text that comes out as it is and changes nothing, however it is cut. None where it is not known to be
        such text: it must be fed then, piece by piece."""

    @abstractmethod
    def feed(self, text: str) -> list[FormatEvent]:
        """The events of more text."""

    @abstractmethod
    def finish(self, reason: TextEnd) -> list[FormatEvent]:
        """The events of the end: what was held back is given out. Nothing may be fed after it."""

    @abstractmethod
    def _begin(self, start: ReplyStart) -> None:
        """Set the state in which the prompt left the model."""

    @abstractmethod
    def _take_prefill(self, prefill: str) -> None:
        """Run text that the prompt holds already. Only a call that it leaves open is news to the client."""
