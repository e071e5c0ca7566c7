"""A worker's process that is only played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any


class Played:
    """A worker that says what the test makes it say."""

    pids = iter(range(10_000_000, 20_000_000))

    def __init__(self) -> None:
        self.pid = next(self.pids)
        self.ready = self.served = False
        self.told: list[Any] = []
        self.signals: list[int] = []
        self._says: asyncio.Queue[Any] = asyncio.Queue()

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def say(self, *messages: Any) -> None:
        for message in messages:
            self._says.put_nowait(message)

    def die(self) -> None:
        self.say(None)

    async def messages(self) -> AsyncIterator[Any]:
        while (message := await self._says.get()) is not None:
            yield message

    async def ended(self) -> str:
        return "signal SIGKILL"

    def signal(self, number: int) -> None:
        self.signals.append(number)
        self.die()
