"""OpenAI's Responses API at the wire: a stream that adds up to the whole response, and items that become the prompt."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from paraserve.api.sealed import Seal
from paraserve.engines.base import EngineError
from tests.api.responses_kit import accumulated, events, without_ids
from tests.api.wire import CHAT
from tests.toy import client, deployment, engine, reply

RESPONSES = "/v1/responses"
COUNT = "/v1/responses/input_tokens"
ROOM = {"type": "object", "properties": {"room": {"type": "string"}}}
LIST = {"type": "function", "name": "list", "parameters": ROOM}
SPACE = {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "wait", "parameters": ROOM}]}
PATCH = {"type": "custom", "name": "patch", "description": "Edit."}
MIXED = [LIST, SPACE, PATCH, {"type": "web_search", "external_web_access": True}]
HI = {"role": "user", "content": "hi"}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def post(http: httpx.AsyncClient, path: str = RESPONSES, **fields: Any) -> httpx.Response:
    return await http.post(path, json={"input": "hi", **fields})


async def both(
    replied: str, served: dict[str, Any] | None = None, sizes: tuple[int, ...] = (1,), **fields: Any
) -> dict[str, Any]:
    """The whole response, of which the stream is checked to be the same."""
    replies = [reply(replied, chunk_sizes=sizes), reply(replied)]
    async with client(deployment(engine(*replies), **(served or {}))) as http:
        streamed = await post(http, stream=True, **fields)
        whole = await post(http, **fields)
    assert whole.status_code == streamed.status_code == 200, whole.text
    body: dict[str, Any] = whole.json()
    assert without_ids(accumulated(events(streamed.text))) == without_ids(body)
    return body


ALL_KINDS = (
    "<think>Hm.</think>b" + call("list", room='a "b" ü') + "\n" + call("patch", input='x\n"é') + call("agents__wait")
)
THOUGHT = {"summary": "auto"}


@pytest.mark.parametrize("summaries", [{}, {"reasoning": THOUGHT}])
@pytest.mark.parametrize("sizes", [(1,), (2,), (3, 1), (7,), (1000,)])
async def test_a_stream_adds_up_to_the_whole_response(sizes: tuple[int, ...], summaries: dict[str, Any]) -> None:
    body = await both(ALL_KINDS, sizes=sizes, tools=MIXED, **summaries)
    kinds = [item["type"] for item in body["output"]]
    assert kinds == ["reasoning", "message", "function_call", "custom_tool_call", "function_call"]


async def test_items_have_their_shape() -> None:
    body = await both(ALL_KINDS, tools=MIXED, reasoning=THOUGHT)
    for place, item in enumerate(body["output"]):
        prefix = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_"}
        assert item.pop("id") == prefix[item["type"]] + body["id"].removeprefix("resp_") + f"{place:02x}"
        assert item.pop("status") == "completed"
        item.pop("call_id", None)
    assert body["output"] == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}],
        },
        {"type": "function_call", "name": "list", "arguments": '{"room": "a \\"b\\" \\u00fc"}'},
        {"type": "custom_tool_call", "name": "patch", "input": 'x\n"é'},
        {"type": "function_call", "name": "wait", "namespace": "agents", "arguments": "{}"},
    ]


async def test_what_was_asked_is_echoed_and_counted() -> None:
    asked = {"tools": MIXED, "instructions": "Be kind.", "metadata": {"a": "b"}, "max_output_tokens": 50}
    body = await both("<think>Hm.</think>Hi ü.", **asked, text={"verbosity": "low"})
    assert {name: body[name] for name in asked} == asked
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert (body["status"], body["error"], body["incomplete_details"]) == ("completed", None, None)
    usage = body["usage"]
    assert usage["output_tokens"] == 12
    assert usage["output_tokens_details"] == {"reasoning_tokens": 5}
    assert usage["total_tokens"] == usage["input_tokens"] + 12


@pytest.mark.parametrize(
    ("text", "fields", "kinds", "status"),
    [
        ("", {}, ["message"], "completed"),
        ("Hi there", {"max_output_tokens": 3}, ["message"], "incomplete"),
        ("<think>Hm. Hm.", {"max_output_tokens": 5}, ["reasoning"], "incomplete"),
        ("b" + call("list", room="a room"), {"max_output_tokens": 50}, ["message", "function_call"], "incomplete"),
        (call("patch", input="text"), {"max_output_tokens": 45}, ["custom_tool_call"], "incomplete"),
    ],
)
async def test_a_reply_that_was_cut_says_so_and_its_last_item_too(
    text: str, fields: dict[str, Any], kinds: list[str], status: str
) -> None:
    body = await both(text, tools=MIXED, **fields)
    assert [item["type"] for item in body["output"]] == kinds
    assert body["status"] == body["output"][-1]["status"] == status
    assert body["incomplete_details"] == (None if status == "completed" else {"reason": "max_output_tokens"})


async def test_a_limit_above_the_room_is_cut_to_it() -> None:
    async with client(deployment(engine(reply("x" * 5000, end=False), context_length=64))) as http:
        body = (await post(http, max_output_tokens=128_000)).json()
    assert (body["status"], body["usage"]["output_tokens"]) == ("incomplete", 60)


async def test_log_probabilities_are_those_of_the_texts_tokens() -> None:
    body = await both("<think>Hm.</think>Hi ü.", include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = body["output"][1]["content"][0]["logprobs"]
    assert bytes(byte for entry in logprobs for byte in entry["bytes"]).decode() == "Hi ü."
    assert all(len(entry["top_logprobs"]) == 2 for entry in logprobs)


async def test_text_format_is_enforced_as_a_response_format_is() -> None:
    scripted = engine(reply('{"room": "a"}'), reply('{"room": "a"}'))
    async with client(deployment(scripted)) as http:
        await post(http, text={"format": {"type": "json_schema", "name": "room", "schema": ROOM, "strict": True}})
        schema = {"name": "room", "schema": ROOM, "strict": True}
        response_format = {"type": "json_schema", "json_schema": schema}
        await http.post(CHAT, json={"messages": [HI], "response_format": response_format})
    ours, chats = scripted.requests
    assert ours.constraint == chats.constraint is not None


async def prompt_of(chat: dict[str, Any], served: dict[str, Any] | None = None, **fields: Any) -> httpx.Response:
    """The response to a body whose prompt is checked to be the one that a chat request makes."""
    scripted = engine(reply("ok"), reply("ok"))
    async with client(deployment(scripted, **(served or {}))) as http:
        response = await post(http, **fields)
        assert response.status_code == 200, response.text
        counted = await post(http, COUNT, **fields)
        assert (await http.post(CHAT, json=chat)).status_code == 200
    ours, chats = scripted.requests
    assert (ours.token_ids, ours.constraint) == (chats.token_ids, chats.constraint)
    assert counted.json() == {"object": "response.input_tokens", "input_tokens": len(ours.token_ids)}
    return response


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **fields}


def asked_for(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "list", "arguments": "{}", **fields}


def result(call_id: str, output: Any = "one") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def past_call(call_id: str, name: str = "list", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(call_id: str, content: str = "one") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def models(content: str | None, *calls: dict[str, Any], thought: str = "") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if thought:
        message["reasoning_content"] = thought
    return {**message, "tool_calls": list(calls)} if calls else message


FILE = {"type": "input_file", "filename": "n.txt"}
THINK = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SHOWS_THOUGHTS = """\
{%- for message in messages -%}
<|{{ message.role }}|>{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content or '' }}{% for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>
{%- endfor %}
{%- endfor %}<|assistant|>"""


@pytest.mark.parametrize(
    ("items", "chat"),
    [
        pytest.param([HI, said("a"), user("b")], [HI, models("a"), {"role": "user", "content": "b"}], id="messages"),
        pytest.param(
            [{"role": "developer", "content": "A"}, {"role": "developer", "content": "B"}, HI],
            [{"role": "developer", "content": "A"}, {"role": "developer", "content": "B"}, HI],
            id="developers",
        ),
        pytest.param(
            [HI, THINK, asked_for("functions.list:0", id="fc_1", status="completed"), result("functions.list:0")],
            [HI, models(None, past_call("functions.list:0"), thought="Hm."), tool("functions.list:0")],
            id="thought and call",
        ),
        pytest.param(
            [HI, THINK, said("a"), asked_for("c1"), asked_for("c2"), result("c1"), result("c2")],
            [HI, models("a", past_call("c1"), past_call("c2"), thought="Hm."), tool("c1"), tool("c2")],
            id="one turn",
        ),
        pytest.param(
            [HI, asked_for("c1"), said("a"), result("c1", [{"type": "input_text", "text": "one"}])],
            [HI, models("a", past_call("c1")), tool("c1")],
            id="message between call and output",
        ),
        pytest.param(
            [HI, asked_for("c1"), asked_for("c2"), result("c1"), said("a"), result("c2")],
            [HI, models("a", past_call("c1"), past_call("c2")), tool("c1"), tool("c2")],
            id="message between outputs",
        ),
        pytest.param(
            [HI, asked_for("c1"), result("c1"), THINK, asked_for("c2"), result("c2")],
            [HI, models(None, past_call("c1")), tool("c1"), models(None, past_call("c2"), thought="Hm."), tool("c2")],
            id="two turns",
        ),
        pytest.param([HI, said("a"), said("b"), HI], [HI, models("a\n\nb"), HI], id="two messages"),
        pytest.param([HI, {"role": "assistant", "content": []}, HI], [HI, HI], id="empty content"),
        pytest.param(
            [HI, asked_for("c1", name="wait", namespace="agents"), result("c1")],
            [HI, models(None, past_call("c1", "agents__wait")), tool("c1")],
            id="namespace",
        ),
        pytest.param(
            [
                HI,
                {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'a"b'},
                {"type": "custom_tool_call_output", "call_id": "c1", "output": "one"},
            ],
            [HI, models(None, past_call("c1", "patch", '{"input":"a\\"b"}')), tool("c1")],
            id="custom",
        ),
        pytest.param(
            [{"role": "user", "content": [{**FILE, "file_data": "data:text/plain;base64,aGk="}]}],
            [{"role": "user", "content": "n.txt\n\nhi"}],
            id="file",
        ),
    ],
)  # fmt: skip
async def test_a_conversation_has_the_prompt_that_it_has_over_chat(
    items: list[dict[str, Any]], chat: list[dict[str, Any]]
) -> None:
    response = await prompt_of({"messages": chat}, {"template": SHOWS_THOUGHTS}, input=items)
    skips = ("skipped", "dropped", "emptied")
    assert not any(word in response.headers.get("x-paraserve-normalizations", "") for word in skips)


async def test_instructions_are_the_first_system_message() -> None:
    await prompt_of({"messages": [{"role": "system", "content": "Be kind."}, HI]}, instructions="Be kind.")


@pytest.mark.parametrize(
    ("item", "note"),
    [
        ({"type": "item_reference", "id": "rs_1"}, "item_references_skipped"),
        ({"type": "web_search_call", "id": "ws_1", "status": "completed"}, "input_items_skipped"),
        ({"type": "compaction", "encrypted_content": "x"}, "input_items_skipped"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "of another"}, "sealed_reasoning_dropped"),
    ],
)
async def test_an_item_that_cannot_be_read_is_left_out_and_named(item: dict[str, Any], note: str) -> None:
    response = await prompt_of({"messages": [HI]}, input=[item, HI])
    assert response.headers["x-paraserve-normalizations"] == note


async def test_broken_arguments_of_a_past_call_do_not_end_the_session() -> None:
    chat = {"messages": [HI, models(None, past_call("c1")), tool("c1")]}
    response = await prompt_of(chat, input=[HI, asked_for("c1", arguments='{"room": "a'), result("c1")])
    assert "broken_arguments_emptied" in response.headers["x-paraserve-normalizations"]


async def test_a_sealed_thought_comes_back_into_the_prompt() -> None:
    scripted = engine(reply("<think>Hm. ü</think>" + call("list")), reply("ok"), reply("ok"))
    async with client(deployment(scripted, template=SHOWS_THOUGHTS)) as http:
        sent = {"tools": [LIST], "store": False, "include": ["reasoning.encrypted_content"]}
        thought, called = (await post(http, **sent)).json()["output"]
        items = [HI, {"type": "reasoning", "summary": [], "encrypted_content": thought["encrypted_content"]}, called]
        await post(http, **sent, input=[*items, result(called["call_id"])])
        await post(http, **sent, input=[HI, thought, called, result(called["call_id"])])
    _, sealed, plain = scripted.requests
    assert sealed.token_ids == plain.token_ids
    assert "Hm. ü".encode() in bytes(i for i in sealed.token_ids if i < 256)


@pytest.mark.parametrize("thought", ["", "Hm.", "ü\n" * 5000])
def test_a_seal_opens_what_it_closed_and_nothing_else(thought: str) -> None:
    ours, same, other = Seal("key"), Seal("key"), Seal()
    sealed = ours.close(thought)
    assert ours.open(sealed) == same.open(sealed) == thought
    assert other.open(sealed) is None
    changed = sealed[:-5] + ("A" if sealed[-5] != "A" else "B") + sealed[-4:]
    assert [ours.open(text) for text in (changed, sealed[:20], "paraserve1.", "paraserve1.é", "gAAAAA")] == [None] * 5


@pytest.mark.parametrize(
    ("choice", "chat"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "name": "list"}, {"type": "function", "function": {"name": "list"}}),
        ({"type": "custom", "name": "patch"}, {"type": "function", "function": {"name": "patch"}}),
    ],
)
async def test_tools_of_all_kinds_are_functions_and_hosted_ones_are_left_out(choice: Any, chat: Any) -> None:
    text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    functions = [
        {"name": "list", "parameters": ROOM},
        {"name": "agents__wait", "parameters": ROOM},
        {"name": "patch", "description": "Edit.", "parameters": {**text, "additionalProperties": False}},
    ]
    declared = [{"type": "function", "function": function} for function in functions]
    response = await prompt_of(
        {"messages": [HI], "tools": declared, "tool_choice": chat}, tools=MIXED, tool_choice=choice
    )
    assert response.headers["x-paraserve-normalizations"] == "hosted_tools_dropped"


async def test_only_allowed_tools_are_declared() -> None:
    declared = [{"type": "function", "function": {"name": "list", "parameters": ROOM}}]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "list"}]}
    await prompt_of(
        {"messages": [HI], "tools": declared, "tool_choice": "required"}, tools=[LIST, PATCH], tool_choice=allowed
    )


@pytest.mark.parametrize("syntax", ["lark", "regex"])
async def test_the_grammar_of_a_custom_tool_is_enforced_in_its_argument(syntax: str) -> None:
    definition = {"lark": 'start: "a" DIGIT+\n%import common.DIGIT', "regex": "a[0-9]+"}[syntax]
    grammar = {"type": "grammar", "syntax": syntax, "definition": definition}
    scripted = engine(reply("ok"), reply("ok"))
    async with client(deployment(scripted)) as http:
        enforced = await post(http, tools=[LIST, {**PATCH, "format": grammar}])
        await post(http, tools=[LIST, {**PATCH, "format": {**grammar, "definition": "("}}])
    free, refused = scripted.requests[0].constraint, scripted.requests[1].constraint
    assert free is not None
    assert "[0-9]" in free.value
    assert refused is None
    assert "x-paraserve-normalizations" not in enforced.headers


async def test_a_grammar_that_cannot_be_enforced_is_named_and_stays_in_the_description() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "(" start ")" | "a"'}
    scripted = engine(reply("ok"))
    async with client(deployment(scripted)) as http:
        response = await post(http, tools=[{**PATCH, "format": grammar}])
    assert response.headers["x-paraserve-normalizations"] == "custom_grammar_not_enforced"
    (asked,) = scripted.requests
    assert asked.constraint is None
    assert "follows this grammar" in bytes(i for i in asked.token_ids if i < 256).decode()


async def test_truncation_leaves_out_the_oldest_turns_and_keeps_instructions() -> None:
    scripted = engine(reply("ok"), context_length=100)
    talk = [said("x" * 40), HI] * 3
    async with client(deployment(scripted)) as http:
        assert (await post(http, instructions="Be kind.", input=[HI, *talk])).status_code == 400
        fields: dict[str, Any] = {"instructions": "Be kind.", "truncation": "auto"}
        response = await post(http, **fields, input=[HI, *talk])
    assert response.status_code == 200, response.text
    assert response.headers["x-paraserve-normalizations"] == "oldest_turns_dropped"
    (asked,) = scripted.requests
    text = bytes(i for i in asked.token_ids if i < 256).decode()
    assert text.startswith("Be kind.hi")
    assert 0 < text.count("x") < 120


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("input", {"input": []}),
        ("input[1].call_id", {"input": [HI, {"type": "function_call", "name": "list"}]}),
        ("input[1].tool_call_id", {"input": [HI, result("c1")]}),
        ("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
        ("input[0].type", {"input": [{"content": "hi"}]}),
        ("tools[1].name", {"tools": [LIST, LIST]}),
        ("tool_choice.type", {"tools": MIXED, "tool_choice": {"type": "web_search"}}),
        ("tool_choice", {"tools": [LIST], "tool_choice": {"type": "function", "name": "other"}}),
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "a"}}}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("input", {"input": "x" * 5000}),
        ("prompt", {"prompt": {"id": "pmpt_1"}}),
        ("model", {"model": "other"}),
    ],
)
async def test_a_wrong_request_is_refused_by_the_clients_own_names(param: str, fields: dict[str, Any]) -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, **fields)
    assert response.status_code == (404 if param == "model" else 400)
    assert response.json()["error"]["param"] == param, response.text


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (502, "engine_disconnected", "server_error"),
        (400, "context_length_exceeded", "context_length_exceeded"),
        (400, "invalid_constraint", "invalid_prompt"),
        (429, "rate_limit_exceeded", "rate_limit_exceeded"),
        (503, "engine_overloaded", "server_is_overloaded"),
    ],
)
async def test_a_failure_inside_a_stream_is_a_failed_response_with_a_code_that_clients_act_on(
    status: int, code: str, told: str
) -> None:
    gone = EngineError(status, code, "The engine is gone.")
    async with client(deployment(engine(reply("Hi there", error=gone, error_after=2)))) as http:
        parts = events((await post(http, stream=True)).text)
    response = accumulated(parts)
    assert response["status"] == "failed"
    assert response["error"] == {"code": told, "message": "The engine is gone."}
    assert response["output"][0]["content"][0]["text"] == "Hi"


async def test_what_it_takes_of_a_client_that_says_more_than_we_know() -> None:
    fields = {
        "store": False, "include": ["reasoning.encrypted_content", "file_search_call.results"], "client_metadata": {},
        "prompt_cache_key": "x", "service_tier": "auto", "safety_identifier": "x", "max_tool_calls": 3,
        "stream_options": {"include_obfuscation": False}, "context_management": [], "moderation": None,
    }  # fmt: skip
    headers = {"originator": "codex_exec", "session-id": "x", "x-codex-turn-metadata": "{}"}
    async with client(deployment(engine())) as http:
        for stream in (False, True):
            response = await http.post(RESPONSES, json={"input": [HI], "stream": stream, **fields}, headers=headers)
            assert response.status_code == 200, response.text
