"""The description of the API: valid, complete, and true of what the app answers."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import jsonschema
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from paraserve.api.endpoints import ENDPOINTS, Endpoint
from paraserve.api.openapi import STATUS_TEXTS, openapi_document
from paraserve.protocol.chunks import ChatCompletionChunk, CompletionChunk
from tests.api.wire import CHAT, COMPLETIONS, chunks, payloads
from tests.toy import client, deployment, engine, reply

CALL = reply('<think>Hm.</think><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>')
WITH_TOOL = {"tools": [{"type": "function", "function": {"name": "f"}}]}
STORED = ("{response_id}", "{conversation_id}")
SERVED_WITHOUT_BODY = [
    endpoint
    for endpoint in ENDPOINTS
    if endpoint.summary and endpoint.takes is None and not any(name in endpoint.path for name in STORED)
]
EXAMPLES = [(endpoint, name) for endpoint in ENDPOINTS for name in endpoint.examples]


def test_it_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(openapi_document(ENDPOINTS)).validate()


def test_every_status_exists_and_every_field_of_the_api_is_described() -> None:
    document = openapi_document(ENDPOINTS)
    statuses = {s for path in document["paths"].values() for op in path.values() for s in op["responses"]}
    assert statuses == {str(status) for status in STATUS_TEXTS}
    requests = [document["components"]["schemas"][name] for name in ("ChatCompletionRequest", "CompletionRequest")]
    described = {name for schema in requests for name, field in schema["properties"].items() if "description" in field}
    assert described >= {"model", "messages", "prompt", "tools", "tool_choice", "temperature", "top_logprobs", "echo"}


def test_what_is_not_described_is_a_page_for_people() -> None:
    assert [endpoint.path for endpoint in ENDPOINTS if not endpoint.summary] == ["/", "/docs", "/openapi.json"]


async def test_it_is_served_with_the_path_that_a_proxy_shows() -> None:
    async with client(deployment(engine(), root_path="/llm", api_key=("sesame",))) as http:
        document = (await http.get("/openapi.json")).json()
    assert document["servers"] == [{"url": "/llm"}]
    assert "sesame" not in json.dumps(document)


@pytest.mark.parametrize("shown", EXAMPLES, ids=lambda shown: f"{shown[0].path} {shown[1]}")
async def test_every_example_is_served(shown: tuple[Endpoint, str]) -> None:
    endpoint, name = shown
    async with client(deployment(engine(CALL))) as http:
        response = await http.post(endpoint.path, json=endpoint.examples[name])
    assert response.status_code == 200
    if endpoint.examples[name].get("stream"):
        for payload in payloads(response.text):
            msgspec.convert(payload, endpoint.stream)
    else:
        msgspec.convert(response.json(), endpoint.answer)


@pytest.mark.parametrize("endpoint", SERVED_WITHOUT_BODY, ids=lambda endpoint: endpoint.path)
async def test_every_answer_has_the_described_type(endpoint: Endpoint) -> None:
    async with client(deployment(engine())) as http:
        response = await http.get(endpoint.path.replace("{model:path}", "toy"))
    assert response.status_code == 200
    if isinstance(endpoint.answer, str):
        assert response.headers["content-type"].startswith(endpoint.answer)
    else:
        msgspec.convert(response.json(), endpoint.answer)


async def test_what_is_told_of_stored_things_has_the_described_type() -> None:
    found = [endpoint for endpoint in ENDPOINTS if any(name in endpoint.path for name in STORED)]
    assert len(found) == 7
    async with client(deployment(engine())) as http:
        ids = {
            "{response_id}": (await http.post("/v1/responses", json={"input": "hi"})).json()["id"],
            "{conversation_id}": (await http.post("/v1/conversations", json={})).json()["id"],
        }
        for endpoint in sorted(found, key=lambda endpoint: endpoint.method == "DELETE"):
            path = endpoint.path
            for name, id in ids.items():
                path = path.replace(name, id)
            response = await http.request(endpoint.method, path)
            assert response.status_code == 200, (endpoint.method, path)
            msgspec.convert(response.json(), endpoint.answer)


@pytest.mark.parametrize(
    ("path", "type_", "fields"),
    [
        (CHAT, ChatCompletionChunk, {**WITH_TOOL, "messages": [{"role": "user", "content": "hi"}]}),
        (CHAT, ChatCompletionChunk, {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "n": 2}),
        (COMPLETIONS, CompletionChunk, {"prompt": "hi", "logprobs": 2, "echo": True}),
    ],
)
@pytest.mark.parametrize("usage", ["include_usage", "continuous_usage_stats"])
@pytest.mark.parametrize("stream_usage", ["requested", "last-choice"])
async def test_events_have_the_described_fields_and_no_others(
    path: str, type_: type, fields: dict[str, Any], usage: str, stream_usage: str
) -> None:
    async with client(deployment(engine(CALL, CALL), openai_stream_usage=stream_usage)) as http:
        response = await http.post(path, json={**fields, "stream": True, "stream_options": {usage: True}})
    parts = chunks(response.text)
    assert len(parts) > 2
    for part in parts:
        assert json.loads(msgspec.json.encode(msgspec.convert(part, type_))) == part


async def test_the_pages_hold_their_own_script_and_style_and_nothing_from_outside() -> None:
    async with client(deployment(engine(), root_path='/a"b')) as http:
        for path in ("/docs", "/"):
            response = await http.get(path)
            assert response.status_code == 200
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", response.text)
            assert '<base href="/a&quot;b/">' in response.text
            assert " style=" not in response.text, "the policy would drop it"
            assert not re.search(r"<[^>]* on\w+=", response.text), "the policy would drop it"


async def test_the_playground_can_be_left_out() -> None:
    async with client(deployment(engine(), playground=False)) as http:
        assert (await http.get("/")).status_code == 404
        assert (await http.get("/docs")).status_code == 200


async def test_the_root_path_itself_leads_to_the_playground() -> None:
    async with client(deployment(engine(), root_path="/llm")) as http:
        http.follow_redirects = True
        response: httpx.Response = await http.get("/llm")
    assert response.status_code == 200
    assert "text/html" in response.headers["content-type"]


ABOUT_ITSELF = ("/server_info", "/version", "/health", "/health_generate", "/v1/policies", "/v1/models")
FREE = ".prompt.template_kwargs"


@pytest.mark.parametrize("path", ABOUT_ITSELF)
async def test_what_the_server_tells_about_itself_is_described_field_by_field(path: str) -> None:
    document = openapi_document(ENDPOINTS)
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    async with client(deployment(engine(media=frozenset({"image"})))) as http:
        answer = (await http.get(path)).json()
    whole = {"components": document["components"], **schema}
    jsonschema.validate(answer, whole)
    assert undescribed(answer, schema, document["components"]["schemas"]) == []


def undescribed(value: Any, schema: Any, components: Any, path: str = "") -> list[str]:
    """Paths of fields of an answer that its schema does not name, but for objects whose names are data."""
    if "$ref" in schema:
        return undescribed(value, components[schema["$ref"].rpartition("/")[2]], components, path)
    if "anyOf" in schema:
        found = [undescribed(value, each, components, path) for each in schema["anyOf"] if each.get("type") != "null"]
        return min(found, key=len)
    if isinstance(value, list):
        return [found for item in value for found in undescribed(item, schema["items"], components, f"{path}[]")]
    if isinstance(value, dict):
        others = schema.get("additionalProperties")
        if "properties" not in schema and not others:
            return [] if path == FREE else [path]
        named = {**dict.fromkeys(value, others), **schema.get("properties", {})} if others else schema["properties"]
        missing = [f"{path}.{name}" for name in value.keys() - named.keys()]
        return missing + [
            found
            for name in value.keys() & named.keys()
            for found in undescribed(value[name], named[name], components, f"{path}.{name}")
        ]
    return []
