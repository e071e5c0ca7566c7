"""An engine's server as a child process of ours: started, waited for, stopped.

Never knows how tokens are made: the adapter that talks to the child is given to it. Two invariants: `ChildEngine.stop`
(and a start that fails or is cancelled) leaves no process of the child's session behind, and a child that dies is a
health that says so. It is not started again: that is the work of whatever supervises the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence

from paraserve.engines.base import (
    Engine,
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
)
from paraserve.engines.http import EngineHTTP, HTTPTimeouts

logger = logging.getLogger(__name__)


class ChildEngine:
    """Engine: the child's adapter, from before the child lives to after its death.

    Args:
        command: the program and its arguments. Its output is ours.
        base_url: where it will listen.
        engine: the adapter for that place.
        environment: variables for the child beside ours.
        start_timeout: seconds to load the model; large ones take many minutes.
        stop_timeout: seconds from SIGTERM to SIGKILL.
    """

    def __init__(
        self,
        command: Sequence[str],
        base_url: str,
        engine: Engine,
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 3600.0,
        stop_timeout: float = 30.0,
    ) -> None:
        self._command = list(command)
        self._base_url = base_url
        self._engine = engine
        self._environment = {**os.environ, **(environment or {})}
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: asyncio.subprocess.Process | None = None

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def start(self) -> None:
        """Start the child and wait until it is well. Raises `EngineStartError`."""
        program = self._command[0]
        try:
            # A session of its own: Ctrl-C in the terminal is ours, the child stops when we have drained.
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, env=self._environment, start_new_session=True
            )
        except OSError as error:
            raise EngineStartError(f"cannot run {program}: {error.strerror}; is it installed?") from error
        started = False
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._until_healthy(self._process)
            await self._engine.start()
            started = True
        except TimeoutError as error:
            raise EngineStartError(f"{program} was not ready after {self._start_timeout:.0f} seconds") from error
        finally:
            if not started:
                await self._end_process()

    async def stop(self) -> None:
        await self._engine.stop()
        await self._end_process()

    async def health(self) -> EngineHealth:
        if self._process is None or self._process.returncode is not None:
            return EngineHealth(False, "the engine's process has ended")
        return await self._engine.health()

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        return self._engine.generate(request)

    async def _until_healthy(self, process: asyncio.subprocess.Process) -> None:
        http = EngineHTTP(self._base_url, timeouts=HTTPTimeouts(connect=1.0, call=5.0))
        await http.open()
        ended = asyncio.create_task(process.wait())
        try:
            while not await _healthy(http):
                await asyncio.wait({ended}, timeout=0.25)
                if ended.done():
                    raise EngineStartError(
                        f"{self._command[0]} ended with status {process.returncode} while it started: see its output"
                    )
        finally:
            ended.cancel()
            await http.close()

    async def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        # The child may be gone and its own children not: the signals go to the whole session.
        _signal_session(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(self._stop_timeout):
                await process.wait()
        except TimeoutError:
            logger.warning("the engine's process did not stop in %.0f seconds: killing it", self._stop_timeout)
        finally:
            _signal_session(process.pid, signal.SIGKILL)
        await process.wait()


async def _healthy(http: EngineHTTP) -> bool:
    try:
        return (await http.get("/health")).status == 200
    except EngineError:
        return False


def _signal_session(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
