"""Where a request is made ready for the engine: a small one on the event loop, a large one in a few threads that
parties share fairly.

Never knows what is prepared. Three invariants: nothing above `SMALL_BODY` is decoded, rendered or tokenized on the
event loop; one party never has all the threads, and those who wait have their turns party by party, so that eight large
prompts of one delay another's by no more than one of them; and what a large one took of memory is given back.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")

SMALL_BODY = 8 * 2**10
"""Bytes, unpacked. Up to this size a request is prepared on the event loop: about a millisecond."""
BYTES_OF_A_CHOICE = 512
"""As much as so many bytes of body a further choice costs to prepare."""
LARGE_BODY = 2**20
"""Bytes, unpacked. What was taken for one of this size, or beyond, is worth to be given back to the system at once."""
MAX_THREADS = 4
"""Much of the work holds Python's lock: more threads would only take turns, and delay the event loop by each turn."""


class Preparation:
    """Args:
    threads: by default as the machine has cores, at least two and at most `MAX_THREADS`.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or max(2, min(MAX_THREADS, os.cpu_count() or 1))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="prepare")
        self._running: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By party, in the order of their next turns."""

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, party: Hashable, size: int, work: Callable[[], T]) -> T:
        """The result of ``work`` for a body of ``size`` bytes, in a thread if it is not small.

        One who stops waiting for a thread gives up the turn; work that has begun goes on, and holds its thread.
        """
        if size <= SMALL_BODY:
            return work()
        await self._turn(party)
        loop = asyncio.get_running_loop()
        context = copy_context()

        def ended(_: Future[T]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._end, party)

        try:
            begun = self._pool.submit(context.run, _and_give_back if size >= LARGE_BODY else _only, work)
        except BaseException:
            self._end(party)
            raise
        begun.add_done_callback(ended)
        return await asyncio.wrap_future(begun)

    async def _turn(self, party: Hashable) -> None:
        """Wait for a thread."""
        if self._has_thread(party):
            self._running[party] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(party, turn)
            else:
                self._end(party)  # the turn came at the very moment
            raise

    def _has_thread(self, party: Hashable) -> bool:
        return self._running.total() < self._threads and self._running[party] < max(1, self._threads - 1)

    def _end(self, party: Hashable) -> None:
        """A thread is free: the first party that may have it is next, and then the last in order."""
        self._running[party] -= 1
        if not self._running[party]:
            del self._running[party]
        for next_party in list(self._waiting):
            if self._has_thread(next_party):
                turn = self._waiting[next_party][0]
                self._running[next_party] += 1
                self._forget(next_party, turn)
                if rest := self._waiting.pop(next_party, None):
                    self._waiting[next_party] = rest
                turn.set_result(None)
                return

    def _forget(self, party: Hashable, turn: asyncio.Future[None]) -> None:
        turns = self._waiting[party]
        turns.remove(turn)
        if not turns:
            del self._waiting[party]


def _only(work: Callable[[], T]) -> T:
    return work()


def _and_give_back(work: Callable[[], T]) -> T:
    """A tokenizer takes up to hundreds of bytes a byte, which the C library (glibc) keeps for each thread by itself."""
    try:
        return work()
    finally:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
