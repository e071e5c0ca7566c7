"""How many requests may generate at the same time, how many may wait for that, and for how long.

Never knows what a request asks for. Two invariants: a place is given to those who wait in the order in which they came,
and a place is given back once, whatever becomes of its request (record 55: nobody waits without end).
"""

from __future__ import annotations

import asyncio
from collections import deque

from paraserve.api.errors import RETRY_AFTER_SECONDS
from paraserve.protocol.errors import RequestError


class Admission:
    """Args:
    running: most requests that generate; 0 is no limit.
    queued: most requests that wait.
    timeout: the longest wait, in seconds.
    """

    def __init__(self, *, running: int, queued: int, timeout: float) -> None:
        self._most = running
        self._queued = queued
        self._timeout = timeout
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Take a place if one is free and nobody waits for it."""
        if self._most and (self.running >= self._most or self._waiting):
            return False
        self.running += 1
        return True

    async def enter(self) -> None:
        """Wait for a place.

        Raises:
            RequestError: 503 with ``Retry-After``: the queue is full, or the wait took too long.
        """
        if self.enter_at_once():
            return
        if len(self._waiting) >= self._queued:
            raise _overloaded("The server is busy and its queue is full.")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        admitted = False
        try:
            async with asyncio.timeout(self._timeout):
                await turn
            admitted = True
        except TimeoutError:
            raise _overloaded(f"The server is busy: no place became free within {self._timeout:g} seconds.") from None
        finally:
            if not admitted:
                self._give_up(turn)

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        elif not turn.cancelled():
            self.leave()  # the place was given at the very moment

    def leave(self) -> None:
        """Give the place back: to the first who still waits, if anybody does."""
        self.running -= 1
        while self._waiting and self.running < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self.running += 1
                turn.set_result(None)


def _overloaded(message: str) -> RequestError:
    return RequestError(message, status=503, code="overloaded", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
