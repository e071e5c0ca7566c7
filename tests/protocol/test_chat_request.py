"""What a chat request may be, and what a wrong one is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paraserve.protocol.chat import decode_chat
from paraserve.protocol.errors import RequestError
from paraserve.protocol.tools import check_tools, tool_choice_in_force

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "list_shelves", "parameters": {"type": "object", "properties": {}}}}


def decode(**fields: Any):
    return decode_chat(msgspec.json.encode({"messages": USER, **fields}))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": "two"}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_tokens": 50, "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"stream": "yes"}, "stream"),
        ({"stop": [1]}, "stop[0]"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop": "a" * 513}, "stop"),
        ({"seed": 1.5}, "seed"),
        ({"logit_bias": {"5": 1000}}, "logit_bias[...]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*USER, {"role": "user", "content": 5}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].image_url"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"function": {"name": "a"}}]}, "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"regex": "a+", "ebnf": "root ::= 'a'"}, "ebnf"),
    ],
)
def test_a_wrong_field_is_a_400_that_names_it_without_a_repr(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(**fields)
    error = caught.value
    assert (error.status, error.param) == (400, param)
    assert error.message.startswith(param) or param == "messages"
    assert error.code in {"invalid_value", "missing_required_parameter"}
    assert "dict" not in error.message
    assert "class" not in error.message


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "tool", "tool_call_id": "c9", "content": "x"}], "messages[0].tool_call_id: no assistant message"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id: a tool message needs the id"),
        ([{"role": "user", "content": None}], "messages[0].content: a user message needs content"),
        ([{"role": "developer"}], "messages[0].content: a developer message needs content"),
        ([{"role": "user", "content": [{"type": "file"}]}], "messages[0].content[0].type: parts of this type are not"),
        ([{"role": "user", "content": [{"type": "refusal"}]}], "messages[0].content[0].refusal: a refusal part needs"),
        ([{"role": "user", "content": [{"type": "thinking"}]}], "messages[0].content[0].thinking: a thinking part"),
        (
            [{"role": "assistant", "tool_calls": [CALL, {**CALL, "function": {"name": ""}}]}],
            "messages[0].tool_calls[1].function.name: a tool call needs",
        ),
        ([{"role": "assistant", "tool_calls": [{**CALL, "id": None}]}], "messages[0].tool_calls[0].id: a tool call"),
        ([{"role": "function", "name": "f", "content": "x"}], "messages[0].role: the function role is not supported"),
    ],
)
def test_what_is_wrong_with_a_message_is_named_and_said(messages: list[Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(messages=[*USER, *messages])
    assert caught.value.message.startswith(message.replace("messages[0]", "messages[1]"))
    assert caught.value.param == caught.value.message.partition(":")[0]


def test_messages_that_belong_together_are_taken_as_they_came() -> None:
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}]},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "output_text", "text": ""}],
        },
    ]
    assert decode(messages=messages).messages == messages


def test_missing_messages_are_named() -> None:
    with pytest.raises(RequestError) as caught:
        decode_chat(b"{}")
    assert caught.value.param == "messages"
    assert caught.value.message == "messages: field required"


@pytest.mark.parametrize("body", [b"", b"{nope", b"\xff\xfe", b'{"messages": [' + b"[" * 50_000, b'{"messages":[]} x'])
def test_a_body_that_is_not_json_is_a_400(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        decode_chat(body)
    assert caught.value.status == 400
    assert caught.value.code in {"invalid_json", "invalid_value"}


def test_a_wrong_value_is_not_echoed() -> None:
    with pytest.raises(RequestError) as caught:
        decode(reasoning_effort="secret" * 1000)
    assert "secret" not in caught.value.message


def test_null_is_unset_and_unknown_fields_are_ignored() -> None:
    request = decode(temperature=None, stop=None, tools=None, tool_choice=None, metadata={"a": 1}, store=True)
    assert request == decode()


def test_messages_and_tools_keep_fields_that_no_api_names() -> None:
    message = {"role": "user", "content": "x", "cache_control": {"type": "ephemeral"}, "name": "ann"}
    tool = {"type": "function", "defer_loading": True, "function": {"name": "f", "x-note": 1}}
    request = decode(messages=[message], tools=[tool])
    assert request.messages == [message]
    assert request.tools == [tool]


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_bare_image_url_becomes_the_object_form(role: str) -> None:
    bare = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
    whole = {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}}
    calls = {"role": "assistant", "tool_calls": [CALL]}
    request = decode(messages=[calls, {"role": role, "tool_call_id": "c1", "content": [bare, whole]}])
    assert request.messages[1]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        whole,
    ]


@pytest.mark.parametrize("choice", ["none", "auto"])
@pytest.mark.parametrize("tools", [None, []])
def test_none_and_auto_need_no_tools(choice: str, tools: Any) -> None:
    request = decode(tool_choice=choice, tools=tools)
    assert tool_choice_in_force(request.tool_choice, check_tools(request.tools)) == choice


NAMED = {"type": "function", "function": {"name": "list_shelves"}}


def test_an_absent_choice_is_auto_with_tools_and_none_without() -> None:
    assert tool_choice_in_force(None, check_tools([TOOL])) == "auto"
    assert tool_choice_in_force(None, ()) == "none"
    assert tool_choice_in_force(NAMED, check_tools([TOOL])) == "list_shelves"


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("required", None),
        ("required", []),
        (NAMED, None),
        ({"type": "function", "function": {"name": "other"}}, [TOOL]),
        ({"type": "function", "function": {"name": "auto"}}, [{"type": "function", "function": {"name": "auto"}}]),
        ("maybe", [TOOL]),
        ({"type": "allowed_tools"}, [TOOL]),
        ({"type": "function", "name": "list_shelves"}, [TOOL]),
        ({}, [TOOL]),
    ],
)
def test_a_choice_that_cannot_be_kept_is_a_400_at_tool_choice(choice: Any, tools: Any) -> None:
    with pytest.raises(RequestError) as caught:
        tool_choice_in_force(choice, check_tools(tools))
    assert caught.value.status == 400
    assert (caught.value.param or "").startswith("tool_choice")


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    assert decode(max_tokens=5).output_limit == ("max_tokens", 5)
    assert decode(max_tokens=5, max_completion_tokens=7).output_limit == ("max_completion_tokens", 7)
    assert decode(max_tokens=None).output_limit == ("max_tokens", None)
