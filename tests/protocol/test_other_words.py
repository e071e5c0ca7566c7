"""What clients of other APIs say in other words: served by its meaning, or refused with the words that are right."""

import json
from typing import Any

import msgspec
import pytest

from paraserve.protocol.chat import decode_chat
from paraserve.protocol.completions import decode_completion
from paraserve.protocol.errors import RequestError
from paraserve.protocol.tools import narrowed

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("read", "write", "list")]


def decode(**fields: Any) -> Any:
    return decode_chat(msgspec.json.encode({"messages": [{"role": "user", "content": "hi"}]} | fields))


def refused(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(**fields)
    assert caught.value.status == 400
    return caught.value


def allowed(mode: str, *names: str) -> Any:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("max_tokens", ("max_tokens",)),
        ("n", ("n",)),
        ("top_k", ("top_k",)),
        ("seed", ("seed",)),
        ("stop_token_ids", ("stop_token_ids", 0)),
    ],
)
def test_a_whole_number_written_as_a_fraction_is_an_integer(field: str, place: tuple[Any, ...]) -> None:
    sent = [5.0, 5] if len(place) > 1 else 5.0
    value = getattr(decode(**{field: sent, "temperature": 1.0}), field)
    assert json.dumps(value) == json.dumps([5, 5] if len(place) > 1 else 5)


def test_several_fractions_and_nested_ones_are_read_and_real_ones_refused() -> None:
    read = decode(max_tokens=1e2, top_k=4.0, reasoning={"max_tokens": 7.0})
    assert (read.max_tokens, read.top_k, read.reasoning.max_tokens) == (100, 4, 7)
    assert decode_completion(b'{"prompt": "x", "max_tokens": 3.0}').max_tokens == 3
    assert refused(max_tokens=5.5).param == "max_tokens"
    assert refused(n=5.0, top_k="x").param == "top_k"


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"reasoning_effort": "ultra"}, "reasoning_effort", ("none", "minimal", "max", "default")),
        ({"reasoning": {"effort": "lots"}}, "reasoning.effort", ("none", "xhigh")),
        ({"response_format": {"type": "xml"}}, "response_format.type", ("text", "json_object", "json_schema")),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", ("system", "user", "tool")),
        ({"tools": [*TOOLS, {"type": "web_search"}]}, "tools[3].type", ("function",)),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools[0].type", ("function",)),
    ],
)
def test_a_refused_word_comes_with_the_words_that_are_right(
    fields: dict[str, Any], param: str, words: tuple[str, ...]
) -> None:
    error = refused(**fields)
    assert error.param == param
    assert all(word in error.message.partition("must be one of")[2] for word in words)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_leaves_those_in_their_order(mode: str) -> None:
    tools, choice = narrowed(TOOLS, allowed(mode, "list", "read"))
    assert [tool["function"]["name"] for tool in tools or ()] == ["read", "list"]
    assert choice == mode
    assert narrowed(TOOLS, allowed(mode)) == ([], "none")


@pytest.mark.parametrize(
    ("choice", "param", "words"),
    [
        (allowed("auto", "read", "none_such"), "tool_choice", ""),
        (allowed("maybe", "read"), "tool_choice.allowed_tools.mode", "must be one of auto, required"),
        ({"type": "any"}, "tool_choice.type", "must be one of function, allowed_tools"),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused_with_what_is_right(choice: Any, param: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        narrowed(TOOLS, choice)
    assert caught.value.param == param
    assert words in caught.value.message


@pytest.mark.parametrize("effort", ["default", "auto"])
def test_an_effort_that_leaves_it_to_the_model_is_none(effort: str) -> None:
    assert decode(reasoning_effort=effort).reasoning_effort is None


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_minus_one_is_no_limit(field: str) -> None:
    assert getattr(decode(**{field: -1}), field) is None
    assert refused(**{field: -2}).param == field
    assert refused(**{field: 0}).param == field


@pytest.mark.parametrize(
    ("reasoning", "effort", "kwargs"),
    [
        ({"effort": "none"}, "none", None),
        ({"effort": "high", "enabled": False}, "high", None),
        ({"reasoning_effort": "low"}, "low", None),
        ({"effort": "auto"}, None, None),
        ({"enabled": False}, "medium", {"enable_thinking": False}),
        ({"enabled": True, "exclude": True}, "medium", {"enable_thinking": True}),
        ({"enable": "false"}, "medium", {"enable_thinking": "false"}),
        ({}, "medium", None),
    ],
)
def test_reasoning_is_read_like_reasoning_effort(reasoning: Any, effort: str | None, kwargs: Any) -> None:
    request = decode(reasoning=reasoning, reasoning_effort="medium")
    assert (request.reasoning_effort, request.chat_template_kwargs) == (effort, kwargs)


def test_template_kwargs_win_over_the_switch() -> None:
    request = decode(reasoning={"enabled": False}, chat_template_kwargs={"thinking": True})
    assert request.chat_template_kwargs == {"thinking": True}
