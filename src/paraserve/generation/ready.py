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
    """``await`` it for the next chunk with all others that need no waiting; for nothing at the end. The first chunk
    comes alone, and nothing is begun beyond it. Must be awaited in one task.

    Awaiting raises `EngineError`, after the chunks that came before it were handed on.
    """

    __slots__ = ("_begun", "_chunks", "_failure", "_next", "_step", "_waits_for")

    def __init__(self, chunks: AsyncIterator[EngineChunk]) -> None:
        self._chunks = chunks
        self._next = chunks.__anext__
        self._begun = False
        self._step: _Step | None = None
        """A step that has begun and waits; what for is beside it."""
        self._waits_for: Any = None
        self._failure: EngineError | None = None

    def __await__(self) -> Generator[Any, Any, list[EngineChunk]]:
        # One generator for each hand-over, and no coroutine in between: this runs for every token of every stream.
        if self._failure is not None:
            raise self._failure
        taken: list[EngineChunk] = []
        step, waits_for = self._step, self._waits_for
        self._step = None
        while True:
            try:
                if step is None:
                    step = self._next().__await__()
                    waits_for = step.send(None)
                    if taken:
                        self._step, self._waits_for = step, waits_for
                        return taken
                while True:
                    try:
                        sent = yield waits_for
                    except BaseException as thrown:  # noqa: BLE001 - thrown on into the step
                        waits_for = step.throw(thrown)
                    else:
                        waits_for = step.send(sent)
            except StopIteration as done:
                taken.append(done.value)
            except StopAsyncIteration:
                return taken  # and the next step says so again
            except EngineError as error:
                if not taken:
                    raise
                self._failure = error
                return taken
            step = None
            if not self._begun:
                self._begun = True
                return taken
            if len(taken) == MOST:
                yield  # an engine that never waits must not keep the loop from others
                return taken

    async def aclose(self) -> None:
        """The engine's generation is closed when this returns."""
        step, self._step = self._step, None
        if step is not None:
            await _cancelled(step)
        if isinstance(self._chunks, AsyncGenerator):
            await self._chunks.aclose()


@coroutine
def _cancelled(step: _Step) -> Generator[Any, Any, None]:
    """Cancel a step that waits, and await its end."""
    try:
        waits_for = step.throw(asyncio.CancelledError())
        while True:
            try:
                sent = yield waits_for
            except BaseException as thrown:  # noqa: BLE001 - thrown on into the step
                waits_for = step.throw(thrown)
            else:
                waits_for = step.send(sent)
    except (asyncio.CancelledError, StopIteration, StopAsyncIteration, EngineError):
        return
