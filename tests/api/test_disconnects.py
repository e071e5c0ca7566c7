"""A client that leaves aborts its generation at once, and what a stream does while nothing comes."""

from __future__ import annotations

import asyncio

import pytest

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from paraserve.engines.scripted.engine import ScriptedEngine
from tests.api.wire import CHAT, COMPLETIONS, USER, LeavingClient, frames, post
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE, until

ENDPOINTS = pytest.mark.parametrize(
    ("path", "fields"), [(CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "hi"})], ids=["chat", "completions"]
)


async def until_running(scripted: ScriptedEngine, count: int) -> None:
    await until(lambda: len(scripted.requests) >= count)


@ENDPOINTS
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("preflight", [False, True])
async def test_leaving_before_the_first_token_aborts(
    path: str, fields: dict[str, object], stream: bool, n: int, preflight: bool
) -> None:
    scripted = engine(reply("abc", hang_after=0))
    app = create_app(deployment(scripted, openai_streaming_error_preflight=preflight))
    leaving = LeavingClient(app, path, stream=stream, n=n, **fields)
    await until_running(scripted, n)
    await leaving.leave()
    assert sorted(scripted.aborted) == sorted(request.request_id for request in scripted.requests)
    assert len(scripted.aborted) == n
    assert scripted.running == 0


@ENDPOINTS
@pytest.mark.parametrize("n", [1, 3])
async def test_leaving_in_mid_stream_aborts(path: str, fields: dict[str, object], n: int) -> None:
    scripted = engine(reply("abc", hang_after=2))
    leaving = LeavingClient(create_app(deployment(scripted)), path, stream=True, n=n, **fields)
    await until_running(scripted, n)
    await asyncio.wait_for(leaving.got.wait(), PATIENCE)
    await leaving.leave()
    assert len(scripted.aborted) == n
    assert scripted.running == 0


@ENDPOINTS
async def test_leaving_while_queued_aborts(path: str, fields: dict[str, object]) -> None:
    scripted = engine(reply("abc", hang_after=0))
    scripted.capacity = 1
    app = create_app(deployment(scripted))
    running = LeavingClient(app, path, stream=True, **fields)
    await until_running(scripted, 1)
    queued = LeavingClient(app, path, stream=True, **fields)
    await until_running(scripted, 2)
    await queued.leave()
    assert scripted.aborted == [scripted.requests[1].request_id]
    await running.leave()
    assert scripted.running == 0


async def test_a_failed_choice_ends_the_others() -> None:
    down = EngineError(502, "engine_error", "The engine failed.")
    scripted = engine(reply("", error=down, first_delay=0.02), reply("abc", hang_after=1))
    async with client(deployment(scripted)) as http:
        assert (await post(http, n=2)).status_code == 502
    assert scripted.running == 0


async def test_the_head_of_a_stream_goes_out_at_once_by_default() -> None:
    scripted = engine(reply("abc", hang_after=0))
    leaving = LeavingClient(create_app(deployment(scripted)), CHAT, stream=True, messages=USER)
    await until_running(scripted, 1)
    await until(lambda: leaving.messages)
    assert [message["type"] for message in leaving.messages] == ["http.response.start"]
    await leaving.leave()


async def test_silence_is_filled_with_comments_between_whole_frames() -> None:
    for said in (0, 1):
        app = create_app(deployment(engine(reply("ab", hang_after=said)), stream_comment_interval=0.01))
        silent = LeavingClient(app, CHAT, stream=True, messages=USER)
        await until(lambda: silent.body.endswith(b": keep-alive\n\n" * 3))  # noqa: B023 - it is awaited here
        await silent.leave()
        assert all(": keep-alive" not in frame for frame in frames(silent.body.decode()))
    async with client(deployment(engine(reply("ab", first_delay=0.2)), stream_comment_interval=0.05)) as http:
        assert frames((await post(http, stream=True)).text)[-1] == "[DONE]"
    async with client(deployment(engine(reply("ab", first_delay=0.2)))) as http:
        assert ": keep-alive" not in (await post(http, stream=True)).text


async def test_a_server_that_stops_tells_the_streams_that_it_breaks_off() -> None:
    scripted = engine(reply("abc", hang_after=1))
    leaving = LeavingClient(create_app(deployment(scripted)), CHAT, stream=True, messages=USER)
    await asyncio.wait_for(leaving.got.wait(), PATIENCE)
    leaving.task.cancel()
    await asyncio.wait({leaving.task}, timeout=PATIENCE)
    assert '"code":"server_stopping"' in frames(leaving.body.decode())[-1]
    assert scripted.running == 0
    assert leaving.messages[-1]["more_body"] is False


@ENDPOINTS
@pytest.mark.parametrize("mode", [{"stream": False}, {"stream": True, "preflight": True}])
async def test_a_server_that_stops_answers_those_who_have_nothing_yet(
    path: str, fields: dict[str, object], mode: dict[str, bool]
) -> None:
    scripted = engine(reply("abc", hang_after=0))
    app = create_app(deployment(scripted, openai_streaming_error_preflight=mode.get("preflight", False)))
    leaving = LeavingClient(app, path, stream=mode["stream"], **fields)
    await until_running(scripted, 1)
    leaving.task.cancel()
    await asyncio.wait({leaving.task}, timeout=PATIENCE)
    assert leaving.messages[0]["status"] == 503
    assert b'"code":"server_stopping"' in leaving.messages[1]["body"]
    assert scripted.running == 0
