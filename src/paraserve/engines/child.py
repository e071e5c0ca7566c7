"""An engine's server as a child process of ours: started, waited for, stopped.

Never knows how tokens are made: an adapter talks to the child. Two invariants: `ChildServer.stop` (and a start that
fails or is cancelled) leaves no process of the child's session behind, and the child is told to stop when this process
dies, however that comes about.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paraserve.engines.base import EngineError, EngineStartError
from paraserve.engines.http.client import EngineHTTP, HTTPTimeouts

# llama.cpp's log line: time, level, function, message.
_ERROR_LINE = re.compile(r"[\d.]+ E \s*(?:\w+ +)?(?:\w+: )?(?P<message>.+)")
_LONGEST_LINE = 4096
_POLL_SECONDS = 0.1
"""How often a child that starts is asked whether it is well."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WireAddress:
    """Where an engine of ours comes to, that is spoken to without its HTTP server.

    Args:
        directory: of the sockets, which no other user can reach.
        client: which of its front ends is meant; the first one belongs to who has started it.
        facts: what its adapter has to know of it, as JSON.
    """

    directory: str
    client: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """Where an engine of ours listens.

    Args:
        unix_socket: to connect to instead of the URL's host.
        defers_constraints: whether it holds constraints back until the reasoning has ended.
        wire: instead of either.
    """

    url: str = "http://localhost"
    unix_socket: str | None = None
    defers_constraints: bool = False
    wire: WireAddress | None = None

    def of_worker(self, slot: int) -> EngineAddress:
        """For one of several front ends."""
        return self if self.wire is None else replace(self, wire=replace(self.wire, client=1 + slot))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What runs in the child.

    Args:
        name: of the engine, for a person.
        command: the program and its arguments.
        address: where it will listen. A socket's directory is the child's: it comes and goes with it.
        start_failed: what comes before the reason of a start that failed.
        environment: variables beside ours.
        package: the Python package that has to be installed for it, and what to do where it is not.
        quiet: its output is for our log at debug, where it is else for our own standard output and error.
    """

    name: str
    command: tuple[str, ...]
    address: EngineAddress
    start_failed: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    package: tuple[str, str] | None = None
    quiet: bool = False


def socket_directory() -> str:
    """A name for a directory of sockets that nobody else has; whoever starts the child makes it."""
    return f"{tempfile.gettempdir()}/paraserve-{secrets.token_hex(8)}"


class ChildServer:
    """The process.

    Args:
        start_timeout: seconds to load the model; large ones take many minutes.
        stop_timeout: seconds from SIGTERM to SIGKILL.
    """

    def __init__(self, program: Program, *, start_timeout: float = 3600.0, stop_timeout: float = 30.0) -> None:
        self._program = program
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._process: asyncio.subprocess.Process | None = None
        self._said: deque[str] = deque(maxlen=50)
        self._reading: asyncio.Task[None] | None = None

    @property
    def address(self) -> EngineAddress:
        return self._program.address

    async def start(self, step: Callable[[str], None] = lambda _: None) -> EngineAddress:
        """Start the child and wait until it is well; once more after it has ended. Raises `EngineStartError`.

        Args:
            step: told what goes on, in words for a person.
        """
        program = self._program
        step(f"starting the engine ({program.name})")
        if program.package is not None and importlib.util.find_spec(program.package[0]) is None:
            raise EngineStartError(program.package[1])
        environment = {**os.environ, **program.environment}
        if shutil.which(program.command[0], path=environment.get("PATH")) is None:
            raise EngineStartError(f"cannot run {program.command[0]}: there is no such program; is it installed?")
        started = False
        try:
            async with asyncio.timeout(self._start_timeout):
                await self._until_healthy(await self._spawn(environment))
            started = True
        except TimeoutError as error:
            raise EngineStartError(f"{program.name} was not ready after {self._start_timeout:.0f} seconds") from error
        except OSError as error:
            raise EngineStartError(f"cannot run {program.command[0]}: {error.strerror}") from error
        finally:
            if not started:
                await self._end()
        return self.address

    async def ended(self) -> str:
        """How the child ended, in words, when it has."""
        assert self._process is not None
        return _how(await self._process.wait())

    async def stop(self) -> None:
        """End the child and what it has started; safe to call twice."""
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
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
        if self._reading is not None:
            await self._reading
            self._reading = None
        if self.address.unix_socket is not None:
            shutil.rmtree(Path(self.address.unix_socket).parent, ignore_errors=True)

    async def _spawn(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        await self._end()  # what an earlier child may have left
        if self.address.unix_socket is not None:
            Path(self.address.unix_socket).parent.mkdir(mode=0o700)
        output = asyncio.subprocess.PIPE if self._program.quiet else None
        # A session of its own: Ctrl-C in the terminal is ours, the child stops when we have drained.
        self._process = await asyncio.create_subprocess_exec(
            # By way of a program that has the kernel tell it when we die.
            *(sys.executable, "-m", "paraserve.engines.tied_child", str(os.getpid()), *self._program.command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT if self._program.quiet else None,
            env=environment,
            start_new_session=True,
        )
        if self._process.stdout is not None:
            self._said.clear()
            self._reading = asyncio.create_task(self._forward_output(self._process.stdout))
        return self._process

    async def _until_healthy(self, process: asyncio.subprocess.Process) -> None:
        address = self.address
        timeouts = HTTPTimeouts(connect=1.0, call=5.0)
        http = EngineHTTP(address.url, timeouts=timeouts, unix_socket=address.unix_socket, reuse=False)
        await http.open()
        ended = asyncio.create_task(process.wait())
        try:
            while not await _healthy(http):
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
                if ended.done():
                    raise EngineStartError(await self._reason(ended.result()))
        finally:
            ended.cancel()
            await http.close()

    async def _forward_output(self, output: asyncio.StreamReader) -> None:
        rest = b""
        # Not by line: a line of any length must not end the reading, on which the child would wait for ever.
        while received := await output.read(1 << 16):
            *lines, rest = (rest + received).split(b"\n")
            rest = rest[-_LONGEST_LINE:]
            for raw in lines:
                line = raw[:_LONGEST_LINE].decode("utf-8", "replace").rstrip()
                self._said.append(line)
                logger.debug("%s: %s", self._program.name, line)

    async def _reason(self, code: int) -> str:
        """Why the start failed: of a quiet child its first error that was told, else its last words."""
        name = self._program.name
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=1.0)
        told = [match["message"] for line in self._said if (match := _ERROR_LINE.match(line))]
        told += [line for line in reversed(self._said) if line]
        if told:
            return f"{self._program.start_failed or name}: {told[0]}"
        return f"{name} ended with {_how(code)} while it started" + ("" if self._program.quiet else ": see its output")


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


async def _healthy(http: EngineHTTP) -> bool:
    try:
        return (await http.get("/health")).status == 200
    except EngineError:
        return False


def _signal_session(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
