"""The runs of an engine whose scheduler is spoken to directly, the same for every such engine.

Never knows an engine's messages: a subclass writes requests and reads what came. Three invariants: nothing is sent that
was not checked, for behind us nobody checks and a wrong request ends the engine for all; a request that did not end by
itself is aborted once; and when the engine is gone every run ends at once, in the turn in which that is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection

import zmq

from paraserve.engines.base import (
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Sink,
)
from paraserve.engines.checks import check_chunk, check_request, garbled
from paraserve.engines.http.client import HTTPTimeouts, broken, silent, unreachable
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.wire.sockets import Sockets

CONNECT_SECONDS = 30.0
"""In which an engine that is ready finds the sockets of a new front end."""
LOOKS_PER_SILENCE = 8


class WireRun:
    """A request in the engine: the `Generation` of whoever asked."""

    __slots__ = ("_engine", "ended", "fresh", "heard", "name", "request", "sink")

    def __init__(self, engine: WireEngine, name: str, request: EngineRequest, sink: Sink, now: float) -> None:
        self._engine = engine
        self.name = name
        self.request = request
        self.sink = sink
        self.heard = now
        self.fresh = True
        """Whether nothing has come yet."""
        self.ended = False

    def take(self, chunk: EngineChunk) -> None:
        self.fresh = False
        self.sink.take(chunk)
        if chunk.finish is not None:
            self.end(None)

    def end(self, error: EngineError | None) -> None:
        if not self.ended:
            self.ended = True
            self.sink.end(error)

    def abort(self) -> None:
        if not self.ended:
            self.ended = True
            self._engine.leave([self.name])

    def pause(self) -> None:
        """A scheduler cannot hold one request back."""

    def resume(self) -> None:
        pass


class WireEngine(ABC):
    """An adapter.

    Args:
        timeouts: of which those of silence and of a small call are meant.
    """

    def __init__(self, facts: ModelFacts, timeouts: HTTPTimeouts) -> None:
        self.facts = facts
        self.timeouts = timeouts
        self.away = True
        """Whether there is no scheduler at the other end."""
        self.runs: dict[str, WireRun] = {}
        self._info: EngineInfo | None = None
        self.front_end = secrets.token_hex(3)
        """What its names begin with: one that was killed may have left some running."""
        self._names = (f"{self.front_end}{number:08x}" for number in itertools.count())
        self._came = asyncio.Event()
        self._sockets: Sockets | None = None
        self._watching: asyncio.TimerHandle | None = None

    title: str
    stranger = ""
    """What answers was started by us."""

    @abstractmethod
    def bind(self, sockets: Sockets) -> None:
        """Bind what the scheduler connects to, one of them with `came` and `went`."""

    @abstractmethod
    def learn(self) -> EngineInfo: ...

    @abstractmethod
    def send(self, name: str, request: EngineRequest) -> None:
        """Raises `EngineError` where the engine would not survive it, `zmq.ZMQError` where there is none."""

    @abstractmethod
    def send_abort(self, names: Collection[str]) -> None: ...

    @abstractmethod
    async def probe(self) -> None:
        """Returns when the scheduler has answered."""

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise RuntimeError("the engine has not been started")
        return self._info

    async def start(self) -> None:
        self._sockets = Sockets()
        try:
            self.bind(self._sockets)
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._came.wait()
                await self._until_reachable()
            self._info = self.learn()
        except TimeoutError as error:
            await self.stop()
            raise EngineStartError(f"{self.title} does not come to the sockets that it was told") from error
        except (EngineError, zmq.ZMQError) as error:
            await self.stop()
            raise EngineStartError(f"{self.title}: {error}") from error
        self._look_for_silence()

    async def _until_reachable(self) -> None:
        """A peer that has come can be written to a moment later."""
        while True:
            try:
                return await self.probe()
            except zmq.ZMQError:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._sockets is not None:
            self.fail_all(broken(), abort=True)
            self._sockets.close()
            self._sockets = None
        self.away = True

    async def health(self) -> EngineHealth:
        if self.away:
            return EngineHealth(False, unreachable().message)
        try:
            async with asyncio.timeout(self.timeouts.call):
                await self.probe()
        except TimeoutError:
            return EngineHealth(False, silent().message)
        except (EngineError, zmq.ZMQError) as error:
            return EngineHealth(False, str(error))
        return EngineHealth(True)

    def submit(self, request: EngineRequest, sink: Sink) -> WireRun:
        loop = asyncio.get_running_loop()
        run = WireRun(self, next(self._names), request, sink, loop.time())
        try:
            if self.away:
                raise unreachable()
            check_request(request, self.info)
            self.send(run.name, request)
            self.runs[run.name] = run
        except zmq.ZMQError:
            loop.call_soon(run.end, unreachable())
        except EngineError as error:
            loop.call_soon(run.end, error)
        return run

    def leave(self, names: Collection[str]) -> None:
        """Nobody wants these any more."""
        for name in names:
            self.runs.pop(name, None)
        if names and not self.away:
            with contextlib.suppress(zmq.ZMQError):  # nor is there anybody left who works on them
                self.send_abort(names)

    def take(self, run: WireRun, chunk: EngineChunk) -> None:
        """Hand on what has come for a run."""
        if chunk.finish is not None:
            del self.runs[run.name]
        try:
            check_chunk(chunk, len(run.request.token_ids), self.info.vocab_size)
        except EngineError as error:
            self.fail(run, error, abort=chunk.finish is None)
            return
        run.take(chunk)

    def fail(self, run: WireRun, error: EngineError, *, abort: bool = False) -> None:
        self.runs.pop(run.name, None)
        if abort:
            self.leave([run.name])
        run.end(error)

    def fail_all(self, error: EngineError, *, abort: bool = False) -> None:
        running, self.runs = self.runs, {}
        if abort:
            self.leave(running)
        for run in running.values():
            run.end(EngineError(error.status, error.code, error.message))

    def came(self) -> None:
        self.away = False
        self._came.set()

    def went(self) -> None:
        self.away = True
        self.fail_all(broken())

    def cannot_be_read(self) -> None:
        """A message whose runs are not known either."""
        self.fail_all(garbled(), abort=True)

    def _look_for_silence(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self.timeouts.idle
        for run in [run for run in self.runs.values() if run.heard < oldest]:
            self.fail(run, silent(), abort=True)
        self._watching = loop.call_later(self.timeouts.idle / LOOKS_PER_SILENCE, self._look_for_silence)
