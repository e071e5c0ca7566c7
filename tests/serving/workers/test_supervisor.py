"""From start to end of a server with workers, with processes that are only played."""

from __future__ import annotations

import asyncio
import io
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraserve.admission import AdmissionLimits, LocalAdmission
from paraserve.engines.base import EngineStartError
from paraserve.engines.child import EngineAddress, WireAddress
from paraserve.serving.listening import listen_together
from paraserve.serving.progress import Progress
from paraserve.serving.workers import slots
from paraserve.serving.workers.channel import Closing, EngineAway, EngineReady, Failed, Ready
from paraserve.serving.workers.slots import GIVE_UP_AFTER, WorkersPlan
from paraserve.serving.workers.supervisor import Supervisor
from paraserve.settings import ServerSettings
from tests.serving.workers.played import Played
from tests.waiting import PATIENCE, until

COUNT = 2


class PlayedEngine:
    def __init__(self) -> None:
        self.death = asyncio.Event()
        self.stopped = False
        self.failure: Exception | None = None

    address = EngineAddress(unix_socket="engine.sock")

    async def start(self, step: Any = None) -> EngineAddress:
        if self.failure is not None:
            raise self.failure
        self.death.clear()
        return self.address

    async def ended(self) -> str:
        await self.death.wait()
        return "signal SIGKILL"

    async def stop(self) -> None:
        self.stopped = True


class Run:
    """A supervisor that runs in a task."""

    def __init__(self, metrics: Path) -> None:
        self.came: list[Played] = []
        self.answers: list[Any] = [Ready({})]
        self.engine = PlayedEngine()
        self.sockets: list[socket.socket] = listen_together("127.0.0.1", 0, COUNT)
        plan = WorkersPlan(
            settings=ServerSettings(workers=COUNT, drain_timeout=5.0),
            created=1,
            shares_engine=True,
            spawn=self._spawn,
            admission=LocalAdmission(AdmissionLimits(running=0, queued=0, timeout=1)),
            metrics=metrics,
            step=lambda _: None,
        )
        self.supervisor = Supervisor(plan, self.sockets, self.engine, Progress(sys.stderr))

    def begin(self) -> asyncio.Task[int]:
        self.task = asyncio.create_task(self.supervisor.run())
        return self.task

    async def _spawn(self) -> Any:
        worker = Played()
        worker.say(*self.answers)
        self.came.append(worker)
        return worker


async def a_moment() -> None:
    for _ in range(20):
        await asyncio.sleep(0.002)


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setattr(slots, "LONGEST_WAIT", 0.0)
    made = Run(tmp_path)
    yield made
    made.supervisor._take_signal(signal.SIGTERM)
    await asyncio.wait({made.task})
    for listening in made.sockets:
        listening.close()


async def test_workers_are_told_of_the_engine_and_drained_before_it_is_stopped(run: Run) -> None:
    run.begin()
    await a_moment()
    for worker in run.came:
        assert EngineReady(EngineAddress(unix_socket="engine.sock")) in worker.told
    assert not run.engine.stopped
    run.supervisor._take_signal(signal.SIGTERM)
    assert await run.task == 0
    assert [worker.signals[0] for worker in run.came] == [signal.SIGTERM] * COUNT
    assert run.engine.stopped


async def test_each_worker_is_a_front_end_of_its_own_and_one_in_its_place_is_the_same(run: Run) -> None:
    run.engine.address = EngineAddress(wire=WireAddress("/sockets", facts={"version": "1"}))
    run.begin()

    def clients() -> list[int]:
        told = [word.engine.wire for worker in run.came for word in worker.told if isinstance(word, EngineReady)]
        assert all(wire is not None and wire.facts == {"version": "1"} for wire in told)
        return [wire.client for wire in told if wire is not None]

    await until(lambda: len(clients()) == COUNT)
    assert sorted(clients()) == [1, 2]
    died = clients()[0]
    run.came[0].die()
    await until(lambda: len(clients()) == COUNT + 1)
    assert clients()[-1] == died


async def test_when_no_worker_starts_any_longer_the_server_ends_whatever_the_engine_does(run: Run) -> None:
    run.begin()
    await a_moment()
    run.answers = [Failed("no keys"), None]
    for worker in run.came[:COUNT]:
        worker.die()
    async with asyncio.timeout(PATIENCE):
        assert await run.task == 1
    assert len(run.came) == COUNT + COUNT * GIVE_UP_AFTER
    assert run.engine.stopped


async def test_a_dead_engine_is_told_and_started_again_and_the_workers_stay(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.begin()
    await a_moment()
    with caplog.at_level(logging.ERROR):
        run.engine.death.set()
        await a_moment()
    assert "the engine's process has ended with signal SIGKILL: starting it again" in caplog.text
    assert not run.task.done()
    assert len(run.came) == COUNT
    for worker in run.came:
        assert [type(word) for word in worker.told if isinstance(word, EngineReady | EngineAway)] == [
            EngineReady,
            EngineAway,
            EngineReady,
        ]


async def test_a_dead_engine_that_is_not_to_be_started_again_ends_the_server(
    run: Run,
) -> None:
    written = io.StringIO()
    run.supervisor._progress = Progress(written)
    run.supervisor._plan = replace(run.supervisor._plan, settings=ServerSettings(workers=COUNT, engine_restart=False))
    run.begin()
    await a_moment()
    run.engine.death.set()
    assert await run.task == 1
    assert written.getvalue().splitlines()[-1] == "error: the engine's process has ended with signal SIGKILL"


async def test_an_engine_that_does_not_start_ends_the_start_and_the_workers(run: Run) -> None:
    run.engine.failure = EngineStartError("no such model")
    run.answers = []
    with pytest.raises(EngineStartError, match="no such model"):
        await run.begin()
    assert [worker.signals[0] for worker in run.came] == [signal.SIGKILL] * len(run.came)


async def test_a_worker_that_drains_already_is_let_to_end_its_replies(run: Run) -> None:
    run.begin()
    await a_moment()
    run.came[0].say(Closing())
    await a_moment()
    run.supervisor._take_signal(signal.SIGTERM)
    await run.task
    assert run.came[0].signals[0] == signal.SIGTERM
