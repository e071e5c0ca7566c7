"""What is handed on to an engine: within what engines take, and where it should run from callers who may say so."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest

from paraserve.api.app import create_app
from paraserve.api.trusted_callers import PEER, is_trusted
from paraserve.engines.base import EngineRequest
from paraserve.protocol.errors import RequestError
from paraserve.protocol.sampling import logit_bias_ids, stop_ids
from paraserve.serving.server import HTTPServer
from paraserve.settings import ServerSettings
from tests.api.wire import CHAT, COMPLETIONS, USER, post
from tests.toy import TOKENIZER, client, deployment, engine, reply
from tests.waiting import until

paths = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])


async def sent(path: str, headers: dict[str, str] | None = None, **fields: Any) -> EngineRequest | dict[str, Any]:
    """What the engine is asked, or the error."""
    scripted = engine()
    async with client(deployment(scripted, engine_fields_from="anyone", engine_extra_fields=("note",))) as http:
        http.headers.update(headers or {})
        answer = await post(http, path, **fields)
    if answer.status_code == 200:
        return scripted.requests[0]
    assert (answer.status_code, scripted.requests) == (400, [])
    error: dict[str, Any] = answer.json()["error"]
    return error


BOUNDS: dict[str, tuple[list[Any], list[Any]]] = {
    "priority": ([-(2**31), 2**31 - 1], [2**31, -(2**31) - 1, 10**30, 1.5, "1"]),
    "data_parallel_rank": ([0, 2**31 - 1], [-1, 2**31, 10**30]),
    "bootstrap_port": ([1, 65535], [0, -1, 65536, 10**30]),
    "bootstrap_room": ([0, 2**63 - 1], [-1, 2**63, 10**30]),
    "bootstrap_host": (["10.0.0.1", "[::1]", "prefill-0.svc"], ["", "a b", "http://a/", "a" * 300, "a\nb"]),
}


@paths
@pytest.mark.parametrize("name", BOUNDS)
async def test_what_is_handed_on_is_within_what_engines_take(path: str, name: str) -> None:
    good, bad = BOUNDS[name]
    for value in good:
        asked = await sent(path, **{name: value})
        assert isinstance(asked, EngineRequest)
        assert getattr(asked.routing, name) == value
    for value in bad:
        error = await sent(path, **{name: value})
        assert isinstance(error, dict), value
        assert (error["param"], error["code"]) == (name, "invalid_value")


@paths
async def test_stop_tokens_are_sent_once_each_and_no_more_than_an_engine_has_places_for(path: str) -> None:
    asked = await sent(path, stop_token_ids=[*range(128), 5, 5, 7])
    assert isinstance(asked, EngineRequest)
    assert asked.sampling.stop_token_ids == tuple(range(128))
    error = await sent(path, stop_token_ids=list(range(129)))
    assert isinstance(error, dict)
    assert (error["param"], error["code"]) == ("stop_token_ids", "invalid_value")


@paths
async def test_beside_min_tokens_the_models_own_end_tokens_take_places(path: str) -> None:
    ends = len(deployment(engine()).vocabulary.end_ids)
    fits = await sent(path, stop_token_ids=list(range(128 - ends)), min_tokens=1)
    assert isinstance(fits, EngineRequest)
    error = await sent(path, stop_token_ids=list(range(128)), min_tokens=1)
    assert isinstance(error, dict)
    assert error["param"] == "stop_token_ids"


def test_biases_are_no_more_than_an_engine_has_places_for() -> None:
    many = {str(token): 1.0 for token in range(1024)}
    assert len(logit_bias_ids(many, 5000)) == 1024
    assert len(logit_bias_ids({**many, "01": 2.0}, 5000)) == 1024, "a token that is named twice is one"
    with pytest.raises(RequestError, match="1024"):
        logit_bias_ids({**many, "4000": 1.0}, 5000)
    assert stop_ids(None, TOKENIZER.vocab_size) == ()


@paths
@pytest.mark.parametrize("rank", ["-1", "x", "1.0", "9" * 30, "١", ""])
async def test_a_rank_in_a_header_is_a_rank(path: str, rank: str) -> None:
    error = await sent(path, {"x-data-parallel-rank": rank.encode()})  # type: ignore[dict-item]
    assert isinstance(error, dict)
    assert error["param"] == "x-data-parallel-rank"


# --- who may say it ----------------------------------------------------------------------------------------------

SAID: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "data_parallel_rank": ({"data_parallel_rank": 1}, {}),
    "bootstrap_host": ({"bootstrap_host": "h"}, {}),
    "bootstrap_port": ({"bootstrap_port": 1}, {}),
    "bootstrap_room": ({"bootstrap_room": 0}, {}),
    "x-data-parallel-rank": ({}, {"x-data-parallel-rank": "1"}),
    "x-smg-routing-key": ({}, {"x-smg-routing-key": "k"}),
    "note": ({"note": {"a": 1}}, {}),
}


@paths
@pytest.mark.parametrize("said", SAID)
async def test_nobody_may_say_where_a_request_runs_unless_the_operator_names_them(path: str, said: str) -> None:
    fields, headers = SAID[said]
    scripted = engine()
    async with client(deployment(scripted, engine_extra_fields=("note",), engine_fields_key=("router",))) as http:
        http.headers.update(headers)
        for key, status in (("", 400), ("Bearer other", 400), ("Basic router", 400), ("Bearer router", 200)):
            http.headers["authorization"] = key
            answer = await post(http, path, **fields)
            assert answer.status_code == status, (key, answer.text)
            if status == 400:
                assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (said, "untrusted_caller")
        http.headers["authorization"] = ""
        for name in headers:
            del http.headers[name]
        assert (await post(http, path, **dict.fromkeys(fields))).status_code == 200, "null is unset"
    assert len(scripted.requests) == 2


async def test_the_key_of_a_router_opens_the_door_where_keys_are_asked_for() -> None:
    async with client(deployment(engine(), api_key=("client",), engine_fields_key=("router",))) as http:
        for key, status in (("client", 400), ("router", 200), ("other", 401)):
            http.headers["authorization"] = f"Bearer {key}"
            assert (await post(http, data_parallel_rank=1)).status_code == status
            assert (await post(http)).status_code == (401 if key == "other" else 200)


@pytest.mark.parametrize(
    ("settings", "peer", "key", "trusted"),
    [
        ({}, "127.0.0.1", "", False),
        ({"engine_fields_from": "proxies"}, "127.0.0.1", "", True),
        ({"engine_fields_from": "proxies"}, "::1", "", True),
        ({"engine_fields_from": "proxies"}, "::ffff:127.0.0.1", "", True),
        ({"engine_fields_from": "proxies"}, "10.0.0.1", "", False),
        ({"engine_fields_from": "proxies", "trusted_proxies": ("10.0.0.0/8",)}, "10.0.0.1", "", True),
        ({"engine_fields_from": "proxies", "trusted_proxies": ("*",)}, "192.0.2.1", "", True),
        ({"engine_fields_from": "proxies", "trusted_proxies": ("*",)}, "a socket's path", "", False),
        ({"engine_fields_from": "anyone"}, "192.0.2.1", "", True),
        ({"engine_fields_key": ("a", "b")}, "192.0.2.1", "b", True),
        ({"engine_fields_key": ("a", "b")}, "192.0.2.1", "c", False),
        ({"engine_fields_key": ("a",), "engine_fields_from": "proxies"}, "192.0.2.1", "a", True),
        ({"api_key": ("a",)}, "192.0.2.1", "a", False),
    ],
)
def test_whom_the_operator_names(settings: dict[str, Any], peer: str, key: str, trusted: bool) -> None:
    scope = {
        "type": "http",
        "headers": [(b"authorization", f"Bearer {key}".encode())],
        "client": ("127.0.0.1", 1),
        "state": {PEER: (peer, 1)},
    }
    assert is_trusted(scope, ServerSettings(**settings)) is trusted


@pytest.mark.parametrize(
    ("proxies", "says", "status"),
    [(("127.0.0.1",), "192.0.2.1", 200), (("10.0.0.0/8",), "10.0.0.1", 400)],
    ids=["of a proxy, for a client elsewhere", "of a client that says it is one"],
)
async def test_a_proxy_is_who_the_connection_is_from(proxies: tuple[str, ...], says: str, status: int) -> None:
    options = {"engine_fields_from": "proxies", "trusted_proxies": proxies}
    server = HTTPServer(
        create_app(deployment(engine(reply("Hello.")), **options)), ServerSettings(drain_timeout=0, **options), None
    )
    bound = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve([bound]))
    await until(lambda: server.started)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}") as http:
        body = json.dumps({"messages": USER, "data_parallel_rank": 1}).encode()
        answer = await http.post(CHAT, content=body, headers={"x-forwarded-for": says})
    server.should_exit = True
    await serving
    assert answer.status_code == status, answer.text
