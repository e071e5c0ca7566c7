"""How many requests may generate at the same time, how many may wait for that, and for how long: of all clients, and of
each key.

Never knows what a request asks for, nor a key: a caller is its digest. Three invariants: a place is given to the first
of those who wait and whose key has room, a place is given back once, whatever becomes of its request, and nobody waits
without end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Protocol

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, retry_after
from paraserve.settings import ServerSettings

Caller = bytes | None
"""Who asks, by the digest of a key; None where nobody is asked for one."""
Leave = Callable[[], None]
"""Gives a place back."""

MEAN_OF_PLACES = 16
"""Replies that count in the mean of how long a place is held."""


class Admission(Protocol):
    """Whom the way of a request asks for a place."""

    def check(self, caller: Caller) -> None:
        """Refuse as `enter` would, if that can be told without waiting: a request that has no chance is not prepared.

        Raises:
            RequestError: as `enter` does.
        """
        ...

    def enter_at_once(self, caller: Caller) -> Leave | None:
        """A place, if that can be told without waiting and there is one."""
        ...

    async def enter(self, caller: Caller) -> Leave:
        """Wait for a place.

        Raises:
            RequestError: with ``Retry-After``. 429: the key has as many requests here as it may. 503: the queue is
                full, or the wait took too long.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Args:
    running: most requests that generate; 0 is no limit.
    queued: most requests that wait.
    timeout: the longest wait, in seconds.
    key_running: most of a key that generate; 0 is no limit.
    key_queued: most of a key beyond those.
    """

    running: int
    queued: int
    timeout: float
    key_running: int = 0
    key_queued: int = 0

    @classmethod
    def of(cls, settings: ServerSettings) -> AdmissionLimits:
        return cls(
            running=settings.max_concurrent_requests,
            queued=settings.max_queued_requests,
            timeout=settings.queue_timeout,
            key_running=settings.max_concurrent_requests_per_key,
            key_queued=settings.max_queued_requests_per_key,
        )

    @property
    def any(self) -> bool:
        return bool(self.running or self.key_running)


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """Somebody who waits."""

    caller: Caller
    place: asyncio.Future[None]


class LocalAdmission:
    """`Admission` by this process's own count."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._waiting: deque[_Turn] = deque()
        self._running_of: Counter[bytes] = Counter()
        self._waiting_of: Counter[bytes] = Counter()
        self._held = 1.0
        """Seconds that a place was held, as a mean of the last ones."""
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def check(self, caller: Caller) -> None:
        if not self._has_place() or not self._key_has_room(caller):
            self._check_queues(caller)

    def enter_at_once(self, caller: Caller) -> Leave | None:
        # Whoever waits while a place is free waits for its own key.
        if not self._has_place() or not self._key_has_room(caller):
            return None
        self._take(caller)
        return partial(self._give_back, caller, monotonic())

    async def enter(self, caller: Caller) -> Leave:
        leave = self.enter_at_once(caller)
        if leave is not None:
            return leave
        self._check_queues(caller)
        turn = _Turn(caller, asyncio.get_running_loop().create_future())
        self._join(turn)
        admitted = False
        try:
            async with asyncio.timeout(self._limits.timeout):
                await turn.place
            admitted = True
        except TimeoutError:
            if not self._key_has_room(caller):
                raise self._too_many(caller) from None
            seconds = f"{self._limits.timeout:g} seconds"
            raise self._overloaded(f"The server is busy: no place became free within {seconds}.") from None
        finally:
            if not admitted:
                self._give_up(turn)
        return partial(self._give_back, caller, monotonic())

    def _check_queues(self, caller: Caller) -> None:
        if caller is not None and self._limits.key_running:
            here = self._running_of[caller] + self._waiting_of[caller]
            if here >= self._limits.key_running + self._limits.key_queued:
                raise self._too_many(caller)
        if len(self._waiting) >= self._limits.queued:
            raise self._overloaded("The server is busy and its queue is full.")

    def _has_place(self) -> bool:
        return not self._limits.running or self.running < self._limits.running

    def _key_has_room(self, caller: Caller) -> bool:
        most = self._limits.key_running
        return not most or caller is None or self._running_of[caller] < most

    def _take(self, caller: Caller) -> None:
        self.running += 1
        _count(self._running_of, caller, 1)

    def _give_back(self, caller: Caller, since: float) -> None:
        self._held += (monotonic() - since - self._held) / MEAN_OF_PLACES
        self._leave(caller)

    def _leave(self, caller: Caller) -> None:
        """Give a place back: to the first who can have it, if anybody can."""
        self.running -= 1
        _count(self._running_of, caller, -1)
        if not self._has_place():
            return
        for turn in self._waiting:
            if not turn.place.done() and self._key_has_room(turn.caller):
                self._part(turn)
                self._take(turn.caller)
                turn.place.set_result(None)
                return

    def _join(self, turn: _Turn) -> None:
        self._waiting.append(turn)
        _count(self._waiting_of, turn.caller, 1)

    def _part(self, turn: _Turn) -> None:
        self._waiting.remove(turn)
        _count(self._waiting_of, turn.caller, -1)

    def _give_up(self, turn: _Turn) -> None:
        if turn in self._waiting:
            self._part(turn)
        elif not turn.place.cancelled():
            self._leave(turn.caller)  # the place was given at the very moment

    # Those who are refused are told when a place will be free once all who wait have had theirs.

    def _overloaded(self, message: str) -> RequestError:
        seconds = self._held * (len(self._waiting) + 1) / max(self._limits.running, 1)
        return RequestError(message, status=503, code=ErrorCode.OVERLOADED, headers=retry_after(seconds))

    def _too_many(self, caller: Caller) -> RequestError:
        waiting = 0 if caller is None else self._waiting_of[caller]
        return RequestError(
            "This API key has as many requests here as it may: wait until one of them has ended.",
            status=429,
            code=ErrorCode.RATE_LIMIT_EXCEEDED,
            headers=retry_after(self._held * (waiting + 1) / max(self._limits.key_running, 1)),
        )


def _count(counter: Counter[bytes], caller: Caller, change: int) -> None:
    """Keys that have nothing here leave nothing behind."""
    if caller is None:
        return
    counter[caller] += change
    if not counter[caller]:
        del counter[caller]
