"""What holds of chat, Responses and Messages alike: one request in the words of each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.wire import CHAT
from tests.toy import client, deployment, engine, reply

SCHEMA = {"type": "object", "properties": {"room": {"type": "string"}}}
CALLS = "".join(
    f'<tool_call>\n{{"name": "list", "arguments": {{"room": "{room}"}}}}\n</tool_call>\n' for room in ("a", "b")
)
MESSAGES = [{"role": "user", "content": "hi"}]
FUNCTION = {"name": "list", "parameters": SCHEMA}
TOOLS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": MESSAGES, "tools": [{"type": "function", "function": FUNCTION}]},
    "/v1/responses": {"input": "hi", "tools": [{"type": "function", **FUNCTION}]},
    "/v1/messages": {
        "messages": MESSAGES,
        "max_tokens": 500,
        "tools": [{"name": "list", "input_schema": SCHEMA}],
    },
}
NAMED: dict[str, dict[str, Any]] = {
    CHAT: {"type": "function", "function": {"name": "list"}},
    "/v1/responses": {"type": "function", "name": "list"},
    "/v1/messages": {"type": "tool", "name": "list"},
}
FORCED: dict[str, Any] = {CHAT: "required", "/v1/responses": "required", "/v1/messages": {"type": "any"}}


def calls(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of the calls of a whole response."""
    if path == CHAT:
        return [json.loads(call["function"]["arguments"]) for call in body["choices"][0]["message"]["tool_calls"]]
    if path == "/v1/responses":
        return [json.loads(item["arguments"]) for item in body["output"] if item["type"] == "function_call"]
    return [block["input"] for block in body["content"] if block["type"] == "tool_use"]


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize("parallel", [{}, {"parallel_tool_calls": True}])
async def test_a_function_that_is_forced_by_name_is_called_once(path: str, parallel: dict[str, bool]) -> None:
    """The grammar ends behind the call: a small model would make call after call. The reader drops what an engine that
    does not obey says behind it."""
    scripted = engine(reply(CALLS))
    one = {"disable_parallel_tool_use": True} if path == "/v1/messages" else {}
    off = {} if path == "/v1/messages" else {"parallel_tool_calls": False}
    async with client(deployment(scripted)) as http:
        named = (await http.post(path, json={**TOOLS[path], **parallel, "tool_choice": NAMED[path]})).json()
        await http.post(path, json={**TOOLS[path], **off, "tool_choice": {**NAMED[path], **one}})
        forced = (await http.post(path, json={**TOOLS[path], "tool_choice": FORCED[path]})).json()
    assert calls(path, named) == [{"room": "a"}]
    assert calls(path, forced) == [{"room": "a"}, {"room": "b"}], "one or more, where none is named"
    by_name, by_flag, by_force = (request.constraint for request in scripted.requests)
    assert by_name == by_flag != by_force
    assert by_name is not None


async def test_the_flag_of_parallel_calls_is_echoed_as_it_was_sent() -> None:
    path = "/v1/responses"
    async with client(deployment(engine())) as http:
        body = (await http.post(path, json={**TOOLS[path], "tool_choice": NAMED[path]})).json()
    assert body["parallel_tool_calls"] is True
