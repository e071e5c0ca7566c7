"""Places for workers, kept filled: each is started, and again when it dies, more slowly each time.

Never knows sockets, signals or engines' kinds. Three invariants: a worker that cannot start is not tried for ever, what
a dead one had is given back, and while it is away the others accept its connections. One that hangs is killed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from paraserve.admission import LocalAdmission
from paraserve.engines.child import EngineAddress
from paraserve.serving.workers.channel import (
    Adopt,
    Beat,
    Closing,
    EngineAway,
    EngineReady,
    Enter,
    Failed,
    Heard,
    Job,
    Leave,
    Ready,
    Release,
    Step,
)
from paraserve.serving.workers.places import PlacesOfWorker
from paraserve.serving.workers.process import WorkerProcess
from paraserve.serving.workers.pulse import LOOK_SECONDS, SILENT_LOOKS, Pulse
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError

GIVE_UP_AFTER = 5
"""Starts in a row that did not come to serving."""
STEADY_SECONDS = 60.0
"""A worker that has served this long was no trouble: the next one starts at once."""
LONGEST_WAIT = 30.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersPlan:
    """What all workers have in common.

    Args:
        spawn: starts a process.
        admission: the count of requests that all share.
        metrics: the directory of their metrics' files.
        step: told what the first one's start is doing.
    """

    settings: ServerSettings
    created: int
    shares_engine: bool
    spawn: Callable[[], Awaitable[WorkerProcess]]
    admission: LocalAdmission
    metrics: Path
    step: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _End:
    """How a worker's life ended, in words, and what it said was wrong."""

    how: str
    reason: str = ""
    served: bool = False


class Workers:
    """All slots."""

    def __init__(self, plan: WorkersPlan) -> None:
        self._plan = plan
        self._living: dict[int, WorkerProcess] = {}
        self._away: set[int] = set()
        self._engine: EngineAddress | None = None
        self._stopping = False
        self._facts: Mapping[str, str] = {}
        self._all_ready = asyncio.Event()

    async def all_ready(self) -> Mapping[str, str]:
        """Returns when each slot has a worker that serves: what that is."""
        await self._all_ready.wait()
        return self._facts

    def share(self, engine: EngineAddress) -> None:
        """The engine can be reached."""
        self._engine = engine
        for slot, worker in self._living.items():
            worker.tell(EngineReady(engine.of_worker(slot)))

    def engine_away(self, reason: str) -> None:
        """There is none until `share` is called again: who starts meanwhile waits for it."""
        self._engine = None
        for worker in self._living.values():
            worker.tell(EngineAway(reason))

    def stop(self) -> list[WorkerProcess]:
        """From here on none is started again. Returns those that live."""
        self._stopping = True
        return list(self._living.values())

    async def keep(self, slot: int) -> None:
        """Keep the slot filled until `stop`, or until its workers do not start.

        Raises:
            StartError: one could not start before all had been ready.
        """
        failures, wait = 0, 0.0
        while not self._stopping:
            began = time.monotonic()
            end = await self._live(slot)
            if self._stopping:
                return
            if not self._all_ready.is_set():
                raise StartError(end.reason or f"at the start worker {slot} {end.how}")
            failures = 0 if end.served else failures + 1
            if failures == GIVE_UP_AFTER:
                log.critical("worker %d does not start: %s; the others go on without it", slot, end.reason or end.how)
                return
            if end.served and time.monotonic() - began > STEADY_SECONDS:
                wait = 0.0
            log.error("worker %d %s: %s", slot, end.how, _intention(wait, end.reason))
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait or 1.0)

    async def _live(self, slot: int) -> _End:
        """One worker's life."""
        try:
            worker = await self._plan.spawn()
        except OSError as error:
            return _End(f"could not be started ({error.strerror})")
        self._living[slot] = worker
        try:
            reason = await self._attend(slot, worker)
            how = await worker.ended()
        finally:
            self._left(slot, worker)
        return _End(f"(process {worker.pid}) ended with {how}", reason, worker.served)

    async def _attend(self, slot: int, worker: WorkerProcess) -> str:
        """Do what the worker asks for until it is gone. Returns what it says was wrong."""
        plan = self._plan
        first = slot == 0 and not self._all_ready.is_set()
        worker.tell(Job(plan.settings, slot, plan.created, first, plan.shares_engine, _metrics_name(slot)))
        if self._engine is not None:
            worker.tell(EngineReady(self._engine.of_worker(slot)))
        places = PlacesOfWorker(plan.admission, worker.tell)
        pulse = Pulse(partial(self._hangs, slot, worker))
        reason = ""
        try:
            async for message in worker.messages():
                match message:
                    case Enter(request, caller):
                        places.enter(request, caller)
                    case Leave(request):
                        places.leave(request)
                    case Step(text):
                        plan.step(text)
                    case Ready(facts):
                        self._came(slot, worker, facts)
                        pulse.begin()
                    case Beat(tokens):
                        pulse.beat()
                        if tokens:
                            self._heard(worker)
                    case Closing():
                        pulse.end()
                        self._away_from(slot, worker)
                    case Failed(reason):
                        pass
        finally:
            pulse.end()
            places.close()
        return reason

    def _hangs(self, slot: int, worker: WorkerProcess) -> None:
        seconds = LOOK_SECONDS * SILENT_LOOKS
        log.error("worker %d (process %d) hangs: no sign of life for %g seconds", slot, worker.pid, seconds)
        worker.signal(signal.SIGKILL)

    def _heard(self, worker: WorkerProcess) -> None:
        """The engine makes tokens: the others need not ask it."""
        for other in self._ready():
            if other is not worker:
                other.tell(Heard())

    def _came(self, slot: int, worker: WorkerProcess, facts: Mapping[str, str]) -> None:
        worker.ready = worker.served = True
        if self._all_ready.is_set():
            log.info("worker %d (process %d) serves", slot, worker.pid)
        self._away.discard(slot)
        for other in self._ready():
            other.tell(Release(slot))
        for away in self._away:
            worker.tell(Adopt(away))
        self._facts = facts
        if len(self._ready()) == self._plan.settings.workers:
            self._all_ready.set()

    def _left(self, slot: int, worker: WorkerProcess) -> None:
        del self._living[slot]
        mark_process_dead(_metrics_name(slot), str(self._plan.metrics))  # type: ignore[no-untyped-call]
        self._away_from(slot, worker)

    def _away_from(self, slot: int, worker: WorkerProcess) -> None:
        """The worker accepts no connections of its slot any longer."""
        worker.ready = False
        if self._stopping or slot in self._away or not self._all_ready.is_set():
            return
        self._away.add(slot)
        for other in self._ready():
            other.tell(Adopt(slot))

    def _ready(self) -> list[WorkerProcess]:
        return [worker for worker in self._living.values() if worker.ready]


def _metrics_name(slot: int) -> str:
    """A slot's, not a process's: else each restart would leave files behind. Servers may share the directory."""
    return f"{os.getpid()}-{slot}"


def _intention(wait: float, reason: str) -> str:
    again = f"starting it again in {wait:g} seconds" if wait else "starting it again"
    return f"{reason}; {again}" if reason else again
