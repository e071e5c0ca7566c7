"""Errors: one shape, a true status, on every route and for every cause."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paraserve.engines.base import EngineError
from tests.api.wire import CHAT, COMPLETIONS, USER, frames, post
from tests.toy import client, deployment, engine, reply

BOTH = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
MODES = pytest.mark.parametrize("stream", [False, True])
DOWN = EngineError(502, "engine_error", "The engine failed.")


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert response.headers["content-type"] == "application/json"
    return body["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "endpoint_not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
        ("GET", "/v1/models/", 404, "endpoint_not_found"),
        ("POST", CHAT + "/", 404, "endpoint_not_found"),
    ],
)
async def test_wrong_paths_and_methods_have_the_same_shape(method: str, path: str, status: int, code: str) -> None:
    async with client(deployment(engine())) as http:
        response = await http.request(method, path)
    assert response.status_code == status
    assert error_of(response)["code"] == code
    assert ("allow" in response.headers) == (status == 405)


@BOTH
@MODES
async def test_an_unknown_model_is_a_404_unless_the_operator_is_lenient(path: str, stream: bool) -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, path, model="gpt-9", stream=stream)
    assert response.status_code == 404
    error = error_of(response)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "gpt-9" in error["message"]
    async with client(deployment(engine(), allow_any_model=True)) as http:
        response = await post(http, path, model="gpt-9")
    assert response.json()["model"] == "gpt-9"


async def test_every_alias_is_served_and_no_model_means_the_first() -> None:
    async with client(deployment(engine(), served_model_name=("toy", "alias"))) as http:
        names = [card["id"] for card in (await http.get("/v1/models")).json()["data"]]
        assert names == ["toy", "alias"]
        for name in names:
            assert (await http.get(f"/v1/models/{name}")).json()["id"] == name
            assert (await post(http, model=name)).json()["model"] == name
        assert (await post(http)).json()["model"] == "toy"


@BOTH
@MODES
@pytest.mark.parametrize("longest", [None, 49, 101])
async def test_a_prompt_that_does_not_fit_is_a_400_with_both_numbers_before_the_engine(
    path: str, stream: bool, longest: int | None
) -> None:
    """Whether it is the context that has no room, or the engine that takes no prompt of its last places."""
    context = 110 if longest == 101 else 50
    scripted = engine(context_length=context, max_prompt_tokens=longest)
    long = {"messages": [{"role": "user", "content": "x" * 100}]} if path == CHAT else {"prompt": "x" * 102}
    async with client(deployment(scripted)) as http:
        response = await post(http, path, stream=stream, **long)
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == ("messages" if path == CHAT else "prompt")
    assert f"maximum context length is {context} tokens" in error["message"]
    assert "102 tokens" in error["message"]
    assert scripted.requests == []


@BOTH
async def test_an_exact_fit_is_served_and_one_more_is_not(path: str) -> None:
    async with client(deployment(engine(context_length=50))) as http:
        prompt = (await post(http, path, max_tokens=1)).json()["usage"]["prompt_tokens"]
        assert (await post(http, path, max_tokens=50 - prompt)).status_code == 200
        response = await post(http, path, max_tokens=51 - prompt)
    assert response.status_code == 400
    assert error_of(response)["param"] == "max_tokens"


@BOTH
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b"null", b'{"a":' * 2000])
async def test_a_body_that_is_no_request_is_a_400(path: str, body: bytes) -> None:
    async with client(deployment(engine())) as http:
        response = await http.post(path, content=body)
    assert response.status_code == 400
    assert error_of(response)["code"] in {"invalid_json", "invalid_value"}


async def test_a_body_that_is_too_large_is_a_413_of_its_own_code() -> None:
    async with client(deployment(engine(), max_body_size=1024)) as http:
        response = await post(http, user="x" * 2000)
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"


async def test_a_template_that_refuses_is_a_400_with_its_own_words() -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    async with client(deployment(engine(), template=template)) as http:
        response = await post(http, messages=USER + USER)
    assert response.status_code == 400
    error = error_of(response)
    assert "roles must alternate" in error["message"]
    assert error["param"] == "messages"


@BOTH
@pytest.mark.parametrize("failing", [{"error": DOWN}, {"error": DOWN, "error_after": 1}])
async def test_an_engine_failure_is_an_error_status_when_whole(path: str, failing: Any) -> None:
    async with client(deployment(engine(reply("abc", **failing)))) as http:
        response = await post(http, path)
    assert response.status_code == 502
    assert error_of(response)["code"] == "engine_error"


@BOTH
@pytest.mark.parametrize("n", [1, 2])
async def test_a_failure_in_a_stream_is_one_error_event_and_no_fake_end(path: str, n: int) -> None:
    scripted = engine(reply("abc", error=DOWN, error_after=1, delay=0.01))
    async with client(deployment(scripted)) as http:
        response = await post(http, path, stream=True, n=n)
    payloads = frames(response.text)
    assert payloads[-1].startswith('{"error":{"message":"The engine failed."')
    assert sum("error" in payload for payload in payloads) == 1
    assert "[DONE]" not in payloads
    assert not any('"finish_reason":"' in payload for payload in payloads)
    assert scripted.running == 0


@pytest.mark.parametrize("status", [429, 503])
async def test_overload_says_when_to_come_back(status: int) -> None:
    full = EngineError(status, "engine_overloaded", "Too many requests.")
    async with client(deployment(engine(reply("", error=full)))) as http:
        response = await post(http)
    assert response.status_code == status
    assert int(response.headers["retry-after"]) >= 1


async def test_a_bug_is_a_500_without_its_story(caplog: pytest.LogCaptureFixture) -> None:
    served = deployment(engine())
    object.__setattr__(served, "chat", object())
    async with client(served) as http:
        response = await post(http)
    assert response.status_code == 500
    assert error_of(response) == {
        "message": "The server failed to handle this request.",
        "type": "server_error",
        "param": None,
        "code": "internal_error",
    }
    assert "AttributeError" in caplog.text


async def test_a_bug_in_a_stream_is_an_error_event(caplog: pytest.LogCaptureFixture) -> None:
    scripted = engine(reply("abc"))
    served = deployment(scripted)
    object.__setattr__(served.vocabulary, "token_bytes", None)
    async with client(served) as http:
        response = await post(http, stream=True)
    assert frames(response.text)[-1].startswith('{"error":{"message":"The server failed')
    assert "failed after its head was sent" in caplog.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"min_tokens": 50, "max_tokens": 10}, "min_tokens"),
        ({"top_logprobs": 20, "logprobs": True}, "top_logprobs"),
        ({"regex": "a+"}, "regex"),
    ],
)
async def test_what_this_engine_cannot_do_is_named(fields: dict[str, Any], param: str) -> None:
    async with client(deployment(engine(max_logprobs=5, constraints=frozenset()))) as http:
        response = await post(http, **fields)
    assert response.status_code == 400
    assert error_of(response)["param"] == param
