"""How much work of one party keeps all others waiting: the most processor time between two turns of the event loop.

A running stream and a second connection's ``/health`` each need a turn; what is done before they get it is what is
measured here, on one loop, by all threads of this process: a thread that does not let go of the interpreter holds up
the loop as well as the loop's own work. Processor time, and not the clock's: what other processes do does not count.
What a test asserts is generous all the same (`TOLERATED`), and far below what the attacks of each kind came to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

TOLERATED = 0.5
"""Seconds. 0.1 is usual; the attacks that this is for came to between 0.9 and 70."""


class Gap:
    """Measures while it is entered. ``longest`` in seconds."""

    longest = 0.0
    _last = 0.0

    async def __aenter__(self) -> Gap:
        self._last = time.process_time()
        self._ticking = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._note()
        self._ticking.cancel()
        await asyncio.wait({self._ticking})

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            self._note()

    def _note(self) -> None:
        now = time.process_time()
        self.longest, self._last = max(self.longest, now - self._last), now


async def gap_of(work: Awaitable[T]) -> tuple[float, T]:
    """The most that was done between two turns while ``work`` ran, in seconds of the processor, and its result."""
    async with Gap() as gap:
        result = await work
    return gap.longest, result
