"""Health, version, models, policies, request ids and keys."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from paraserve import __version__
from paraserve.api.system import TOKEN_SECONDS
from paraserve.engines.base import EngineError
from tests.api.wire import CHAT, COMPLETIONS, post
from tests.toy import client, deployment, engine, reply
from tests.waiting import until


async def test_health_is_the_process_and_health_generate_is_the_engine() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        assert (await http.get("/health")).status_code == 200
        assert scripted.requests == []
        assert (await http.get("/health_generate")).status_code == 200
        assert scripted.requests[0].sampling.max_tokens == 1
    down = EngineError(502, "engine_unreachable", "The engine is gone.")
    async with client(deployment(engine(reply("", error=down)))) as http:
        assert (await http.get("/health")).status_code == 200
        response = await http.get("/health_generate")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_unhealthy"


async def test_health_is_503_while_an_engine_that_the_server_looks_after_is_gone() -> None:
    served = deployment(engine())
    async with client(served) as http:
        served.availability.away = "the engine's process has ended with signal SIGKILL"
        response = await http.get("/health")
        assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unhealthy")
        assert "SIGKILL" in response.json()["error"]["message"]
        served.availability.away = ""
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("first_delay", [0.0, 0.5], ids=["while it makes tokens", "while it reads a prompt"])
async def test_health_generate_does_not_wait_behind_replies_that_run(first_delay: float) -> None:
    scripted = engine(reply("x" * 100, first_delay=first_delay, hang_after=1))
    scripted.capacity = 1
    async with client(deployment(scripted)) as http:
        running = asyncio.ensure_future(post(http))
        await until(lambda: scripted.running)
        assert (await http.get("/health_generate")).status_code == 200
        running.cancel()
        await asyncio.wait({running})
        asked = len(scripted.requests)
        assert (await http.get("/health_generate")).status_code == 200
        assert len(scripted.requests) == asked, "tokens of the last seconds are health"
        for other in (0.0, time.perf_counter() - 2 * TOKEN_SECONDS):
            http._transport.app.state.metrics._last_token = other  # type: ignore[attr-defined]
            assert (await http.get("/health_generate")).status_code == 200
        assert len(scripted.requests) == asked + 2


async def test_tokens_that_another_worker_has_seen_are_health() -> None:
    scripted = engine()
    served = deployment(scripted)
    served.availability.last_token = time.perf_counter()
    async with client(served) as http:
        assert (await http.get("/health_generate")).status_code == 200
    assert scripted.requests == []


async def test_health_is_503_while_the_engine_runs_another_model() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        scripted.stranger = "/models/other"
        response = await http.get("/health")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unhealthy")
    assert "/models" not in response.text


async def test_version_names_server_and_engine() -> None:
    async with client(deployment(engine())) as http:
        assert (await http.get("/version")).json() == {"version": __version__, "engine": "scripted"}


async def test_the_model_card_says_the_context_length() -> None:
    async with client(deployment(engine(), context_length=1000)) as http:
        card = (await http.get("/v1/models")).json()["data"][0]
    assert card["max_model_len"] == 1000


async def test_every_policy_is_listed_with_its_flag_and_state() -> None:
    async with client(deployment(engine(), openai_force_tool_choice_auto=True)) as http:
        states = (await http.get("/v1/policies")).json()["data"]
    by_flag = {state["flag"]: state for state in states}
    assert by_flag["--openai-force-tool-choice-auto"]["on"] is True
    assert by_flag["--openai-glm-compat"]["on"] is False
    assert all(state["summary"] for state in states)


async def test_request_ids_come_back_and_unsafe_ones_are_replaced() -> None:
    async with client(deployment(engine())) as http:
        assert (await http.get("/health", headers={"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
        made = (await http.get("/health")).headers["x-request-id"]
        assert len(made) == 32
        unsafe = (await http.get("/nope", headers={"x-request-id": "a" * 500})).headers["x-request-id"]
        assert len(unsafe) == 32


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer ", "Basic sesame", "sesame", "Bearer sesame2"])
async def test_without_the_key_everything_but_health_is_a_401(header: str | None) -> None:
    async with client(deployment(engine(), api_key=("sesame",))) as http:
        if header is not None:
            http.headers["authorization"] = header
        response = await post(http)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
        assert "sesame" not in response.text
        assert response.headers["www-authenticate"] == "Bearer"
        assert (await http.get("/v1/models")).status_code == 401
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("header", ["Bearer sesame", "bearer sesame"])
async def test_the_key_opens_the_door(header: str) -> None:
    async with client(deployment(engine(), api_key=("sesame",))) as http:
        response = await http.get("/v1/models", headers={"authorization": header})
    assert response.status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_fields_of_the_engine_go_through_by_name_and_others_are_named_in_the_log(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A field that nobody knows would be dropped without a word."""
    caplog.set_level(logging.DEBUG, logger="paraserve.api")
    fields = {"kv_transfer_params": {"a": 1}, "x_custom": 1, "top_k": 5}
    scripted = engine()
    async with client(
        deployment(scripted, engine_extra_fields=("kv_transfer_params",), engine_fields_from="anyone")
    ) as http:
        assert (await post(http, path, **fields)).status_code == 200
    assert scripted.requests[0].extras == {"kv_transfer_params": {"a": 1}}
    assert scripted.requests[0].sampling.top_k == 5
    assert "fields that no stage reads: x_custom" in caplog.text


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_routing_fields_and_headers_are_handed_on_and_never_made_up(path: str) -> None:
    fields = {"priority": 3, "data_parallel_rank": 1, "bootstrap_host": "h", "bootstrap_port": 2, "bootstrap_room": 7}
    fields["cache_salt"] = "s"
    scripted = engine()
    async with client(deployment(scripted, engine_fields_from="anyone")) as http:
        await post(http, path, **fields)
        http.headers["x-smg-routing-key"] = "k"
        await post(http, path)
    hinted, plain = (request.routing for request in scripted.requests)
    assert {name: getattr(hinted, name) for name in fields} == fields
    assert plain.priority is plain.bootstrap_room is None
    assert plain.headers["x-smg-routing-key"] == "k"
