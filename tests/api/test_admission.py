"""Overload (record 55): beyond its limits the server answers 503 before any stream begins, and nobody hangs."""

from __future__ import annotations

import asyncio

import pytest
from tests.api.wire import CHAT, COMPLETIONS, USER, LeavingClient, chunks, post
from tests.toy import client, deployment, engine, reply

from paraserve.api.admission import Admission
from paraserve.api.app import create_app
from paraserve.protocol.errors import RequestError


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_beyond_the_queue_requests_get_503_with_retry_after_and_the_others_are_served(
    path: str, stream: bool
) -> None:
    scripted = engine(reply("abc", first_delay=0.05))
    http = client(deployment(scripted, max_concurrent_requests=2, max_queued_requests=3))
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*(post(http, path, stream=stream) for _ in range(20)))
    refused = [answer for answer in answers if answer.status_code == 503]
    served = [answer for answer in answers if answer.status_code == 200]
    assert (len(served), len(refused)) == (5, 15)
    for answer in refused:
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == "overloaded"
    if stream:
        assert all(chunks(answer.text) for answer in served)
    assert scripted.most_running == 2
    assert scripted.running == 0


async def test_a_wait_in_the_queue_ends_at_the_timeout() -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted, max_concurrent_requests=1, queue_timeout=0.05))
    running = LeavingClient(app, CHAT, messages=USER, stream=True)
    await running.got.wait()
    waiting = LeavingClient(app, CHAT, messages=USER, stream=True)
    await asyncio.wait_for(waiting.task, 1)
    assert waiting.messages[0]["status"] == 503
    await running.leave()
    assert app.state.admission.running == 0


async def test_a_client_that_leaves_the_queue_frees_its_place() -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted, max_concurrent_requests=1, max_queued_requests=1))
    running = LeavingClient(app, CHAT, messages=USER, stream=True)
    await running.got.wait()
    waiting = LeavingClient(app, CHAT, messages=USER, stream=True)
    while not app.state.admission.waiting:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)
    await waiting.leave()
    assert app.state.admission.waiting == 0
    assert len(scripted.requests) == 1
    await running.leave()
    assert app.state.admission.running == 0


async def test_health_and_models_answer_while_nothing_else_can() -> None:
    scripted = engine(reply("abc", hang_after=1))
    served = deployment(scripted, max_concurrent_requests=1, max_queued_requests=0)
    app = create_app(served)
    running = LeavingClient(app, CHAT, messages=USER, stream=True)
    await running.got.wait()
    refused = LeavingClient(app, CHAT, messages=USER)
    await asyncio.wait_for(refused.task, 1)
    assert refused.messages[0]["status"] == 503
    http = client(served)
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/v1/models")).status_code == 200
    await running.leave()


async def test_places_are_given_in_the_order_of_arrival_and_never_lost() -> None:
    admission = Admission(running=1, queued=10, timeout=5)
    assert admission.enter_at_once()
    order: list[int] = []

    async def one(number: int) -> None:
        await admission.enter()
        order.append(number)
        admission.leave()

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    admission.leave()
    tasks[1].cancel()  # at the very moment at which it may have been given its place
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == sorted(order)
    assert {0, 3, 4, 5} <= set(order)
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_full_queue_refuses_at_once() -> None:
    admission = Admission(running=1, queued=0, timeout=60)
    await admission.enter()
    with pytest.raises(RequestError) as refused:
        await admission.enter()
    assert refused.value.status == 503
