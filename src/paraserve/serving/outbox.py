"""What many connections write in one turn of the event loop, sent at its end. Never knows what it is."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Written(Protocol):
    def flush(self) -> None:
        """Send what was written."""
        ...


class Outbox:
    """Connections with bytes that wait for the end of the event loop's turn.

    Tokens of many streams come in one turn. Writing them back to back, behind all that was computed for them, costs
    about a third less than writing each by itself: a reader that is awake needs no waking (benchmarks/profile.md).
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Written] = []

    def add(self, connection: Written, loop: asyncio.AbstractEventLoop) -> None:
        """Called once in a turn for each connection."""
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(connection)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.flush()
