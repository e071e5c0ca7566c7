"""Anthropic's API at the wire: what its blocks become in the prompt, and a stream that folds to the whole response."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from paraserve.api.app import create_app
from paraserve.api.call_ids import restored_id, safe_id
from paraserve.engines.base import EngineError
from tests.api.messages_kit import accumulated, events
from tests.api.wire import CHAT, LeavingClient
from tests.toy import TEMPLATE, client, deployment, engine, reply
from tests.waiting import until

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HI = {"role": "user", "content": "hi"}
SHELVES = {"name": "list_shelves", "input_schema": {"type": "object", "properties": {"room": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "list_shelves", "arguments": {"room": "a \\"b\\" ü"}}\n</tool_call>'

PDF = {"type": "base64", "media_type": "application/pdf", "data": "eA=="}
WEB_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
NAMED = {"type": "function", "function": {"name": "list_shelves"}}
LATE = [HI, {"role": "system", "content": "Late."}, HI]
TWO = {"tools": [SHELVES], "max_tokens": 1000}


def said(block: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


def past_call(call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "list", "arguments": arguments}}


async def post(http: httpx.AsyncClient, path: str = MESSAGES, **fields: Any) -> httpx.Response:
    needed = {"max_tokens": 100} if path == MESSAGES else {}
    return await http.post(path, json={**needed, "messages": [HI], **fields})


async def both(text: str, served: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The whole response, of which the stream is checked to be the same."""
    async with client(deployment(engine(reply(text), reply(text)), **(served or {}))) as http:
        whole = await post(http, **fields)
        streamed = await post(http, stream=True, **fields)
    assert whole.status_code == streamed.status_code == 200, whole.text
    body: dict[str, Any] = whole.json()
    folded = accumulated(events(streamed.text))
    assert {**folded, "id": "", "content": without_ids(folded)} == {**body, "id": "", "content": without_ids(body)}
    return body


def without_ids(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "id"} for block in body["content"]]


async def prompt_of(chat: dict[str, Any], **fields: Any) -> str:
    """The prompt that a body makes, checked to be the one that a chat request makes."""
    scripted = engine(reply("ok"), reply("ok"))
    async with client(deployment(scripted)) as http:
        assert (response := await post(http, **fields)).status_code == 200, response.text
        counted = await post(http, COUNT, **fields)
        assert (await http.post(CHAT, json=chat)).status_code == 200
    ours, chats = (asked.token_ids for asked in scripted.requests)
    assert ours == chats
    assert counted.json() == {"input_tokens": len(ours)}
    return bytes(i for i in ours if i < 256).decode()


async def test_a_whole_message_has_anthropics_shape_and_counts() -> None:
    body = await both("<think>Hm.</think>Hi ü.")
    assert body.pop("id").startswith("msg-")
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "toy",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "unsigned"},
            {"type": "text", "text": "Hi ü."},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 12,
            "output_tokens_details": {"thinking_tokens": 5},
        },
    }


@pytest.mark.parametrize(
    ("text", "fields", "kinds", "reason"),
    [
        ("", {}, ["text"], "end_turn"),
        ("Hi.", {}, ["text"], "end_turn"),
        ("Hi. STOP there", {"stop_sequences": ["STOP"]}, ["text"], "stop_sequence"),
        ("Hi there", {"max_tokens": 3}, ["text"], "max_tokens"),
        (CALL, {"tools": [SHELVES]}, ["tool_use"], "tool_use"),
        ("<think>a</think>b" + CALL + "\n" + CALL, TWO, ["thinking", "text", "tool_use", "tool_use"], "tool_use"),
        (CALL, {"tools": [SHELVES], "max_tokens": 50}, ["text"], "max_tokens"),
        ("b" + CALL, {"tools": [SHELVES], "max_tokens": 50}, ["text"], "max_tokens"),
    ],
)
async def test_blocks_and_stop_reasons(text: str, fields: dict[str, Any], kinds: list[str], reason: str) -> None:
    body = await both(text, **fields)
    assert [block["type"] for block in body["content"]] == kinds
    assert body["stop_reason"] == reason
    assert body["stop_sequence"] == ("STOP" if reason == "stop_sequence" else None)


async def test_a_call_has_its_arguments_as_an_object() -> None:
    body = await both("b" + CALL, tools=[SHELVES])
    text, call = body["content"]
    assert text == {"type": "text", "text": "b"}
    assert (call["name"], call["input"]) == ("list_shelves", {"room": 'a "b" ü'})


async def test_a_limit_above_the_room_is_cut_to_it_and_its_end_says_so() -> None:
    async with client(deployment(engine(reply("x" * 5000, end=False), context_length=64))) as http:
        body = (await post(http, max_tokens=128_000)).json()
    assert body["stop_reason"] == "model_context_window_exceeded"
    assert body["usage"]["output_tokens"] == 60


