"""What each kind of request leaves in the metrics, at the wire."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.observability.event_loop import watch_event_loop
from paraserve.protocol.errors import RequestError
from tests.api.wire import CHAT, COMPLETIONS, USER, LeavingClient, post
from tests.observability.scrape import scrape, scrape_app
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE, until

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
ENDPOINTS = pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
DOWN = EngineError(502, "engine_unreachable", "The engine cannot be reached.")
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "ls", "arguments": {"a": 1}}</tool_call>'


def word(flag: bool) -> str:
    return "true" if flag else "false"


async def until_running(scripted: ScriptedEngine, count: int) -> None:
    await until(lambda: scripted.running >= count)


@MODES
@ENDPOINTS
async def test_a_request_counts_once_by_endpoint_model_status_and_stream(path: str, stream: bool) -> None:
    async with client(deployment(engine())) as http:
        await post(http, path, stream=stream)
        seen = await scrape(http)
    assert seen.value("requests_total", endpoint=path, model="toy", status="200", stream=word(stream)) == 1
    assert seen.value("requests_total", endpoint=path) == 1
    assert seen.value("request_errors_total") == 0


@MODES
@ENDPOINTS
async def test_tokens_are_counted_alike_whole_and_streamed(path: str, stream: bool) -> None:
    scripted = engine(reply("<think>ab</think>cde", cached_tokens=2))
    async with client(deployment(scripted)) as http:
        whole = (await post(http, path, n=2, max_tokens=50)).json()["usage"]
        first = await scrape(http)
        await post(http, path, n=2, max_tokens=50, stream=stream)
        seen = await scrape(http)
    for name, count in (
        ("prompt_tokens_total", whole["prompt_tokens"]),
        ("completion_tokens_total", whole["completion_tokens"]),
        ("reasoning_tokens_total", whole["reasoning_tokens"]),
        ("cached_prompt_tokens_total", 2),
        ("request_prompt_tokens_sum", whole["prompt_tokens"]),
        ("request_completion_tokens_sum", whole["completion_tokens"]),
    ):
        assert first.value(name, endpoint=path, model="toy") == count, name
        assert seen.value(name, endpoint=path, model="toy") == 2 * count, name
    assert whole["reasoning_tokens"] > 0


@MODES
async def test_times_have_one_observation_a_request_and_one_gap_between_tokens(stream: bool) -> None:
    # 12 tokens in chunks of 3: 9 tokens have a token before them in another chunk.
    scripted = engine(reply("x" * 12, end=False, chunk_sizes=(3,), first_delay=0.03, delay=0.02))
    async with client(deployment(scripted)) as http:
        await post(http, stream=stream)
        seen = await scrape(http)
    where = {"endpoint": CHAT, "model": "toy"}
    for name in ("time_to_first_token", "request_duration", "prompt_preparation", "engine"):
        assert seen.value(f"{name}_seconds_count", **where) == 1
    assert seen.value("inter_token_latency_seconds_count", **where) == 9
    first, engine_time = (seen.value(f"{name}_seconds_sum") for name in ("time_to_first_token", "engine"))
    assert 0 < seen.value("inter_token_latency_seconds_sum", **where) < engine_time
    assert 0 < first < engine_time <= seen.value("request_duration_seconds_sum")
    assert 0 < seen.value("prompt_preparation_seconds_sum") < seen.value("request_duration_seconds_sum")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"n": "two"}, "400", "invalid_value"),
        ({"stream_options": {}}, "400", "invalid_value"),
        ({"messages": USER, "max_tokens": 100_000}, "400", "context_length_exceeded"),
        ({"model": "nobody"}, "404", "model_not_found"),
    ],
)
async def test_refusals_count_by_status_and_by_code(fields: dict[str, Any], status: str, code: str) -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, **fields)
        seen = await scrape(http)
    assert response.status_code == int(status)
    assert seen.value("requests_total", endpoint=CHAT, status=status) == 1
    assert response.json()["error"]["code"] == code
    assert seen.value("request_errors_total", code=code) == seen.value("request_errors_total") == 1
    assert seen.value("completion_tokens_total") == seen.value("aborts_total") == 0


async def test_an_error_without_a_code_counts_by_its_status() -> None:
    class Refusing:
        def prepare(self, request: object, **options: object) -> None:
            raise RequestError("no", status=418)

    served = deployment(engine())
    object.__setattr__(served, "chat", Refusing())
    async with client(served) as http:
        response = await post(http)
        seen = await scrape(http)
    assert (response.status_code, response.json()["error"]["code"]) == (418, None)
    assert seen.value("request_errors_total", code="status_418") == 1


async def test_the_wait_for_a_place_is_seen_while_it_lasts_and_timed_after() -> None:
    scripted = engine(reply("abc", hang_after=1), reply("abc"))
    app = create_app(deployment(scripted, max_concurrent_requests=1))
    first = LeavingClient(app, CHAT, messages=USER)
    second = LeavingClient(app, CHAT, messages=USER)
    await until(lambda: scrape_app(app).value("requests_queued") == 1)
    await asyncio.sleep(0.02)
    await first.leave()
    await asyncio.wait_for(second.task, PATIENCE)
    seen = scrape_app(app)
    assert seen.value("requests_queued") == 0
    assert seen.value("queue_seconds_count", endpoint=CHAT) == 2
    assert seen.value("queue_seconds_sum", endpoint=CHAT) > 0.01


async def test_a_request_that_nobody_may_make_counts_as_well() -> None:
    async with client(deployment(engine(), api_key=("sesame",))) as http:
        await post(http)
        seen = await scrape(http)
    assert seen.value("requests_total", endpoint=CHAT, status="401", model="none") == 1
    assert seen.value("request_errors_total", code="invalid_api_key") == 1


@MODES
@pytest.mark.parametrize("after", [0, 2])
async def test_an_engine_failure_counts_with_its_own_status_even_within_a_stream(stream: bool, after: int) -> None:
    scripted = engine(reply("abc", error=DOWN, error_after=after))
    async with client(deployment(scripted)) as http:
        response = await post(http, stream=stream)
        seen = await scrape(http)
    assert response.status_code == (200 if stream else 502)
    assert seen.value("requests_total", status="502", stream=word(stream)) == 1
    assert seen.value("requests_total", endpoint=CHAT, status="200") == 0
    assert seen.value("request_errors_total", code="engine_unreachable") == 1
    assert seen.value("engine_errors_total", code="engine_unreachable") == 1
    assert seen.value("aborts_total", cause="engine_failed") == seen.value("aborts_total") == 1
    assert seen.value("completion_tokens_total") == after
    assert seen.value("request_duration_seconds_count") == 0


@MODES
@ENDPOINTS
@pytest.mark.parametrize("preflight", [False, True])
async def test_a_client_that_leaves_aborts_and_counts_as_499(path: str, stream: bool, preflight: bool) -> None:
    scripted = engine(reply("abc", hang_after=0))
    app = create_app(deployment(scripted, openai_streaming_error_preflight=preflight))
    default = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    leaving = LeavingClient(app, path, stream=stream, n=2, **default)
    await until_running(scripted, 2)
    assert scrape_app(app).value("requests_in_flight", endpoint=path) == 1
    await leaving.leave()
    seen = scrape_app(app)
    assert seen.value("requests_in_flight") == 0
    assert seen.value("requests_total", status="499", endpoint=path, stream=word(stream)) == 1
    assert seen.value("aborts_total", cause="client_left") == seen.value("aborts_total") == 2
    assert seen.value("prompt_tokens_total") == 0


@MODES
async def test_replies_that_the_stop_of_the_server_breaks_off_count_as_503(stream: bool) -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted))
    leaving = LeavingClient(app, CHAT, stream=stream, messages=USER)
    await until_running(scripted, 1)
    leaving.task.cancel()
    await asyncio.wait({leaving.task}, timeout=PATIENCE)
    seen = scrape_app(app)
    assert seen.value("requests_total", status="503", stream=word(stream)) == 1
    assert seen.value("aborts_total", cause="server_stopping") == seen.value("aborts_total") == 1
    assert seen.value("request_errors_total", code="server_stopping") == 1


@MODES
async def test_a_stop_string_breaks_off_the_generation(stream: bool) -> None:
    async with client(deployment(engine(reply("one two three")))) as http:
        await post(http, stream=stream, stop=["two"])
        seen = await scrape(http)
    assert seen.value("aborts_total", cause="stop_string") == seen.value("aborts_total") == 1
    assert seen.value("finish_reasons_total", reason="stop") == 1
    assert seen.value("requests_total", endpoint=CHAT, status="200") == 1


@MODES
async def test_finish_reasons_count_by_choice(stream: bool) -> None:
    scripted = engine(reply("abc"), reply("abcdef"), reply(CALL))
    async with client(deployment(scripted)) as http:
        await post(http, stream=stream, n=2, max_tokens=4)
        await post(http, stream=stream, tools=[TOOL])
        seen = await scrape(http)
    counts = {reason: seen.value("finish_reasons_total", reason=reason) for reason in ("stop", "length", "tool_calls")}
    assert counts == {"stop": 1, "length": 1, "tool_calls": 1}


@MODES
async def test_calls_count_and_so_does_what_only_looked_like_one(stream: bool) -> None:
    unread = '<tool_call>{"name": "ls", "arguments": {"a": }}</tool_call>'
    scripted = engine(reply(CALL + CALL), reply(CALL + unread), reply(CALL.replace("ls", "rm")))
    async with client(deployment(scripted)) as http:
        for _ in scripted.replies:
            await post(http, stream=stream, tools=[TOOL])
        seen = await scrape(http)
    assert seen.value("tool_calls_total", model="toy") == 3
    assert seen.value("broken_tool_calls_total", model="toy") == 2


@MODES
@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("<think>hm</think>", 1),
        ("<think>hm</think>\n\n", 1),
        ("<think>hm", 1),
        ("<think>hm</think>yes", 0),
        ("<think>hm</think>" + CALL, 0),
        ("yes", 0),
        ("", 0),
    ],
)
async def test_a_turn_of_nothing_but_thinking_counts(stream: bool, text: str, counted: int) -> None:
    async with client(deployment(engine(reply(text)))) as http:
        await post(http, stream=stream, tools=[TOOL])
        seen = await scrape(http)
    assert seen.value("thinking_only_replies_total", model="toy") == counted


@MODES
@ENDPOINTS
async def test_tokens_of_a_reply_that_runs_are_counted_at_the_scrape_and_once(path: str, stream: bool) -> None:
    scripted = engine(reply("<think>abc", hang_after=4))
    app = create_app(deployment(scripted))
    default = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    leaving = LeavingClient(app, path, stream=stream, **default)
    await until_running(scripted, 1)
    await until(lambda: scrape_app(app).value("completion_tokens_total") == 4)
    for _ in range(2):
        seen = scrape_app(app)
        assert seen.value("completion_tokens_total") == 4
        assert seen.value("reasoning_tokens_total") == 4
        assert seen.value("inter_token_latency_seconds_count") == 3
    await leaving.leave()
    seen = scrape_app(app)
    assert seen.value("completion_tokens_total") == 4
    assert seen.value("inter_token_latency_seconds_count") == 3
    assert seen.value("prompt_tokens_total") > 0


async def test_a_bug_counts_as_500_and_its_answer_has_the_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    served = deployment(engine())
    monkeypatch.setattr(type(served.constraints), "asked", lambda *_: 1 / 0)
    async with client(served) as http:
        response = await http.post(CHAT, json={"messages": USER}, headers={"x-request-id": "abc"})
        seen = await scrape(http)
    assert response.status_code == 500
    assert response.headers["x-request-id"] == "abc"
    assert seen.value("requests_total", endpoint=CHAT, status="500") == 1
    assert seen.value("request_errors_total", code="internal_error") == 1


async def test_a_bug_within_a_stream_counts_as_500(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paraserve.api.encoders.chat.ChatStream.encode", lambda *_: 1 / 0)
    async with client(deployment(engine())) as http:
        response = await post(http, stream=True)
        seen = await scrape(http)
    assert response.status_code == 200
    assert '"code":"internal_error"' in response.text
    assert seen.value("requests_total", endpoint=CHAT, status="500", stream="true") == 1


async def test_labels_are_bounded_whatever_clients_send() -> None:
    async with client(deployment(engine(), served_model_name=("toy", "alias"), allow_any_model=True)) as http:
        for i in range(5):
            await post(http, model=f"made-up-{i}")
            await http.get(f"/nowhere/{i}")
            await http.get(f"/v1/models/made-up-{i}")
            await http.request("BREW", CHAT)
        await post(http, model="alias")
        await post(http, model="")
        await post(http)
        seen = await scrape(http)
    assert seen.labels("requests_total", "model") == {"toy", "alias", "other", "none"}
    assert seen.labels("requests_total", "endpoint") == {CHAT, "/v1/models/{model:path}", "other"}
    assert seen.value("requests_total", model="other") == 5


async def test_endpoints_keep_their_names_behind_a_root_path() -> None:
    async with client(deployment(engine(), root_path="/llm")) as http:
        await post(http, "/llm" + CHAT, messages=USER)
        await post(http)
        seen = await scrape(http)
    assert seen.value("requests_total", endpoint=CHAT, status="200") == 2


async def test_a_blocked_event_loop_shows_as_lag() -> None:
    app = create_app(deployment(engine()))
    watch = asyncio.ensure_future(watch_event_loop(app.state.metrics, interval=0.01))
    await asyncio.sleep(0.005)
    time.sleep(0.06)  # noqa: ASYNC251 - the fault that the metric is for
    await until(lambda: scrape_app(app).value("event_loop_lag_seconds_sum") > 0.03)
    watch.cancel()
    assert scrape_app(app).value("event_loop_lag_seconds_count") >= 1


@pytest.mark.parametrize(("opened", "status"), [(True, 200), (False, 401)])
async def test_scrapers_need_the_key_where_the_operator_says_so(opened: bool, status: int) -> None:
    async with client(deployment(engine(), api_key=("sesame",), open_metrics=opened)) as http:
        assert (await http.get("/metrics")).status_code == status
        assert (await http.get("/metrics", headers={"authorization": "Bearer sesame"})).status_code == 200


async def test_the_text_format_is_the_one_that_the_scraper_asks_for() -> None:
    async with client(deployment(engine())) as http:
        plain = await http.get("/metrics")
        modern = await http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert modern.text.endswith("# EOF\n")
