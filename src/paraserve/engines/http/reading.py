"""A generation whose engine is read by a task of its own, which is resumed once a read and pushes what that brought.

Never knows what is read. Two invariants: the sink hears of one end, or of nothing after an abort; and `Reading.leave`
runs once, whatever ended it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from paraserve.engines.base import EngineChunk, EngineError, Sink


class Reading(ABC):
    """A `Generation`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._over = False
        self._paused: asyncio.Future[None] | None = None
        """Done when it goes on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    async def read(self) -> None:
        """Push the reply, with `go_on` between a read and its push. Raises `EngineError`."""

    def leave(self) -> None:
        """Nothing is pushed any more: let go of what was asked for."""
        return

    def push(self, chunk: EngineChunk) -> None:
        if not self._over:
            self._sink.take(chunk)

    async def go_on(self) -> None:
        """Returns when the sink is ready for more."""
        while self._paused is not None:
            await self._paused

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self.leave()
            self._task.cancel()

    def pause(self) -> None:
        if self._paused is None:
            self._paused = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    async def _run(self) -> None:
        failure: Exception | None = None
        try:
            await self.read()
        except Exception as error:  # the sink's to report; of one that has left, only what is a fault of ours
            if self._over and not isinstance(error, EngineError):
                raise
            failure = error
        if not self._over:
            self._over = True
            self.leave()
            self._sink.end(failure)
