"""One worker: the server of a single process, told by a supervisor what to serve and with which engine.

Never knows of other workers but by the slots whose connections it is asked to accept. Invariant: it ends when its
supervisor does, however that comes about.

Run as ``python -m paraserve.serving.workers.worker CHANNEL SOCKET …``: descriptors of the line to the supervisor and of
the listening sockets, one a slot.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from functools import partial

import uvloop
from prometheus_client import values
from starlette.types import ASGIApp

from paraserve.admission import AdmissionLimits
from paraserve.api.app import Application, create_app
from paraserve.deploy import deploy
from paraserve.engines.base import Availability
from paraserve.engines.child import EngineAddress
from paraserve.observability.event_loop import count_while_running, watch_event_loop
from paraserve.observability.logs import configure_logging
from paraserve.observability.metrics import Metrics
from paraserve.serving.open_files import Listener
from paraserve.serving.progress import START_FAILED
from paraserve.serving.server import HTTPServer, background, check_access_files, ready_facts, when_deployed
from paraserve.serving.tls import Certificate
from paraserve.serving.workers.channel import (
    Adopt,
    Beat,
    Channel,
    Closing,
    EngineAway,
    EngineReady,
    Failed,
    Heard,
    Job,
    Placed,
    Ready,
    Refused,
    Release,
    Step,
    read_by_worker,
)
from paraserve.serving.workers.places import SharedAdmission
from paraserve.serving.workers.pulse import BEAT_SECONDS
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError

SUPERVISOR_GONE = 3

log = logging.getLogger(__name__)


def main() -> int:
    channel, *slots = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_work(channel, slots))


async def _work(end: socket.socket, slots: list[socket.socket]) -> int:
    channel = await Channel.over(end)
    lines = channel.lines()
    first = await anext(lines, None)
    if first is None:
        return SUPERVISOR_GONE
    job = read_by_worker(first)
    assert isinstance(job, Job)
    configure_logging(job.settings, sys.stderr)
    # Before the first metric is made.
    values.ValueClass = values.MultiProcessValue(lambda: job.metrics)  # type: ignore[no-untyped-call]
    worker = Worker(job, channel, slots)
    listener = asyncio.create_task(worker.listen(lines))
    listener.add_done_callback(_end_with_supervisor)
    try:
        return await worker.serve()
    finally:
        listener.cancel()
        await channel.flush()
        channel.close()


def _end_with_supervisor(listener: asyncio.Task[None]) -> None:
    """Nobody is listened to any longer. What still runs here would have no end."""
    if listener.cancelled():
        return
    log.critical("the supervisor is gone: this worker ends", exc_info=listener.exception())
    os._exit(SUPERVISOR_GONE)


class Worker:
    """Args:
    slots: the listening sockets of all workers, its own at the job's slot.
    """

    def __init__(self, job: Job, channel: Channel, slots: list[socket.socket]) -> None:
        self._job = job
        self._channel = channel
        self._slots = slots
        self._engine: asyncio.Future[EngineAddress] = asyncio.get_running_loop().create_future()
        self._admission = SharedAdmission(channel.send) if AdmissionLimits.of(job.settings).any else None
        self._server: WorkerServer | None = None
        self._availability = Availability()

    async def serve(self) -> int:
        """Until a signal. Returns the exit code."""
        settings = self._job.settings
        level = logging.root.level
        if not self._job.first:
            logging.root.setLevel(max(level, logging.ERROR))  # what a start warns of has been told once
        try:
            certificate = check_access_files(settings)
            ours = partial(asyncio.wait_for, self._engine, None) if self._job.shares_engine else None
            deploying = deploy(settings, self._step, ours)
            deployment = await when_deployed(deploying, settings, certificate, self._slots[self._job.slot])
            if deployment is None:
                return 0
        except StartError as error:
            self._channel.send(Failed(str(error)))
            return START_FAILED
        finally:
            logging.root.setLevel(level)
        deployment = dataclasses.replace(deployment, created=self._job.created, availability=self._availability)
        try:
            app = create_app(deployment, self._admission)
            await self._run(app, certificate, lambda: self._channel.send(Ready(ready_facts(deployment))))
        finally:
            await deployment.close()
        return 0

    async def _run(self, app: Application, certificate: Certificate | None, on_ready: Callable[[], None]) -> None:
        metrics = app.state.metrics
        on_closing = partial(self._channel.send, Closing())
        self._server = WorkerServer(app, self._job.settings, certificate, on_ready, on_closing, self._slots)
        async with background(
            certificate.follow() if certificate else None,
            watch_event_loop(metrics),
            count_while_running(metrics),
            self._beat(metrics),
        ):
            await self._server.serve([self._slots[self._job.slot]])

    async def _beat(self, metrics: Metrics) -> None:
        """Tell the supervisor that the event loop turns, until cancelled."""
        told = 0.0
        while True:
            last = metrics.last_token
            self._channel.send(Beat(last > told))
            told = last
            await asyncio.sleep(BEAT_SECONDS)

    def _step(self, text: str) -> None:
        if self._job.first:
            self._channel.send(Step(text))

    async def listen(self, lines: AsyncIterator[bytes]) -> None:
        """Do as the supervisor says, until it is gone."""
        async for line in lines:
            match read_by_worker(line):
                case EngineReady(engine):
                    self._availability.away = ""
                    if not self._engine.done():
                        self._engine.set_result(engine)
                case EngineAway(reason):
                    self._availability.away = reason
                case Heard():
                    self._availability.last_token = time.perf_counter()
                case Placed() | Refused() as answer if self._admission is not None:
                    self._admission.answer(answer)
                case Adopt(slot) if self._server is not None:
                    self._server.adopt(slot)
                case Release(slot) if self._server is not None:
                    self._server.release(slot)


class WorkerServer(HTTPServer):
    """An `HTTPServer` that can accept the connections of other slots as well.

    Args:
        on_closing: called before connections are no longer accepted.
        slots: the listening sockets of all.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        certificate: Certificate | None,
        on_listening: Callable[[], None],
        on_closing: Callable[[], None],
        slots: list[socket.socket],
    ) -> None:
        super().__init__(app, settings, certificate, on_listening)
        self._on_closing = on_closing
        self._slots = slots
        self._adopted: dict[int, Listener] = {}

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Those of the other slots too: as long as anybody holds one, clients could still connect to it."""
        self._on_closing()
        await super().shutdown(self._slots)

    def adopt(self, slot: int) -> None:
        """Called while this server listens."""
        if self.should_exit or slot in self._adopted:
            return
        self._adopted[slot] = self.accept_from(self._slots[slot].dup())

    def release(self, slot: int) -> None:
        """What it has accepted stays."""
        server = self._adopted.pop(slot, None)
        if server is not None:
            server.close()
            self.servers.remove(server)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