async def test_usage_counts_cached_tokens_apart() -> None:
    async with client(deployment(engine(reply("Hi.", cached_tokens=3)))) as http:
        usage = (await post(http)).json()["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (1, 3)


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({}, [HI]),
        ({"system": "Be kind."}, [{"role": "system", "content": "Be kind."}, HI]),
        (
            {
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: cch=1f"},
                    {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "Be brief."},
                ]
            },
            [{"role": "system", "content": "Be kind.Be brief."}, HI],
        ),
        ({"messages": LATE}, LATE),
        (
            {
                "messages": [
                    HI,
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                            {"type": "redacted_thinking", "data": "x"},
                            {"type": "text", "text": "Let me look."},
                            {"type": "tool_use", "id": safe_id("functions.list:0"), "name": "list", "input": {"a": 1}},
                            {"type": "tool_use", "id": "call_2", "name": "list", "input": {}},
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "And?"},
                            {"type": "tool_result", "tool_use_id": safe_id("functions.list:0"), "content": "one"},
                            {
                                "type": "tool_result",
                                "tool_use_id": "call_2",
                                "is_error": True,
                                "content": [{"type": "text", "text": "two"}],
                            },
                        ],
                    },
                ]
            },
            [
                HI,
                {
                    "role": "assistant",
                    "reasoning_content": "Hm.",
                    "content": "Let me look.",
                    "tool_calls": [
                        past_call("functions.list:0", {"a": 1}),
                        past_call("call_2", {}),
                    ],
                },
                {"role": "tool", "tool_call_id": "functions.list:0", "content": "one"},
                {"role": "tool", "tool_call_id": "call_2", "content": "two"},
                {"role": "user", "content": "And?"},
            ],
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "document", "title": "T", "source": {"type": "text", "data": "D"}},
                            {"type": "text", "text": "?"},
                        ],
                    }
                ]
            },
            [{"role": "user", "content": "T\n\nD?"}],
        ),
    ],
)
async def test_a_conversation_has_the_prompt_that_it_has_over_chat(
    fields: dict[str, Any], chat: list[dict[str, Any]]
) -> None:
    await prompt_of({"messages": chat}, **fields)


async def test_a_last_assistant_message_is_gone_on_with() -> None:
    prefill = {"role": "assistant", "content": "Well"}
    chat = {"messages": [HI, prefill], "continue_final_message": True}
    assert (await prompt_of(chat, messages=[HI, prefill])).endswith("Well")


@pytest.mark.parametrize(
    ("thinking", "variable"),
    [({"type": "disabled"}, False), ({"type": "adaptive"}, True), ({"type": "enabled", "budget_tokens": 2048}, True)],
)
async def test_thinking_is_the_templates_own_switch(thinking: dict[str, Any], variable: bool) -> None:
    await prompt_of({"messages": [HI], "chat_template_kwargs": {"thinking": variable}}, thinking=thinking)


@pytest.mark.parametrize(
    ("choice", "chat"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"type": "tool", "name": "list_shelves"}, {"tool_choice": NAMED}),
        ({"type": "none"}, {"tool_choice": "none"}),
    ],
)
async def test_tool_choices_and_server_tools(choice: dict[str, Any], chat: dict[str, Any]) -> None:
    function = {"name": SHELVES["name"], "parameters": SHELVES["input_schema"]}
    asked = {"messages": [HI], "tools": [{"type": "function", "function": function}], **chat}
    tools = [SHELVES, WEB_SEARCH]
    scripted = engine(reply(CALL), reply(CALL))
    async with client(deployment(scripted)) as http:
        response = await post(http, tools=tools, tool_choice=choice)
        assert response.headers["x-paraserve-normalizations"] == "server_tools_dropped"
        await http.post(CHAT, json=asked)
    ours, chats = scripted.requests
    assert (ours.token_ids, ours.constraint) == (chats.token_ids, chats.constraint)


@pytest.mark.parametrize(
    ("status", "kind", "words", "fields"),
    [
        (400, "invalid_request_error", "max_tokens", {"max_tokens": 0}),
        (400, "invalid_request_error", "messages[0].role", {"messages": [{"role": "robot", "content": "hi"}]}),
        (
            400,
            "invalid_request_error",
            "web_search",
            {"tools": [WEB_SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
        ),
        (
            400,
            "invalid_request_error",
            "messages[0]",
            {"system": "Be kind.", **said({"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"})},
        ),
        (
            400,
            "invalid_request_error",
            "messages[0]",
            said({"type": "image", "source": {"type": "url", "url": "http://host/a.png"}}),
        ),
        (400, "invalid_request_error", "messages[0]", said({"type": "document", "source": PDF})),
        (400, "invalid_request_error", "prompt is too long", {"messages": [{"role": "user", "content": "x" * 5000}]}),
        (404, "not_found_error", "other", {"model": "other"}),
    ],
)
async def test_errors_are_anthropics(status: int, kind: str, words: str, fields: dict[str, Any]) -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, **fields)
    assert response.status_code == status
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert words in body["error"]["message"]
    assert body["request_id"] == response.headers["x-request-id"]


async def test_a_kept_conversation_is_refused_in_the_form_after_which_sdks_send_the_history() -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, thread={"type": "create"})
    details = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert (response.status_code, response.json()["error"]["details"]) == (400, details)


