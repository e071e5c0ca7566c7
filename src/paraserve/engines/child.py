"""An engine's server as a child process of ours: started, waited for, stopped.

Never knows how tokens are made: the adapter that talks to the child is given to it. Three invariants:
`ChildServer.stop` (and a start that fails or is cancelled) leaves no process of the child's session behind, a child
that dies is a health that says so, and the child is told to stop when this process dies, however that comes about. It
is not started again: that is the work of whatever supervises the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
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
from paraserve.engines.http.client import EngineHTTP, HTTPTimeouts

logger = logging.getLogger(__name__)


class ChildServer:
    """The process.

    Args:
        command: the program and its arguments. Its output is ours.
        base_url: where it will listen.
        environment: variables for the child beside ours.
        start_timeout: seconds to load the model; large ones take many minutes.
        stop_timeout: seconds from SIGTERM to SIGKILL.
    """

    def __init__(
        self,
        command: Sequence[str],
        base_url: str,
        *,
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 3600.0,
        stop_timeout: float = 30.0,
    ) -> None:
        self._command = list(command)
        self.base_url = base_url
        self._environment = {**os.environ, **(environment or {})}
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the child and wait until it is well. Raises `EngineStartError`."""
        program = self._command[0]
        if shutil.which(program, path=self._environment.get("PATH")) is None:
            raise EngineStartError(f"cannot run {program}: there is no such program; is it installed?")
        try:
            # A session of its own: Ctrl-C in the terminal is ours, the child stops when we have drained.
            self._process = await asyncio.create_subprocess_exec(
                *_tied_to_us(self._command),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineStartError(f"cannot run {program}: {error.strerror}; is it installed?") from error
        started = False
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._until_healthy(self._process)
            started = True
        except TimeoutError as error:
            raise EngineStartError(f"{program} was not ready after {self._start_timeout:.0f} seconds") from error
        finally:
            if not started:
                await self.stop()

    async def wait(self) -> int:
        """The exit code of the child, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def _until_healthy(self, process: asyncio.subprocess.Process) -> None:
        http = EngineHTTP(self.base_url, timeouts=HTTPTimeouts(connect=1.0, call=5.0))
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

    async def stop(self) -> None:
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


class ChildEngine:
    """Engine: the child's adapter, from before the child lives to after its death.

    Args:
        engine: the adapter for the place where the child listens.
    """

    def __init__(self, server: ChildServer, engine: Engine) -> None:
        self._server = server
        self._engine = engine

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def start(self) -> None:
        """Start the child and learn of it. Raises `EngineStartError`."""
        await self._server.start()
        started = False
        try:
            await self._engine.start()
            started = True
        finally:
            if not started:
                await self._server.stop()

    async def stop(self) -> None:
        await self._engine.stop()
        await self._server.stop()

    async def health(self) -> EngineHealth:
        if not self._server.running:
            return EngineHealth(False, "the engine's process has ended")
        return await self._engine.health()

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        return self._engine.generate(request)


async def _healthy(http: EngineHTTP) -> bool:
    try:
        return (await http.get("/health")).status == 200
    except EngineError:
        return False


def _signal_session(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _tied_to_us(command: Sequence[str]) -> list[str]:
    """The command by way of a program that has the kernel tell it when we die."""
    return [sys.executable, "-m", "paraserve.engines.tied_child", str(os.getpid()), *command]
