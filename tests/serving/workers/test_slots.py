"""Keeping workers alive: what a supervisor does when one dies, with processes that are only played."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paraserve.admission import AdmissionLimits, LocalAdmission
from paraserve.serving.workers import pulse
from paraserve.serving.workers.channel import Adopt, Beat, Closing, Enter, Failed, Heard, Ready, Release
from paraserve.serving.workers.slots import GIVE_UP_AFTER, LONGEST_WAIT, Workers, WorkersPlan
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError
from tests.serving.workers.played import Played
from tests.waiting import PATIENCE


class House:
    """A supervisor's workers; those that come are in ``came``, in order."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
        self.came: list[Played] = []
        self.waits: list[float] = []
        self.answers: list[Any] = []
        self.admission = LocalAdmission(AdmissionLimits(running=1, queued=0, timeout=1))
        settings = ServerSettings(workers=count)
        self.workers = Workers(
            WorkersPlan(
                settings=settings,
                created=1,
                shares_engine=False,
                spawn=self._spawn,
                admission=self.admission,
                metrics=tmp_path,
                step=lambda _: None,
            )
        )
        sleep = asyncio.sleep

        async def no_wait(seconds: float) -> None:
            self.waits.append(seconds)
            await sleep(0)

        monkeypatch.setattr("paraserve.serving.workers.slots.asyncio.sleep", no_wait)
        self._sleep = sleep
        self.tasks = [asyncio.create_task(self.workers.keep(slot)) for slot in range(count)]

    async def turn(self) -> None:
        """Until what was said has had all its effects: in turns of the event loop, not in time alone."""
        for _ in range(20):
            await self._sleep(0.0005)

    async def _spawn(self) -> Any:
        worker = Played()
        worker.say(*self.answers)
        self.came.append(worker)
        return worker

    async def until_ready(self) -> None:
        await self.turn()
        for worker in self.came:
            worker.say(Ready({}))
        await self.workers.all_ready()

    async def close(self) -> None:
        self.workers.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    made = House(tmp_path, monkeypatch)
    yield made
    await made.close()


async def test_connections_of_a_dead_worker_are_accepted_by_the_others_until_the_next_one_serves(house: House) -> None:
    await house.until_ready()
    first, second = house.came
    first.die()
    await house.turn()
    assert second.told[-1] == Adopt(0)
    house.came[2].say(Ready({}))
    await house.turn()
    assert second.told[-1] == Release(0)
    assert house.came[2].told[-1] == Release(0)


async def test_a_worker_that_drains_by_itself_is_stood_in_for_at_once(house: House) -> None:
    await house.until_ready()
    first, second = house.came
    first.say(Closing())
    await house.turn()
    assert second.told[-1] == Adopt(0)
    assert len(house.came) == 2
    first.die()
    await house.turn()
    assert second.told.count(Adopt(0)) == 1
    assert len(house.came) == 3


async def test_one_that_starts_while_another_is_away_stands_in_for_it(house: House) -> None:
    await house.until_ready()
    for worker in house.came[:2]:
        worker.die()
    await house.turn()
    house.came[2].say(Ready({}))
    await house.turn()
    assert house.came[2].told[-1] == Adopt(1)


async def test_a_worker_whose_event_loop_stops_is_killed_and_replaced(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pulse, "LOOK_SECONDS", 0.02)
    await house.until_ready()
    first, second = house.came
    async with asyncio.timeout(PATIENCE):
        while not first.signals:
            second.say(Beat(False))
            await house.turn()
    assert first.signals == [signal.SIGKILL]
    assert second.signals == []
    await house.turn()
    assert len(house.came) == 3
    assert "worker 0" in caplog.text
    assert "hangs" in caplog.text


async def test_a_worker_that_drains_or_has_not_begun_owes_no_sign_of_life(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "LOOK_SECONDS", 0.005)
    await house.turn()
    for worker in house.came:
        worker.say(Ready({}), Closing())
    for _ in range(10):
        await house.turn()
    assert [worker.signals for worker in house.came] == [[], []]


async def test_tokens_of_one_worker_are_told_to_the_others(house: House) -> None:
    await house.until_ready()
    first, second = house.came
    first.say(Beat(True), Beat(False))
    await house.turn()
    assert second.told.count(Heard()) == 1
    assert Heard() not in first.told


async def test_what_a_dead_worker_had_is_free(house: House) -> None:
    await house.until_ready()
    house.came[0].say(Enter(1, None))
    await house.turn()
    assert house.admission.running == 1
    house.came[0].die()
    await house.turn()
    assert house.admission.running == 0


async def test_restarts_wait_longer_each_time_within_a_bound(house: House) -> None:
    await house.until_ready()
    house.answers = [Ready({})]
    for _ in range(8):
        house.came[-1].die()
        await house.turn()
    waits = house.waits
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_WAIT


async def test_a_worker_that_does_not_start_is_given_up_after_some_attempts(house: House) -> None:
    await house.until_ready()
    house.answers = [Failed("no keys"), None]
    house.came[0].die()
    await house.turn()
    assert house.tasks[0].done()
    assert house.tasks[0].exception() is None
    assert len(house.came) == 2 + GIVE_UP_AFTER
    assert not house.tasks[1].done()


async def test_a_process_that_cannot_be_made_counts_as_one_that_did_not_start(house: House) -> None:
    await house.until_ready()

    async def refuse() -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    house.workers._plan = dataclasses.replace(house.workers._plan, spawn=refuse)
    house.came[0].die()
    await house.turn()
    assert house.tasks[0].done()
    assert house.tasks[0].exception() is None


async def test_a_failure_before_all_were_ready_ends_the_start(house: House) -> None:
    await house.turn()
    house.came[1].say(Failed("the port is gone"), None)
    await house.turn()
    with pytest.raises(StartError, match="the port is gone"):
        house.tasks[1].result()


async def test_after_the_stop_none_is_started_again(house: House) -> None:
    await house.until_ready()
    house.workers.stop()
    for worker in list(house.came):
        worker.die()
    await house.turn()
    assert len(house.came) == 2
    assert all(task.done() for task in house.tasks)
