"""What each policy makes of a chat request: one row per rule, with its flag off (nothing) and on."""

import json
from typing import Any

import pytest

from paraserve.policies import POLICIES, Policies
from paraserve.policies.base import Change, PolicyLedger
from paraserve.protocol.chat import ChatCompletionRequest, decode_chat
from paraserve.protocol.errors import RequestError
from paraserve.settings import ServerSettings, load_settings

KIMI = "/models/moonshotai/KIMI-K2.6"
K3 = "/models/Kimi_K3"
GLM = "/models/zai-org/GLM-4.6"
GLM_ALWAYS = "/models/glm-5.3-flash"
OTHER = "/models/Qwen3-8B"

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
NAMED = {"type": "function", "function": {"name": "ls"}}
FIXED = {"top_p": 0.95, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1}
COMPAT = "--openai-kimi-compat"
THINK = "--openai-thinking-object"
FLATTEN = "--openai-flatten-tool-role-text-content"
NAMES_OFF = ServerSettings()


def request(**fields: Any) -> ChatCompletionRequest:
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_chat(json.dumps(body).encode())


def settings(flags: str) -> ServerSettings:
    return load_settings(flags.split(), {}).settings


def served(flags: str, model: str, asked: ChatCompletionRequest) -> tuple[ChatCompletionRequest, PolicyLedger]:
    return Policies(settings(flags), model).on("chat").apply(asked)


def said(ledger: PolicyLedger) -> dict[str, Any]:
    """Field to its new value."""
    return {change.field: change.after for change in ledger.changes}


def tool_chat(content: Any) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    return [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]


def texts(*parts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part} for part in parts]


