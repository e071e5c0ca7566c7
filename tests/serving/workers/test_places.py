"""One count of places for several processes: whatever crosses or dies, a place is given once and given back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from paraserve.admission import AdmissionLimits, LocalAdmission
from paraserve.protocol.errors import RequestError
from paraserve.serving.workers.channel import Enter, Leave, Placed, Refused
from paraserve.serving.workers.places import PlacesOfWorker, SharedAdmission
from tests.waiting import until


class Line:
    """A worker and its supervisor, whose messages take a turn of the loop or more to arrive, in order."""

    def __init__(self, shared: LocalAdmission, delay: Callable[[], float] = lambda: 0.0) -> None:
        self._delay = delay
        self._up: asyncio.Queue[Enter | Leave] = asyncio.Queue()
        self._down: asyncio.Queue[Placed | Refused] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()
        """Whether answers reach the worker."""
        self.worker = SharedAdmission(self._up.put_nowait)
        self.places = PlacesOfWorker(shared, self._down.put_nowait)
        self._tasks = [asyncio.create_task(self._carry_up()), asyncio.create_task(self._carry_down())]

    async def _carry_up(self) -> None:
        while True:
            message = await self._up.get()
            await asyncio.sleep(self._delay())
            if isinstance(message, Enter):
                self.places.enter(message.request, message.caller)
            else:
                self.places.leave(message.request)

    async def _carry_down(self) -> None:
        while True:
            message = await self._down.get()
            await asyncio.sleep(self._delay())
            await self.open.wait()
            self.worker.answer(message)

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.places.close()


def count(**limits: float) -> LocalAdmission:
    return LocalAdmission(AdmissionLimits(**({"running": 1, "queued": 10, "timeout": 5} | limits)))


async def settled(shared: LocalAdmission, running: int = 0, waiting: int = 0) -> None:
    """Wait until as many run and wait."""
    await until(lambda: (shared.running, shared.waiting) == (running, waiting))


async def test_a_place_that_one_worker_gives_back_goes_to_another() -> None:
    shared = count()
    one, two = Line(shared), Line(shared)
    leave = await one.worker.enter(None)
    waiting = asyncio.create_task(two.worker.enter(None))
    await settled(shared, 1, 1)
    leave()
    (await waiting)()
    await settled(shared)
    one.cut()
    two.cut()


async def test_a_refusal_reaches_the_client_as_it_would_from_a_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda least, _most: least)  # what Retry-After is drawn by
    shared = count(queued=0)
    line = Line(shared)
    await line.worker.enter(None)
    with pytest.raises(RequestError) as refused:
        await line.worker.enter(None)
    with pytest.raises(RequestError) as alone:
        await shared.enter(None)
    assert vars(refused.value) == vars(alone.value)
    assert (refused.value.status, refused.value.headers) == (alone.value.status, alone.value.headers)
    line.cut()


async def test_a_client_that_leaves_while_its_place_is_on_the_way_gives_it_back() -> None:
    shared = count()
    line = Line(shared)
    line.open.clear()
    asking = asyncio.create_task(line.worker.enter(None))
    await settled(shared, running=1)  # given, and not told yet
    asking.cancel()
    await asyncio.wait({asking})
    line.open.set()
    await settled(shared)
    line.cut()


async def test_a_worker_that_dies_gives_back_what_it_had_and_what_it_waited_for() -> None:
    shared = count(running=2)
    dying, other = Line(shared), Line(shared)
    for _ in range(2):
        await dying.worker.enter(b"key")
    lost = [asyncio.create_task(dying.worker.enter(b"key")) for _ in range(3)]
    waiting = asyncio.create_task(other.worker.enter(None))
    await settled(shared, running=2, waiting=4)
    dying.cut()
    (await waiting)()
    await settled(shared)
    for task in lost:
        task.cancel()
    other.cut()


@pytest.mark.parametrize("seed", range(20))
async def test_after_any_course_of_events_nothing_is_left_and_the_limit_was_kept(seed: int) -> None:
    chance = random.Random(seed)
    shared = count(running=2, queued=4, timeout=0.01, key_running=1, key_queued=1)
    lines = [Line(shared, delay=lambda: chance.choice((0.0, 0.0, 0.001))) for _ in range(2)]
    together = most = 0

    async def one() -> None:
        nonlocal together, most
        try:
            leave = await chance.choice(lines).worker.enter(chance.choice((b"a", b"b", None)))
        except RequestError:
            return
        together += 1
        most = max(most, together)
        try:
            await asyncio.sleep(chance.random() / 200)
        finally:
            together -= 1
            leave()

    tasks = []
    for _ in range(60):
        tasks.append(asyncio.create_task(one()))
        await asyncio.sleep(chance.random() / 1000)
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
    await asyncio.wait(tasks)
    await settled(shared)
    assert most <= 2
    await until(lambda: not any(line.worker._asked or line.places._held or line.places._waiting for line in lines))
    for line in lines:
        line.cut()
