"""What becomes of the text that a call's reader takes: the call's events, the text that it is, or nothing.

It knows no markers, and not where a call begins or ends. Invariant: the extent of a call is the same in all three.
"""

from __future__ import annotations

from paraserve.formats.reading.calls import CallLedger, OpenCall, Outcome
from paraserve.formats.reading.freetext import FreeText
from paraserve.formats.reading.tables import Mode
from paraserve.formats.reading.window import Window


class CallText:
    def __init__(self, window: Window, free: FreeText, ledger: CallLedger) -> None:
        self._window = window
        self._free = free
        self._ledger = ledger
        self.broke_reasoning = False
        """A call stood in open reasoning, whose end is still to come."""

    def decide(self, call: OpenCall, name: str | None, written_id: str) -> None:
        """The name is read: is this a call, is it one too many, or is it text?"""
        if name is None:
            call.outcome = Outcome.TEXT
            self._ledger.broken += 1
            self._free.release()
            self._free.say_taken("".join(call.raw))
            self._free.mode = Mode.CONTENT if self._free.mode is Mode.HEAD else self._free.mode
        else:
            self._free.skip_to(self._window.position)
            self._free.fresh = False
            self.broke_reasoning = self.broke_reasoning or self._free.mode is Mode.REASONING
            self._free.mode = Mode.CONTENT
            self._free.events += self._ledger.admit(call, name, written_id)
        call.raw = []

    def deliver(self, call: OpenCall, start: int) -> None:
        """Give out what the call's reader has taken from ``start`` on."""
        if call.outcome is Outcome.TEXT:
            self._free.say_taken(self._window.text[start : self._window.position])
        self._free.events += self._ledger.arguments(call)

    def end(self, call: OpenCall) -> None:
        """Its reader has ended, or cannot go on."""
        if call.outcome is Outcome.CALL and call.reader.broken:
            self._ledger.broken += 1
            self._free.say_taken(call.reader.rest)

    def take_back(self, call: OpenCall) -> int:
        """What was read as an envelope is none. Returns how much of it is text for sure: its opener."""
        if call.reader.name is not None:
            self._ledger.broken += 1
        self._window.take_back("".join(call.raw))
        return len(call.header) or len(call.spelling.calls.announced[:1])

    def finish(self, call: OpenCall, *, ended: bool) -> None:
        """The reply is over."""
        window, start = self._window, self._window.position
        call.reader.finish(window.text, start, ended=ended)
        window.position = len(window.text)
        if call.outcome is Outcome.UNKNOWN:
            self._ledger.broken += 1
            self._free.release()
            self._free.say_taken("".join(call.raw) + window.text[start:])
            return
        self.deliver(call, start)
        if call.outcome is Outcome.CALL and not call.ended:
            self._ledger.broken += 1
            self._free.say_taken(call.reader.rest)