@pytest.mark.parametrize("text", ["<think>Hm.</think>Hi.", "<think>Hm.", '<think>Hm.</think><tool_call>{"name": "f"'])
async def test_a_thought_in_a_stream_ends_with_its_signature_without_which_clients_do_not_give_it_back(
    text: str,
) -> None:
    async with client(deployment(engine(reply(text)))) as http:
        parts = events((await post(http, stream=True)).text)
    thinking = [part for part in parts if part.get("index") == 0]
    assert thinking[-2]["delta"] == {"type": "signature_delta", "signature": "unsigned"}
    assert [part["type"] for part in thinking].count("content_block_stop") == 1
    assert thinking[-1]["type"] == "content_block_stop"


async def test_a_failure_inside_a_stream_is_an_error_event_and_its_end() -> None:
    gone = EngineError(502, "engine_disconnected", "The engine is gone.")
    async with client(deployment(engine(reply("Hi there", error=gone, error_after=2)))) as http:
        parts = (await post(http, stream=True)).text.split("\n\n")
    assert parts[-2].startswith("event: error\ndata: ")
    assert json.loads(parts[-2].partition("data: ")[2])["error"] == {
        "type": "api_error",
        "message": "The engine is gone.",
    }


async def test_silence_is_a_ping() -> None:
    app = create_app(deployment(engine(reply("Hi.", hang_after=0)), stream_comment_interval=0.01))
    silent = LeavingClient(app, MESSAGES, model="toy", max_tokens=64, messages=[HI], stream=True)
    await until(lambda: b"ping" in silent.body)
    await silent.leave()
    assert [part["type"] for part in events(silent.body.decode())[:2]] == ["message_start", "ping"]


async def test_both_kinds_of_key_open_the_door() -> None:
    async with client(deployment(engine(reply("a"), reply("b")), api_key=("secret-key",))) as http:
        for headers in ({"authorization": "Bearer secret-key"}, {"x-api-key": "secret-key"}):
            http.headers.clear()
            http.headers.update(headers)
            assert (await post(http)).status_code == 200
        http.headers.clear()
        refused = await post(http)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("call_id", ["functions.read:0", "a-b.c", "call_1", "toolu_x-1", "é", "toolu_x-2e-"])
def test_an_id_comes_back_as_the_model_wrote_it(call_id: str) -> None:
    sent = safe_id(call_id)
    assert all(sign.isascii() and (sign.isalnum() or sign in "_-") for sign in sent)
    assert restored_id(sent) == call_id


WITHOUT_SWITCH = "\n".join(line for line in TEMPLATE.split("\n") if "thinking" not in line)


@pytest.mark.parametrize(("template", "opened"), [(TEMPLATE, ""), (WITHOUT_SWITCH, "<think>")])
@pytest.mark.parametrize("chunk", [1, 700])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_thinking_budget_ends_the_thought_and_the_answer_follows(
    chunk: int, stream: bool, template: str, opened: str
) -> None:
    scripted = engine(reply(opened + "h" * 3000, chunk_sizes=(chunk,)), reply("Hi.", chunk_sizes=(chunk,)))
    async with client(deployment(scripted, template=template)) as http:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        response = await post(http, max_tokens=2000, thinking=thinking, stream=stream)
    body = accumulated(events(response.text)) if stream else response.json()
    thought, answer = body["content"]
    assert (set(thought["thinking"]), answer) == ({"h"}, {"type": "text", "text": "Hi."})
    assert len(thought["thinking"]) == 1024 - bool(opened)
    first, second = scripted.requests
    made = len(second.token_ids) - len(first.token_ids)
    assert second.sampling.max_tokens == 2000 - made
    assert body["usage"]["output_tokens"] == made + 4
    assert body["usage"]["input_tokens"] == len(first.token_ids)


@pytest.mark.parametrize("text", ["<think>Hm.</think>" + "x" * 1500, "x" * 1500])
async def test_what_is_no_reasoning_is_not_counted_against_a_budget(text: str) -> None:
    scripted = engine(reply(text))
    async with client(deployment(scripted, template=WITHOUT_SWITCH)) as http:
        body = (await post(http, max_tokens=2000, thinking={"type": "adaptive", "budget_tokens": 1024})).json()
    assert body["content"][-1]["text"] == "x" * 1500
    assert len(scripted.requests) == 1
