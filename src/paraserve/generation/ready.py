"""Chunks of one generation, as many at a time as are there.

A chunk that comes while its reader waits is handed on at once. Chunks that piled up meanwhile (several in one network
read, or while a client was too slow to be written to) come together, so that what is done for each hand-over is done
less often just when there is more to do. There is no timer: the engine's iterator is asked for its next chunk, and the
moment at which it would have to wait is the moment to hand on what was got.

Never knows what is in a chunk. Two invariants: the order is kept, and closing ends a step that is waiting before the
iterator itself is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from types import coroutine
from typing import Any

from paraserve.engines.base import EngineChunk, EngineError

MOST = 64
"""Chunks in one hand-over."""

_Step = Generator[Any, Any, EngineChunk]


class ReadyChunks:
    """Must be used from one task, but for its first `take`."""

    __slots__ = ("_chunks", "_failure", "_next", "_step", "_waiting_for")

    def __init__(self, chunks: AsyncIterator[EngineChunk]) -> None:
        self._chunks = chunks
        self._next = chunks.__anext__
        self._step: _Step | None = None
        self._waiting_for: Any = None
        self._failure: EngineError | None = None

    async def first(self) -> EngineChunk | None:
        """Waits for the first chunk, and begins nothing beyond it. None when there is none."""
        return await anext(self._chunks, None)

    async def take(self) -> list[EngineChunk]:
        """Waits for a chunk, and returns it with all others that need no waiting. Empty at the end.

        Raises:
            EngineError: after the chunks that came before it were taken.
        """
        if self._failure is not None:
            raise self._failure
        step, self._step = self._step, None
        try:
            taken = [await self._next() if step is None else await _rest_of(step, self._waiting_for)]
        except StopAsyncIteration:
            return []
        while len(taken) < MOST:
            step = self._next().__await__()
            try:
                self._waiting_for = step.send(None)
            except StopIteration as done:
                taken.append(done.value)
            except StopAsyncIteration:
                return taken  # and the next step says so again
            except EngineError as error:
                self._failure = error
                return taken
            else:
                self._step = step
                return taken
        await asyncio.sleep(0)  # an engine that never waits must not keep the loop from others
        return taken

    async def aclose(self) -> None:
        """The engine's generation is closed when this returns."""
        step, self._step = self._step, None
        if step is not None:
            await _cancelled(step)
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()


@coroutine
def _rest_of(step: _Step, waiting_for: Any) -> Generator[Any, Any, EngineChunk]:
    """Await the rest of a step that waits for something."""
    while True:
        try:
            sent = yield waiting_for
        except BaseException as error:  # noqa: BLE001 - thrown on into the step
            thrown: BaseException | None = error
        else:
            thrown = None
        try:
            waiting_for = step.send(sent) if thrown is None else step.throw(thrown)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


@coroutine
def _cancelled(step: _Step) -> Generator[Any, Any, None]:
    """Cancel a step that waits, and await its end."""
    try:
        waiting_for = step.throw(asyncio.CancelledError())
        yield from _rest_of(step, waiting_for)
    except (asyncio.CancelledError, StopIteration, StopAsyncIteration, EngineError):
        return
