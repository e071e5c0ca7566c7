"""What an engine is asked for, and what becomes of its answer, from the HTTP request to the engine's own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paraserve.engines.base import EngineError, EngineRequest
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.vllm.engine import VLLMEngine
from tests.api.wire import CHAT, COMPLETIONS, chunks, folded, frames, post, unfolded
from tests.toy import client, deployment, engine, reply

TAGS = frozenset({"json_schema", "json_object", "regex", "ebnf", "structural_tag"})
SCHEMA = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}
WANTED = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
ON, OFF = {"chat_template_kwargs": {"thinking": True}}, {"chat_template_kwargs": {"thinking": False}}


def sglang(request: EngineRequest) -> dict[str, Any]:
    return SGLangEngine("http://engine", ModelFacts(1000)).body(request)


def vllm(request: EngineRequest) -> dict[str, Any]:
    return VLLMEngine("http://engine", ModelFacts(1000)).body(request)


async def asked(path: str = CHAT, *, text: str = "Hello.", **fields: Any) -> EngineRequest:
    """What the engine was asked, by a whole request and by a stream alike but for their names."""
    scripted = engine(reply(text), constraints=TAGS)
    async with client(deployment(scripted)) as http:
        for stream in (False, True):
            assert (await post(http, path, stream=stream, **fields)).status_code == 200
    whole, streamed = scripted.requests
    assert sglang(whole) | {"rid": ""} == sglang(streamed) | {"rid": ""}
    return whole


async def test_the_engine_s_reasoning_flag_follows_the_prompt_and_not_the_endpoint() -> None:
    """Else the engine counts no reasoning, or takes plain text for it."""
    assert sglang(await asked(**ON))["require_reasoning"]
    assert not sglang(await asked(**OFF))["require_reasoning"]
    assert sglang(await asked(COMPLETIONS, prompt="<|user|>hi<|assistant|>\n<think>"))["require_reasoning"]
    assert not sglang(await asked(COMPLETIONS, prompt="<|user|>hi<|assistant|>\n<think></think>"))["require_reasoning"]


async def both(text: str, **fields: Any) -> dict[str, Any]:
    """The only choice of a reply, the same streamed and whole."""
    async with client(deployment(engine(reply(text), constraints=TAGS))) as http:
        whole = unfolded((await post(http, **fields)).json())[0]
        streamed = folded(chunks((await post(http, stream=True, **fields)).text))[0]
    for call in [*whole["tool_calls"], *streamed["tool_calls"]]:
        call.pop("id")
    assert whole == streamed
    return whole


async def test_a_schema_beside_tools_leaves_the_model_both_ways() -> None:
    """A schema alone would keep the model from calling: the grammar has the call in it as well."""
    fields = {"response_format": WANTED, "tools": [WEATHER], **OFF}
    constraint = (await asked(**fields)).constraint
    assert constraint is not None
    assert "get_weather" in constraint.value
    assert "temp" in constraint.value
    called = await both(CALL, **fields)
    assert (called["tool_calls"], called["content"]) == (
        [{"name": "get_weather", "arguments": '{"city": "Oslo"}'}],
        "",
    )
    assert (await both('{"temp": 1}', **fields))["content"] == '{"temp": 1}'


async def test_without_thinking_a_schema_holds_from_the_first_token_and_its_json_is_content() -> None:
    """An engine that waits for the end of a thought would enforce nothing, and the JSON would be reasoning."""
    request = await asked(response_format=WANTED, **OFF)
    assert not sglang(request)["require_reasoning"]
    assert vllm(request)["reasoning_ended"]
    assert "</think>" not in json.dumps(vllm(request)["sampling_params"]["structured_outputs"])
    message = await both('{"temp": 1}', response_format=WANTED, **OFF)
    assert (message["content"], message["reasoning_content"]) == ('{"temp": 1}', "")


def flat(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a sequence, those of the sequences in it among them."""
    return [part for item in node["elements"] for part in flat(item)] if node["type"] == "sequence" else [node]


