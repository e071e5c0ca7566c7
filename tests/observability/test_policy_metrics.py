"""``paraserve_policy_applied_total``: the policies of the response header, whatever became of the request."""

from __future__ import annotations

import asyncio

import pytest

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from paraserve.observability.metrics import policy_label
from tests.api.wire import CHAT, USER, LeavingClient, post
from tests.observability.scrape import scrape, scrape_app
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE, until

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
FORCED = {"tools": TOOLS, "tool_choice": "required"}
NAME = "force-tool-choice-auto"


@MODES
async def test_served_requests_count(stream: bool) -> None:
    async with client(deployment(engine(), openai_force_tool_choice_auto=True)) as http:
        response = await post(http, stream=stream, **FORCED)
        await post(http, stream=stream)
        seen = await scrape(http)
    assert response.headers["x-paraserve-policies"] == NAME
    assert seen.value("policy_applied_total", policy=NAME) == seen.value("policy_applied_total") == 1


@MODES
async def test_requests_that_fail_count(stream: bool) -> None:
    down = EngineError(502, "engine_error", "The engine failed.")
    async with client(deployment(engine(reply("", error=down)), openai_force_tool_choice_auto=True)) as http:
        await post(http, stream=stream, **FORCED)
        seen = await scrape(http)
    assert seen.value("policy_applied_total", policy=NAME) == 1


async def test_requests_that_a_later_stage_refuses_count() -> None:
    async with client(deployment(engine(), openai_force_tool_choice_auto=True)) as http:
        assert (await post(http, max_tokens=10**6, **FORCED)).status_code == 400
        seen = await scrape(http)
    assert seen.value("policy_applied_total", policy=NAME) == 1


async def test_requests_that_a_policy_refuses_count() -> None:
    settings = {"openai_kimi_compat": True, "openai_kimi_sampling": "reject"}
    async with client(deployment(engine(), model_path="models/kimi", **settings)) as http:
        assert (await post(http, temperature=0.123)).status_code == 400
        seen = await scrape(http)
    assert seen.value("policy_applied_total", policy="kimi-compat") == 1


@MODES
@pytest.mark.parametrize("stops", [False, True], ids=["left", "stopped"])
async def test_requests_that_nobody_saw_the_end_of_count(stream: bool, stops: bool) -> None:
    scripted = engine(reply("abc", hang_after=0))
    app = create_app(deployment(scripted, openai_force_tool_choice_auto=True))
    leaving = LeavingClient(app, CHAT, stream=stream, messages=USER, **FORCED)
    await until(lambda: scripted.running)
    if stops:
        leaving.task.cancel()
        await asyncio.wait({leaving.task}, timeout=PATIENCE)
    else:
        await leaving.leave()
    assert scrape_app(app).value("policy_applied_total", policy=NAME) == 1


async def test_policies_in_force_begin_at_zero_and_others_are_absent() -> None:
    async with client(deployment(engine(), openai_force_tool_choice_auto=True)) as http:
        text = (await http.get("/metrics")).text
    assert f'paraserve_policy_applied_total{{policy="{NAME}"}} 0.0' in text
    assert "glm-compat" not in text


@MODES
async def test_requests_are_told_apart_by_the_policies_that_changed_them(stream: bool) -> None:
    settings = {"openai_force_tool_choice_auto": True, "openai_chat_default_max_tokens": 10}
    async with client(deployment(engine(), **settings)) as http:
        await post(http, stream=stream, max_tokens=5)
        await post(http, stream=stream, max_tokens=5, **FORCED)
        await post(http, stream=stream, **FORCED)
        seen = await scrape(http)
    assert seen.labels("requests_total", "policy") == {"none", NAME, f"chat-default-max-tokens+{NAME}"}
    assert seen.value("requests_total", policy=NAME, status="200", endpoint=CHAT) == 1


async def test_a_request_that_a_policy_refuses_is_told_apart_by_it() -> None:
    settings = {"openai_kimi_compat": True, "openai_kimi_sampling": "reject"}
    async with client(deployment(engine(), model_path="models/kimi", **settings)) as http:
        await post(http, temperature=0.123)
        seen = await scrape(http)
    assert seen.value("requests_total", policy="kimi-compat", status="400") == 1


def test_the_order_in_which_policies_changed_a_request_makes_no_series_of_its_own() -> None:
    assert policy_label(["b", "a"]) == policy_label(["a", "b"]) == "a+b"
