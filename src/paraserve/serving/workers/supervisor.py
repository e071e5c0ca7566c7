"""Several workers on one port, from the first step of their start to the last of their end.

SIGTERM and Ctrl-C stop accepting in all of them at once; replies that run may end within the drain timeout and are then
broken off with an error of their own, and the engine is stopped last. Ctrl-C once more breaks them off at once. It
serves nobody itself. Invariant: nothing that it has started outlives it, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from paraserve.admission import AdmissionLimits, LocalAdmission
from paraserve.engines.build import engine_of_ours
from paraserve.engines.child import ChildServer
from paraserve.engines.upkeep import keep_running
from paraserve.serving.listening import listen_together, url_of
from paraserve.serving.progress import START_FAILED, Progress, run_until_stopped
from paraserve.serving.workers.process import WorkerProcess
from paraserve.serving.workers.slots import Workers, WorkersPlan
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError

GRACE_SECONDS = 10.0
"""Beyond the drain, for a worker to end before it is killed; all that it has when it is told to hurry is `HURRY`."""
HURRY_SECONDS = 2.0
METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"

log = logging.getLogger(__name__)


def supervise(settings: ServerSettings, engine_flags: Sequence[str] = ()) -> int:
    """Run until stopped. Returns the exit code of the process.

    Args:
        engine_flags: for an engine that is started by us.
    """
    return run_until_stopped(settings, partial(_supervise, settings, engine_flags))


async def _supervise(settings: ServerSettings, engine_flags: Sequence[str], progress: Progress) -> int:
    # Made here, so that each worker reads what another one signed.
    settings = replace(settings, reasoning_key=settings.reasoning_key or secrets.token_hex())
    sockets = listen_together(settings.host, settings.port, settings.workers)
    with _metrics_directory() as metrics:
        engine = engine_of_ours(settings, engine_flags)
        plan = WorkersPlan(
            settings=settings,
            created=int(time.time()),
            shares_engine=engine is not None,
            spawn=partial(WorkerProcess.start, sockets, {METRICS_DIRECTORY: str(metrics)}),
            admission=LocalAdmission(AdmissionLimits.of(settings)),
            metrics=metrics,
            step=progress.step,
        )
        return await Supervisor(plan, sockets, engine, progress).run()


@contextmanager
def _metrics_directory() -> Iterator[Path]:
    """Where the workers keep their metrics: the operator's directory, or one for this run."""
    given = os.environ.get(METRICS_DIRECTORY)
    if given:
        yield Path(given)
        return
    try:
        directory = tempfile.TemporaryDirectory(prefix="paraserve-metrics-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StartError(f"no directory for the workers' metrics: {error.strerror}; is TMPDIR writable?") from None
    with directory as path:
        yield Path(path)


class Supervisor:
    """Args:
    sockets: bound, one a worker.
    engine: to start, None where it is none of ours.
    """

    def __init__(
        self, plan: WorkersPlan, sockets: Sequence[socket.socket], engine: ChildServer | None, progress: Progress
    ) -> None:
        self._plan = plan
        self._workers = Workers(plan)
        self._sockets = sockets
        self._engine = engine
        self._progress = progress
        self._signal: signal.Signals | None = None
        self._asked_to_stop = asyncio.Event()
        self._hurried = asyncio.Event()
        self._started = False
        self._watching: asyncio.Task[None] | None = None
        self._lost_engine = ""

    async def run(self) -> int:
        """Returns the exit code. Raises `StartError`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._take_signal, number)
        keeping = [asyncio.create_task(self._workers.keep(slot)) for slot in range(len(self._sockets))]
        serving: asyncio.Future[Any] = asyncio.gather(self._start(), *keeping)
        stop: asyncio.Future[Any] = asyncio.create_task(self._asked_to_stop.wait())
        try:
            await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                serving.result()  # a start that failed, or no worker starts any longer
                log.critical("no worker is left")
                return START_FAILED
        finally:
            await self._stop(keeping)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            if self._watching is not None:
                self._watching.cancel()
                await asyncio.wait({self._watching})
            if self._engine is not None:
                await self._engine.stop()
        if self._lost_engine:
            self._progress.fail(self._lost_engine)
            return START_FAILED
        return 0 if self._started or self._signal is None else 128 + self._signal

    async def _start(self) -> None:
        if self._engine is not None:
            self._workers.share(await self._engine.start(self._progress.step))
        facts = await self._workers.all_ready()
        self._started = True
        count = str(self._plan.settings.workers)
        where = url_of(self._plan.settings, self._sockets[0])
        self._progress.step(f"ready on {where}", {**facts, "workers": count})
        if self._engine is not None:
            self._watching = asyncio.create_task(self._watch(self._engine))

    async def _watch(self, engine: ChildServer) -> None:
        """Look after the engine; where it is not to be started again, the server ends with it."""
        self._lost_engine = await keep_running(
            engine,
            restart=self._plan.settings.engine_restart,
            on_away=self._workers.engine_away,
            on_back=lambda: self._workers.share(engine.address),
        )
        self._asked_to_stop.set()

    async def _stop(self, keeping: Sequence[asyncio.Task[None]]) -> None:
        """Drain all workers at once; those that do not end are killed."""
        self._asked_to_stop.set()
        for listening in self._sockets:
            listening.close()
        living = self._workers.stop()
        for worker in living:
            worker.signal(signal.SIGTERM if worker.served else signal.SIGKILL)
        ends = [asyncio.create_task(worker.ended()) for worker in living]
        if ends:
            hurry = asyncio.create_task(self._hurry(living))
            await asyncio.wait(ends, timeout=self._plan.settings.drain_timeout + GRACE_SECONDS)
            hurry.cancel()
            for worker in living:
                worker.signal(signal.SIGKILL)
            await asyncio.wait(ends)
        for task in keeping:
            task.cancel()  # those that waited to start one; the others are at their end

    async def _hurry(self, living: Sequence[WorkerProcess]) -> None:
        """Once more Ctrl-C: break off what runs, and soon be gone."""
        await self._hurried.wait()
        for worker in living:
            worker.signal(signal.SIGINT)
        await asyncio.sleep(HURRY_SECONDS)
        for worker in living:
            worker.signal(signal.SIGKILL)

    def _take_signal(self, number: signal.Signals) -> None:
        if self._asked_to_stop.is_set() and number == signal.SIGINT:
            self._hurried.set()
        self._signal = self._signal or number
        self._asked_to_stop.set()