@pytest.mark.parametrize("wanted", [WANTED, {"type": "json_object"}], ids=lambda wanted: wanted["type"])
async def test_with_thinking_the_reasoning_is_free_and_the_json_comes_after_its_end(wanted: dict[str, Any]) -> None:
    """The grammar itself has the end of the reasoning in it: the engine applies it from the first token and needs no
    parser of its own, no thought is forced into JSON, and thinking stays on."""
    request = await asked(response_format=wanted, **ON)
    assert sglang(request)["require_reasoning"] is False
    assert vllm(request)["reasoning_ended"] is True
    free, end, *content = flat(json.loads(sglang(request)["sampling_params"]["structural_tag"])["format"])
    assert free["type"] == "any_text"
    assert end == {"type": "const_string", "value": "</think>"}
    assert content
    message = await both('hm</think>\n{"temp": 1}', response_format=wanted, **ON)
    assert (message["reasoning_content"], json.loads(message["content"])) == ("hm", {"temp": 1})


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
async def test_an_engine_that_fails_where_the_reasoning_ends_is_an_error_in_both_modes(choice: Any) -> None:
    """A forced call behind a thought crashes some engines at the boundary; it must not read as an empty reply."""
    crash = EngineError(502, "engine_error", "The engine failed (500).")
    scripted = engine(reply("hm</think>never", error=crash, error_after=len("hm") + 1), constraints=TAGS)
    async with client(deployment(scripted)) as http:
        fields = {"tools": [WEATHER], "tool_choice": choice, **ON}
        whole = await post(http, **fields)
        assert (whole.status_code, whole.json()["error"]["code"]) == (502, "engine_error")
        *parts, last = map(json.loads, frames((await post(http, stream=True, **fields)).text))
    assert folded(parts)[0]["reasoning_content"] == "hm"
    assert last["error"]["code"] == "engine_error"
    assert all("</think>" in sglang(request)["sampling_params"]["structural_tag"] for request in scripted.requests)


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#/$defs/unknown"}}},
        {
            "type": "json_schema",
            "json_schema": {"schema": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}},
        },
    ],
    ids=["no schema", "unknown $ref", "no value"],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_schema_that_cannot_be_served_is_the_client_s_400(
    path: str, stream: bool, wanted: dict[str, Any]
) -> None:
    """It was a 500, or a reply that the schema did not bind."""
    scripted = engine(constraints=TAGS)
    async with client(deployment(scripted)) as http:
        answer = await post(http, path, response_format=wanted, stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("response_format")
    assert scripted.requests == []


@pytest.mark.parametrize(
    "spelling",
    [
        {"type": "json_object", "schema": SCHEMA},
        {"type": "json_schema", "schema": SCHEMA},
        {"type": "json_schema", "schema": SCHEMA, "name": "a", "strict": True},
        {"type": "json_object", "json_schema": {"schema": SCHEMA}},
    ],
    ids=["llama.cpp", "flat", "Responses API", "nested under json_object"],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_schema_is_obeyed_wherever_it_is_written(path: str, spelling: dict[str, Any]) -> None:
    usual = await asked(path, response_format=WANTED)
    assert usual.constraint is not None
    assert (await asked(path, response_format=spelling)).constraint == usual.constraint


async def test_a_json_object_of_any_schema_is_still_an_object() -> None:
    plain = await asked(response_format={"type": "json_object"})
    assert plain.constraint == (await asked(response_format={"type": "json_object", "schema": {}})).constraint


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "text", "schema": SCHEMA},
        {"type": "text", "json_schema": {"schema": SCHEMA}},
        {"type": "json_object", "value": SCHEMA},
        {"type": "json_object", "pattern": "a+"},
        {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "schema": {"type": "null"}},
        {"type": "json_object", "schema": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2}},
    ],
    ids=["text", "text, nested", "unknown name", "a pattern", "two schemas", "no value"],
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_no_constraint_within_response_format_is_dropped(path: str, wanted: dict[str, Any]) -> None:
    scripted = engine(constraints=TAGS)
    async with client(deployment(scripted)) as http:
        answer = await post(http, path, response_format=wanted)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
    assert scripted.requests == []


async def test_strict_holds_beside_the_function_as_well() -> None:
    within = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    requests = [await asked(tools=[tool]) for tool in (within, {**WEATHER, "strict": True})]
    assert requests[0].constraint is not None
    assert requests[0].constraint == requests[1].constraint


@pytest.mark.parametrize("name", ["input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema"])
@pytest.mark.parametrize("level", ["tools[0]", "tools[0].function"])
async def test_a_schema_of_arguments_by_another_name_is_no_tool_without_arguments(name: str, level: str) -> None:
    function: dict[str, Any] = {"name": "f"}
    tool: dict[str, Any] = {"type": "function", "function": function}
    (function if level.endswith("function") else tool)[name] = {"type": "object", "properties": {"a": {}}}
    scripted = engine(constraints=TAGS)
    async with client(deployment(scripted)) as http:
        answer = await post(http, tools=[tool])
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"{level}.{name}")
        function["parameters"] = {"type": "object"}
        assert (await post(http, tools=[tool])).status_code == 200, "what is read says what it takes"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("seeds", "fields", "named"),
    [
        (False, {"seed": 7}, "seed_not_used"),
        (False, {"seed": 7, "temperature": 0}, None),
        (False, {}, None),
        (True, {"seed": 7}, None),
    ],
)
async def test_a_seed_that_the_engine_does_not_read_is_named(
    path: str, stream: bool, seeds: bool, fields: dict[str, Any], named: str | None
) -> None:
    """SGLang samples by seeds only where it runs deterministically; a greedy reply repeats without one."""
    asked = {**fields, **({"prompt": "hi"} if path == COMPLETIONS else {})}
    async with client(deployment(engine(seeds=seeds))) as http:
        response = await post(http, path, stream=stream, **asked)
        assert (await http.get("/server_info")).json()["engine"]["seeds"] is seeds
    assert response.status_code == 200
    assert response.headers.get("x-paraserve-normalizations") == named
