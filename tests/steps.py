"""How much an event loop does before it turns to others, counted and not timed: the same on every machine.

A step is a call of a function, of Python's or of C's, on the thread of the loop. What a single call of C takes is not
seen by that: `Steps.read` says which of those that read their whole input were made there, and `Steps.longest_text` how
long a text the methods of texts went over.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_READING = frozenset({"Decoder.decode", "convert", "Tokenizer.encode"})


class Steps:
    """Counts on this thread while it is entered."""

    def __init__(self) -> None:
        self.longest = 0
        """The most steps of one turn."""
        self.read: set[str] = set()
        self.longest_text = 0
        self._turn = 0

    def __enter__(self) -> Steps:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_name == "_run" and code.co_filename.endswith("asyncio/events.py"):
                self._turn = 0
                return
        elif event == "c_call":
            if called.__qualname__ in _READING:
                self.read.add(called.__qualname__)
            owner = called.__self__
            if isinstance(owner, (str, bytes, bytearray)) and called.__name__ not in _CONSTANT:
                self.longest_text = max(self.longest_text, len(owner))
        else:
            return
        self._turn += 1
        self.longest = max(self.longest, self._turn)


_CONSTANT = frozenset({"startswith", "endswith", "append", "extend", "__len__", "isascii"})
"""Methods that do not go over the whole text."""
