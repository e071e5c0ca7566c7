"""Whether what answers at an engine's address still is the model that this server was started for.

Never knows how an engine is asked. Invariants: once it is known to be another one, nothing is asked of it; and no reply
is given out that came over a new connection before what is behind it was asked, for that is how a restart is seen at
the latest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from paraserve.engines.base import EngineError
from paraserve.protocol.error_codes import ErrorCode

LOOK_SECONDS = 5.0
"""Between two questions while nothing seems to have happened."""

_LOST = frozenset({ErrorCode.ENGINE_UNREACHABLE, ErrorCode.ENGINE_DISCONNECTED})
"""Codes of failures behind which another process may be there."""

logger = logging.getLogger(__name__)


class Identity:
    """Args:
    ask: what the engine calls its model now; empty where it does not say. Raises `EngineError`.
    refresh: learns its other facts again, when it has come back.
    where: its address, for the log.
    """

    def __init__(self, ask: Callable[[], Awaitable[str]], refresh: Callable[[], Awaitable[None]], where: str) -> None:
        self._ask = ask
        self._refresh = refresh
        self._where = where
        self._told = ""
        self._doubt = False
        self._looks = 0
        self._failure: EngineError | None = None
        """Of the last look."""
        self._lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self.stranger = ""
        """What runs there instead, empty while it is the right one."""

    async def learn(self) -> None:
        """What runs now is the right one. It is watched until `stop`. Raises `EngineError`."""
        self._told = await self._ask()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def notice(self, error: EngineError) -> None:
        """A request has failed."""
        self._doubt |= error.code in _LOST

    async def before_request(self) -> None:
        """Raises `EngineError` where nothing may be asked of the engine."""
        if self._doubt or self.stranger:
            await self._look()
            self._refuse_stranger()

    async def before_reply(self) -> None:
        """A new connection has brought one. Raises `EngineError` where it must not be shown."""
        try:
            await self._look()
        except EngineError:
            if self._doubt:
                raise
        self._refuse_stranger()

    def _refuse_stranger(self) -> None:
        if self.stranger:
            message = "The engine runs another model than this server was started for."
            raise EngineError(503, ErrorCode.ENGINE_UNHEALTHY, message)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(EngineError):
                await self._look()

    async def _look(self) -> None:
        """Returns when the engine has answered a question that was asked after this was called."""
        mine = self._looks + 1
        async with self._lock:
            if self._looks >= mine:  # somebody else's, while this one waited
                if self._failure is not None:
                    raise EngineError(self._failure.status, self._failure.code, self._failure.message)
                return
            self._looks += 1
            try:
                self._failure, now = None, await self._ask()
            except EngineError as error:
                self._failure = error
                self.notice(error)
                raise
            came_back, self._doubt = self._doubt, False
            self._judge(now)
            if came_back and not self.stranger:
                await self._refresh()

    def _judge(self, now: str) -> None:
        if not (now and self._told):
            return
        if now == self._told:
            if self.stranger:
                logger.warning("%s: the engine runs %s again", self._where, now)
            self.stranger = ""
        elif now != self.stranger:
            self.stranger = now
            logger.error(
                "%s: the engine runs %s now, and this server was started for %s: requests get 503 until that is back, "
                "or this server is started again",
                self._where,
                now,
                self._told,
            )
