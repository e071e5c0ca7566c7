"""What may stand right behind a call, and only there: its closing markup, and all calls of its section once more.

It takes them from the window, and knows neither other markers nor what is said behind them. Invariant: what it has not
taken is as it was.
"""

from __future__ import annotations

from paraserve.formats.reading.calls import CallLedger, OpenCall
from paraserve.formats.reading.freetext import FreeText
from paraserve.formats.reading.tables import Spelling
from paraserve.formats.reading.window import Window


class AfterCall:
    def __init__(self, window: Window, free: FreeText, ledger: CallLedger) -> None:
        self._window = window
        self._free = free
        self._ledger = ledger
        self.call: OpenCall | None = None
        """The call that has just ended; None where its last closing markup or anything else has come."""
        self._repeat = ""

    def begin(self, spelling: Spelling, header: str) -> None:
        """Another call begins, with a header that was just taken."""
        if spelling.calls.repeats and self.call is None:
            self._window.keep(len(header))
        self.forget()

    def forget(self) -> None:
        self.call, self._repeat = None, ""

    def repeat_here(self) -> bool | None:
        """All calls of the section once more. (These two say yes, no, or None for not yet.)"""
        if not self._repeat:
            return False
        text, position = self._window.here
        if text.startswith(self._repeat, position):
            self._free.skip_to(position + len(self._repeat))
            self._repeat = ""
            self._ledger.strays += 1
            return True
        return None if self._repeat.startswith(text[position:]) else False

    def closer_here(self) -> bool | None:
        """Closing markup of it. With the last there is, the call is forgotten."""
        if self.call is None:
            return False
        spelling, here = self.call.spelling, self._window.here
        hit = spelling.closers.at(*here)
        if hit is None and spelling.stray:
            if stray := spelling.stray.match(*here):
                self._ledger.strays += 1
                self._free.skip_to(stray.end())
                return True
            if spelling.stray.may_match(*here):
                return None
        entry = spelling.entry.match(*here) if spelling.entry else None
        if hit is None and entry is None:
            waiting = spelling.closers.may_begin(*here)
            waiting = waiting or (spelling.entry is not None and spelling.entry.may_match(*here))
            return None if waiting else False
        end = hit[2] if hit else entry.end() if entry else 0
        if self.call.keeps_text(hit[1] if hit else ""):
            self._free.release()
            self._free.say_to(end)
        self._free.skip_to(end)
        if hit and hit[1] == spelling.last_closer:
            if spelling.calls.repeats and self.call.ended:
                self._repeat = self._window.kept_to(hit[0]).strip().removeprefix(spelling.openings[0][0]).strip()
            self.call = None
        return True