CHANGED = [
    # flags, model path, fields of the request, what changes
    ("--openai-force-tool-choice-auto", OTHER, {"tool_choice": "none"}, {"tool_choice": "auto"}),
    ("--openai-force-tool-choice-auto", OTHER, {"tool_choice": "required", "tools": TOOLS}, {"tool_choice": "auto"}),
    ("--openai-force-tool-choice-auto", OTHER, {"tool_choice": NAMED, "tools": TOOLS}, {"tool_choice": "auto"}),
    ("--openai-glm-compat", GLM, {"tool_choice": "required", "tools": TOOLS}, {"tool_choice": "auto"}),
    ("--openai-glm-compat", "/m/MyGlm", {"tool_choice": "required", "tools": TOOLS}, {"tool_choice": "auto"}),
    ("--openai-glm-named-tool-choice-auto", GLM, {"tool_choice": NAMED, "tools": TOOLS}, {"tool_choice": "auto"}),
    (COMPAT, KIMI, {}, FIXED),
    (COMPAT, KIMI, {"top_p": 1.0, "presence_penalty": 1, "frequency_penalty": -1, "n": 3}, FIXED),
    (COMPAT, KIMI, {"top_p": 0.95, "presence_penalty": 0, "frequency_penalty": 0, "n": 2}, {"n": 1}),
    (COMPAT, KIMI, {"thinking": {"type": "enabled"}, **FIXED}, {"chat_template_kwargs.thinking": True}),
    (COMPAT, KIMI, {"thinking": {"type": "adaptive"}, **FIXED}, {"chat_template_kwargs.thinking": True}),
    (COMPAT, KIMI, {"thinking": {}, **FIXED}, {"chat_template_kwargs.thinking": True}),
    (COMPAT, KIMI, {"thinking": {"type": "disabled"}, **FIXED}, {"chat_template_kwargs.thinking": False}),
    (
        COMPAT,
        KIMI,
        {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": True, "other": 1}, **FIXED},
        {"chat_template_kwargs.thinking": False},
    ),
    (
        f"{COMPAT} --openai-kimi-sampling fill",
        KIMI,
        {"top_p": 0.5, "n": 3},
        {"presence_penalty": 0.0, "frequency_penalty": 0.0},
    ),
    (f"{COMPAT} --openai-kimi-sampling fill", KIMI, {}, FIXED),
    (f"{COMPAT} --openai-kimi-sampling reject", KIMI, {"temperature": 0.6}, FIXED),
    (f"{COMPAT} --openai-kimi-sampling reject", KIMI, FIXED, {"temperature": 1.0}),
    (
        f"{COMPAT} --openai-kimi-sampling reject",
        KIMI,
        {"thinking": {"type": "disabled"}, **FIXED},
        {"temperature": 0.6, "chat_template_kwargs.thinking": False},
    ),
    (FLATTEN, OTHER, {"messages": tool_chat(texts("12 C", "rain"))}, {"messages[2].content": "12 Crain"}),
    (FLATTEN, OTHER, {"messages": tool_chat(texts("  a\n"))}, {"messages[2].content": "  a\n"}),
    (FLATTEN, OTHER, {"messages": tool_chat([])}, {"messages[2].content": ""}),
    (THINK, KIMI, {"thinking": {"type": "enabled"}}, {"chat_template_kwargs.thinking": True}),
    (THINK, KIMI, {"thinking": {"type": "adaptive"}}, {"chat_template_kwargs.thinking": True}),
    (THINK, KIMI, {"thinking": {"type": "disabled"}}, {"chat_template_kwargs.thinking": False}),
    (
        THINK,
        KIMI,
        {"thinking": {"type": "enabled", "keep": "all", "effort": "low"}},
        {
            "chat_template_kwargs.thinking": True,
            "chat_template_kwargs.preserve_thinking": True,
            "chat_template_kwargs.thinking_effort": "low",
        },
    ),
    (
        THINK,
        KIMI,
        {"thinking": {"type": "disabled"}, "reasoning_effort": "high"},
        {"chat_template_kwargs.thinking": False, "reasoning_effort": None},
    ),
    (
        THINK,
        KIMI,
        {"thinking": {"type": "enabled"}, "reasoning_effort": "none"},
        {"chat_template_kwargs.thinking": True, "reasoning_effort": None},
    ),
    (
        THINK,
        KIMI,
        {"thinking": {"type": "enabled", "effort": "max"}, "reasoning_effort": "low"},
        {
            "chat_template_kwargs.thinking": True,
            "chat_template_kwargs.thinking_effort": "max",
            "reasoning_effort": None,
        },
    ),
    (
        THINK,
        K3,
        {"reasoning_effort": "medium"},
        {"chat_template_kwargs.thinking_effort": "high", "reasoning_effort": None},
    ),
    (
        THINK,
        K3,
        {"reasoning_effort": "low", "chat_template_kwargs": {"thinking_effort": "max"}},
        {"reasoning_effort": None},
    ),
    (THINK, KIMI, {"reasoning_effort": "none"}, {"chat_template_kwargs.thinking": False, "reasoning_effort": None}),
    (THINK, KIMI, {"chat_template_kwargs": {"thinking": "false"}}, {"chat_template_kwargs.thinking": False}),
    (THINK, KIMI, {"chat_template_kwargs": {"thinking": 0}}, {"chat_template_kwargs.thinking": False}),
    (THINK, KIMI, {"chat_template_kwargs": {"thinking": "TRUE"}}, {"chat_template_kwargs.thinking": True}),
    (
        THINK,
        KIMI,
        {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": False}},
        {"chat_template_kwargs.thinking": True},
    ),
    (
        THINK,
        GLM,
        {"thinking": {"type": "disabled", "keep": "all"}},
        {"chat_template_kwargs.enable_thinking": False, "chat_template_kwargs.clear_thinking": False},
    ),
    (
        THINK,
        GLM,
        {"thinking": {"type": "enabled", "clear_thinking": True}},
        {"chat_template_kwargs.enable_thinking": True, "chat_template_kwargs.clear_thinking": True},
    ),
    (
        THINK,
        GLM_ALWAYS,
        {"thinking": {"type": "enabled", "effort": "low"}, "reasoning_effort": "high"},
        {
            "chat_template_kwargs.enable_thinking": True,
            "chat_template_kwargs.reasoning_effort": "low",
            "reasoning_effort": None,
        },
    ),
    (
        THINK,
        OTHER,
        {"thinking": {"type": "disabled"}},
        {"chat_template_kwargs.enable_thinking": False, "chat_template_kwargs.thinking": False},
    ),
    (
        "--openai-kimi-tool-call-ids",
        KIMI,
        {"messages": tool_chat("ok")},
        {"messages[1].tool_calls[0].id": "functions.ls:0", "messages[2].tool_call_id": "functions.ls:0"},
    ),
]


@pytest.mark.parametrize(("flags", "model", "fields", "expected"), CHANGED)
def test_a_policy_changes_what_its_rule_says_and_nothing_without_its_flag(
    flags: str, model: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    asked = request(**fields)
    before = json.dumps(fields)
    got, ledger = served(flags, model, asked)
    assert said(ledger) == expected
    assert json.dumps(fields) == before
    assert got is not asked

    off, nothing = served("", model, asked)
    assert off is asked
    assert (nothing.changes, nothing.headers) == ([], {})


UNCHANGED = [
    ("--openai-force-tool-choice-auto", OTHER, {"tools": TOOLS}),
    ("--openai-force-tool-choice-auto", OTHER, {"tools": TOOLS, "tool_choice": None}),
    ("--openai-force-tool-choice-auto", OTHER, {"tools": TOOLS, "tool_choice": "auto"}),
    ("--openai-glm-compat", OTHER, {"tool_choice": "required", "tools": TOOLS}),
    ("--openai-glm-compat", GLM, {"tool_choice": NAMED, "tools": TOOLS}),
    ("--openai-glm-compat", GLM, {"tool_choice": "none", "tools": TOOLS}),
    ("--openai-glm-named-tool-choice-auto", GLM, {"tool_choice": "required", "tools": TOOLS}),
    ("--openai-glm-named-tool-choice-auto", OTHER, {"tool_choice": NAMED, "tools": TOOLS}),
    (COMPAT, OTHER, {"thinking": {"type": "disabled"}, "n": 3}),
    (COMPAT, KIMI, {**FIXED, "temperature": 0.3}),
    (COMPAT, KIMI, {**FIXED, "thinking": None}),
    (COMPAT, KIMI, {**FIXED, "thinking": {"type": "enabled"}, "chat_template_kwargs": {"thinking": True}}),
    (
        f"{COMPAT} --openai-kimi-sampling fill",
        KIMI,
        {"top_p": 1, "presence_penalty": 1, "frequency_penalty": 1, "n": 2},
    ),
    (f"{COMPAT} --openai-kimi-sampling reject", KIMI, {**FIXED, "temperature": 1}),
    (FLATTEN, OTHER, {"messages": tool_chat("12 C")}),
    (FLATTEN, OTHER, {"messages": tool_chat(None)}),
    (FLATTEN, OTHER, {"messages": tool_chat([*texts("a"), {"type": "image_url", "image_url": {"url": "x"}}])}),
    (FLATTEN, OTHER, {"messages": tool_chat([{"type": "text", "text": "a", "cache_control": {}}])}),
    (FLATTEN, OTHER, {"messages": [{"role": "user", "content": texts("a", "b")}]}),
    (THINK, KIMI, {}),
    (THINK, KIMI, {"chat_template_kwargs": {"thinking": False}}),
    (THINK, GLM_ALWAYS, {"reasoning_effort": "low"}),
    (THINK, OTHER, {"reasoning_effort": "low"}),
    ("--openai-kimi-tool-call-ids", OTHER, {"messages": tool_chat("ok")}),
    ("--openai-kimi-tool-call-ids", KIMI, {"messages": [{"role": "user", "content": "x"}]}),
    ("--openai-chat-default-max-tokens 9 --openai-streaming-error-preflight", KIMI, {}),
]


@pytest.mark.parametrize(("flags", "model", "fields"), UNCHANGED)
def test_a_policy_leaves_alone_what_its_rule_does_not_name(flags: str, model: str, fields: dict[str, Any]) -> None:
    asked = request(**fields)
    got, ledger = served(flags, model, asked)
    assert got is asked
    assert ledger.changes == []


REFUSED = [
    (COMPAT, KIMI, {"thinking": "disabled"}, "thinking", "thinking: expected an object with a type"),
    (COMPAT, KIMI, {"thinking": True}, "thinking", "thinking: expected an object with a type"),
    (THINK, OTHER, {"thinking": {"type": "sometimes"}}, "thinking.type", "thinking.type: Invalid enum value"),
    (THINK, OTHER, {"thinking": {"type": None}}, "thinking.type", "thinking.type: Expected `str`, got `null`"),
    (THINK, OTHER, {"thinking": "enabled"}, "thinking", "thinking: Expected `object | null`, got `str`"),
    (THINK, KIMI, {"thinking": {"keep": "some"}}, "thinking.keep", "thinking.keep: Invalid enum value"),
    (THINK, KIMI, {"thinking": {"effort": "huge"}}, "thinking.effort", "thinking.effort: Invalid enum value"),
    (THINK, K3, {"thinking": {"type": "disabled"}}, "thinking.type", "thinking.type: this model always thinks"),
    (THINK, GLM_ALWAYS, {"reasoning_effort": "none"}, "reasoning_effort", "reasoning_effort: this model always thinks"),
    (
        THINK,
        K3,
        {"chat_template_kwargs": {"thinking": "false"}},
        "chat_template_kwargs.thinking",
        "chat_template_kwargs.thinking: this model always thinks",
    ),
    (
        THINK,
        KIMI,
        {"chat_template_kwargs": {"thinking": "maybe"}},
        "chat_template_kwargs.thinking",
        "chat_template_kwargs.thinking: must be true or false",
    ),
]


@pytest.mark.parametrize(("flags", "model", "fields", "param", "message"), REFUSED)
def test_what_a_policy_cannot_serve_is_a_400_that_names_the_field(
    flags: str, model: str, fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        served(flags, model, request(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)
    assert caught.value.message.startswith(message)
    assert caught.value.headers == {"x-paraserve-policies": flags.split()[0].removeprefix("--openai-")}
    asked = request(**fields)
    assert served("", model, asked)[0] is asked


# The parameter table of the vendor's verifier: name, right value while thinking and when not, wrong value.
VERIFIER = [
    ("temperature", 1.0, 0.6, 0.5),
    ("top_p", 0.95, 0.95, 0.8),
    ("presence_penalty", 0, 0, 0.5),
    ("frequency_penalty", 0, 0, 0.5),
    ("n", 1, 1, 2),
]
SPELLINGS = {
    "the vendor's field": lambda on: {"thinking": {"type": "enabled" if on else "disabled"}},
    "template variable": lambda on: {"chat_template_kwargs": {"thinking": on}},
    "effort": lambda on: {"reasoning_effort": "high" if on else "none"},
}
REJECT = f"{COMPAT} --openai-kimi-sampling reject"


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize(("name", "while_thinking", "when_not", "wrong"), VERIFIER)
def test_the_vendors_verifier_gets_right_and_omitted_served_and_wrong_refused(
    spelling: str, thinking: bool, name: str, while_thinking: float, when_not: float, wrong: float
) -> None:
    right = while_thinking if thinking else when_not
    state = SPELLINGS[spelling](thinking)
    for fields in ({}, {name: right}):
        got, _ = served(REJECT, KIMI, request(**state, **fields))
        assert getattr(got, name) == right
    with pytest.raises(RequestError) as caught:
        served(REJECT, KIMI, request(**state, **{name: wrong}))
    assert (caught.value.status, caught.value.param) == (400, name)
    assert f"{right:g}" in caught.value.message


@pytest.mark.parametrize(("temperature", "allowed"), [(0, True), (0.6, True), (1.0, True), (0.7, False), (2, False)])
def test_three_temperatures_are_right_while_thinking(temperature: float, allowed: bool) -> None:
    asked = request(temperature=temperature)
    if allowed:
        assert served(REJECT, KIMI, asked)[0].temperature == temperature
        return
    with pytest.raises(RequestError, match=r"temperature: must be 0 or 0\.6 or 1 for this model while thinking"):
        served(REJECT, KIMI, asked)


def test_thinking_that_the_server_switched_off_decides_about_the_temperature() -> None:
    flags = f'{REJECT} --chat-template-kwargs {{"thinking":false}}'
    assert served(flags, KIMI, request())[0].temperature == 0.6
    assert served(flags, KIMI, request(thinking={"type": "enabled"}))[0].temperature == 1.0
    with pytest.raises(RequestError, match=r"temperature: must be 0\.6 for this model when not thinking"):
        served(flags, KIMI, request(temperature=1))


def test_both_thinking_policies_agree_whatever_the_spelling() -> None:
    flags = f"{THINK} {COMPAT} --openai-kimi-sampling reject"
    got, ledger = served(flags, KIMI, request(chat_template_kwargs={"thinking": "false"}, temperature=0.6))
    assert got.chat_template_kwargs == {"thinking": False}
    assert ledger.policies == ("thinking-object", "kimi-compat")


def test_required_without_the_guarantee_is_reported_to_the_operator_and_the_client() -> None:
    asked = request(tool_choice="required", tools=TOOLS)
    _, ledger = served("--openai-glm-compat --openai-force-tool-choice-auto", GLM, asked)
    assert ledger.changes == [Change("glm-compat", "tool_choice", "required", "auto")]
    assert ledger.headers == {"x-paraserve-policies": "glm-compat"}


def test_completions_are_never_rewritten() -> None:
    every_flag = " ".join(policy.flag for policy in POLICIES if isinstance(getattr(NAMES_OFF, policy.setting), bool))
    for model in (KIMI, GLM):
        asked = object()
        assert Policies(settings(every_flag), model).on("completions").apply(asked)[0] is asked
