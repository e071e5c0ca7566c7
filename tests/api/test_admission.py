"""Overload: beyond its limits the server answers 503 before any stream begins, and nobody hangs."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from paraserve.admission import AdmissionLimits, LocalAdmission
from paraserve.api.app import create_app
from paraserve.protocol.errors import RequestError
from tests.api.wire import CHAT, COMPLETIONS, USER, LeavingClient, chunks, post
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE, until


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_beyond_the_queue_requests_get_503_with_retry_after_and_the_others_are_served(
    path: str, stream: bool
) -> None:
    scripted = engine(reply("abc", first_delay=0.3))
    http = client(deployment(scripted, max_concurrent_requests=2, max_queued_requests=3))
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*(post(http, path, stream=stream) for _ in range(20)))
    refused = [answer for answer in answers if answer.status_code == 503]
    served = [answer for answer in answers if answer.status_code == 200]
    assert (len(served), len(refused)) == (5, 15)
    for answer in refused:
        assert int(answer.headers["retry-after"]) in range(2, 5)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json()["error"]["code"] == "overloaded"
    if stream:
        assert all(chunks(answer.text) for answer in served)
    assert scripted.most_running == 2
    assert scripted.running == 0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("limited", ["server", "key"])
async def test_a_request_that_finds_the_queue_full_is_not_prepared(
    path: str, limited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"server": {"max_concurrent_requests": 1}, "key": {"max_concurrent_requests_per_key": 1}}[limited]
    scripted = engine(reply("abc", hang_after=1))
    served = deployment(scripted, api_key=("sesame",), max_queued_requests=0, **limits)
    app = create_app(served)
    prepared: list[object] = []
    encode = served.tokenizer.encode
    monkeypatch.setattr(served.tokenizer, "encode", lambda *a, **k: prepared.append(a) or encode(*a, **k))
    transport = httpx.ASGITransport(app)
    headers = {"authorization": "Bearer sesame"}
    async with httpx.AsyncClient(transport=transport, base_url="http://toy", headers=headers) as http:
        running = asyncio.create_task(post(http, path))
        await until(lambda: scripted.running)
        assert len(prepared) == 1
        refused = await post(http, path)
        running.cancel()
        await asyncio.wait([running])
    assert refused.status_code == {"server": 503, "key": 429}[limited]
    assert refused.headers["retry-after"] in ("1", "2")
    assert len(prepared) == 1


async def test_a_wait_in_the_queue_ends_at_the_timeout() -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted, max_concurrent_requests=1, queue_timeout=0.05))
    running = LeavingClient(app, CHAT, messages=USER, stream=True)
    await running.got.wait()
    waiting = LeavingClient(app, CHAT, messages=USER, stream=True)
    await asyncio.wait_for(waiting.task, PATIENCE)
    assert waiting.messages[0]["status"] == 503
    await running.leave()
    assert app.state.admission.running == 0


async def test_a_client_that_leaves_the_queue_frees_its_place() -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted, max_concurrent_requests=1, max_queued_requests=1))
    running = LeavingClient(app, CHAT, messages=USER, stream=True)
    await running.got.wait()
    waiting = LeavingClient(app, CHAT, messages=USER, stream=True)
    await until(lambda: app.state.admission.waiting)
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
    await asyncio.wait_for(refused.task, PATIENCE)
    assert refused.messages[0]["status"] == 503
    http = client(served)
    assert (await http.get("/health")).status_code == 200
    assert (await http.get("/v1/models")).status_code == 200
    await running.leave()


def limits(**chosen: float) -> LocalAdmission:
    return LocalAdmission(AdmissionLimits(**({"running": 0, "queued": 10, "timeout": 5} | chosen)))


async def test_places_are_given_in_the_order_of_arrival_and_never_lost() -> None:
    admission = limits(running=1)
    first = admission.enter_at_once(None)
    assert first is not None
    order: list[int] = []

    async def one(number: int) -> None:
        leave = await admission.enter(None)
        order.append(number)
        leave()

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    first()
    tasks[1].cancel()  # at the very moment at which it may have been given its place
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == sorted(order)
    assert {0, 3, 4, 5} <= set(order)
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_full_queue_refuses_at_once() -> None:
    admission = limits(running=1, queued=0, timeout=60)
    await admission.enter(None)
    with pytest.raises(RequestError) as refused:
        await admission.enter(None)
    assert refused.value.status == 503


async def ask(http: httpx.AsyncClient, key: str, path: str, *, stream: bool) -> httpx.Response:
    body = {"messages": USER, "stream": stream} if path == CHAT else {"prompt": "hi", "stream": stream}
    return await http.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_key_beyond_its_limit_gets_429_before_any_stream_and_other_keys_are_served(
    path: str, stream: bool
) -> None:
    scripted = engine(reply("abc", first_delay=0.3))
    served = deployment(
        scripted, api_key=("sesame", "thyme"), max_concurrent_requests_per_key=2, max_queued_requests_per_key=1
    )
    http = client(served)
    async with asyncio.timeout(PATIENCE):
        greedy = [ask(http, "sesame", path, stream=stream) for _ in range(10)]
        modest = [ask(http, "thyme", path, stream=stream) for _ in range(2)]
        answers = await asyncio.gather(*greedy, *modest)
    assert [answer.status_code for answer in answers[10:]] == [200, 200]
    refused = [answer for answer in answers[:10] if answer.status_code == 429]
    assert len(refused) == 7
    for answer in refused:
        assert answer.headers["retry-after"] in ("1", "2")
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    again = await ask(http, "sesame", path, stream=stream)
    assert again.status_code == 200
    shown = (await http.get("/metrics")).text
    assert 'paraserve_request_errors_total{code="rate_limit_exceeded"} 7.0' in shown
    assert "sesame" not in shown


async def test_a_key_that_waits_for_itself_holds_up_nobody_else() -> None:
    admission = limits(running=2, key_running=1, key_queued=5)
    first = await admission.enter(b"greedy")
    waiting = [asyncio.create_task(admission.enter(b"greedy")) for _ in range(3)]
    await asyncio.sleep(0)
    other = admission.enter_at_once(b"modest")
    assert other is not None
    late = asyncio.create_task(admission.enter(b"third"))
    await asyncio.sleep(0)
    other()  # the free place goes past those whose key has no room
    (await late)()
    first()
    for task in waiting:
        (await task)()
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_key_within_its_limit_waits_for_the_server_like_everybody() -> None:
    admission = limits(running=1, key_running=1)
    first = await admission.enter(b"one")
    waiting = asyncio.create_task(admission.enter(b"two"))
    await asyncio.sleep(0)
    assert admission.waiting == 1
    with pytest.raises(RequestError) as refused:
        await admission.enter(b"two")
    assert refused.value.status == 429
    first()
    (await waiting)()


@pytest.mark.parametrize(("running", "status"), [(1, 503), (0, 429)])
async def test_a_wait_that_was_too_long_says_for_what_it_was(running: int, status: int) -> None:
    admission = limits(running=running, timeout=0.01, key_running=1, key_queued=1)
    await admission.enter(b"one")
    with pytest.raises(RequestError) as refused:
        await admission.enter(b"two" if running else b"one")
    assert refused.value.status == status


async def test_of_keys_that_have_left_nothing_is_kept() -> None:
    admission = limits(running=1, key_running=1, key_queued=1)
    for number in range(100):
        (await admission.enter(b"%d" % number))()
    first = await admission.enter(b"a")
    waiting = asyncio.create_task(admission.enter(b"b"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    first()
    assert not admission._running_of
    assert not admission._waiting_of


async def refusals(running: int, waiting: int, *, key: bytes | None = None) -> list[int]:
    """What fifty are told who find ``running`` places of one second taken and ``waiting`` before them."""
    limits = AdmissionLimits(running=running, queued=waiting, timeout=60)
    if key is not None:
        limits = AdmissionLimits(running=0, queued=100, timeout=60, key_running=running, key_queued=waiting)
    admission = LocalAdmission(limits)
    for _ in range(running):
        assert admission.enter_at_once(key) is not None
    queue = [asyncio.create_task(admission.enter(key)) for _ in range(waiting)]
    await asyncio.sleep(0)
    told = []
    for _ in range(50):
        with pytest.raises(RequestError) as refused:
            admission.check(key)
        told.append(int(refused.value.headers["retry-after"]))
    for task in queue:
        task.cancel()
    await asyncio.gather(*queue, return_exceptions=True)
    return told


@pytest.mark.parametrize("key", [None, b"sesame"], ids=["server", "key"])
async def test_who_is_refused_is_told_to_come_when_the_queue_has_gone_and_not_all_at_once(key: bytes | None) -> None:
    none, some, many = [await refusals(4, waiting, key=key) for waiting in (0, 39, 79)]
    assert set(none) <= {1, 2}
    assert min(some) >= 10 > max(none)
    assert max(some) <= 20 <= min(many)
    assert len(set(some)) > 1
    assert max(await refusals(1, 90, key=key)) <= 120, "nobody is sent away for longer"
