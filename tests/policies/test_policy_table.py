"""The table of policies: order, names, what is in force where, the rules for later stages, the ledger."""

import logging

import pytest

from paraserve.policies import POLICIES, Policies, ReplyRules
from paraserve.policies.base import differences
from paraserve.policies.kimi_tool_call_ids import canonical_tool_call_ids
from paraserve.protocol.chat import decode_chat
from paraserve.settings import load_settings

KIMI, GLM, OTHER = "/m/Kimi-K2.6", "/m/GLM-4.6", "/m/other"

RULES = [
    # flags, model path, endpoint, rules that differ from upstream's behaviour
    ("", KIMI, "chat", {}),
    ("", GLM, "completions", {}),
    ("--openai-chat-default-max-tokens 7", OTHER, "chat", {"default_max_tokens": 7}),
    ("--openai-chat-default-max-tokens 7", OTHER, "completions", {}),
    ("--openai-glm-compat", GLM, "chat", {"overflow_status": 413, "reasoning_in_details": True}),
    ("--openai-glm-compat", GLM, "completions", {"overflow_status": 413}),
    ("--openai-glm-compat", KIMI, "chat", {}),
    ("--openai-streaming-error-preflight", OTHER, "chat", {"preflight": True}),
    ("--openai-streaming-error-preflight", OTHER, "completions", {"preflight": True}),
    (
        "--openai-streaming-error-preflight --openai-streaming-error-preflight-seconds 2.5",
        OTHER,
        "chat",
        {"preflight": True, "preflight_seconds": 2.5},
    ),
    ("--openai-stream-usage default", OTHER, "chat", {"stream_usage": "default"}),
    ("--openai-stream-usage last-choice", OTHER, "completions", {"stream_usage": "last-choice"}),
    ("--openai-max-tokens-overflow clamp", OTHER, "chat", {"clamp_max_tokens": True}),
    ("--openai-max-tokens-overflow clamp", OTHER, "completions", {"clamp_max_tokens": True}),
    ("--openai-stop-after-reasoning", OTHER, "chat", {"stop_in_reasoning": False}),
    ("--openai-kimi-compat", KIMI, "chat", {}),
]


def policies(flags: str, model: str = OTHER) -> Policies:
    return Policies(load_settings(flags.split(), {}).settings, model)


@pytest.mark.parametrize(("flags", "model", "endpoint", "expected"), RULES)
def test_rules_are_upstreams_unless_a_policy_in_force_sets_them(
    flags: str, model: str, endpoint: str, expected: dict[str, object]
) -> None:
    assert policies(flags, model).on(endpoint).rules == ReplyRules(**expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [KIMI, GLM, OTHER])
def test_nothing_is_in_force_by_default(model: str) -> None:
    default = policies("", model)
    assert default.on("chat").in_force == default.on("completions").in_force == ()
    assert not any(state.on or state.endpoints for state in default.states())


def test_every_policy_is_listed_once_with_flag_value_and_one_line() -> None:
    states = policies("--openai-compat para --openai-stream-usage default", KIMI).states()
    assert [state.name for state in states] == list(dict.fromkeys(policy.name for policy in POLICIES))
    by_name = {state.name: state for state in states}
    assert by_name["kimi-compat"].endpoints == ["chat"]
    assert (by_name["glm-compat"].on, by_name["glm-compat"].endpoints) == (True, [])
    assert by_name["stream-usage"].value == "default"
    assert by_name["chat-default-max-tokens"].flag == "--openai-chat-default-max-tokens"
    assert all(state.summary.endswith(".") and "\n" not in state.summary for state in states)


def test_a_rule_that_made_a_difference_is_on_the_ledger_under_its_policy() -> None:
    asked = decode_chat(b'{"messages": [{"role": "user", "content": "hi"}]}')
    _, ledger = policies("--openai-glm-compat --openai-max-tokens-overflow clamp", GLM).on("chat").apply(asked)
    ledger.used("overflow_status", 400, 413)
    ledger.used("clamp_max_tokens", 5000, 300)
    ledger.used("reasoning_in_details", False, True)
    ledger.used("preflight", 200, 503)
    assert ledger.policies == ("glm-compat", "max-tokens-overflow")
    assert ledger.headers == {"x-paraserve-policies": "glm-compat, max-tokens-overflow"}


def test_changes_are_logged_at_debug_with_field_from_and_to(caplog: pytest.LogCaptureFixture) -> None:
    _, ledger = policies("--openai-max-tokens-overflow clamp").on("chat").apply(object())
    ledger.used("clamp_max_tokens", "x" * 5000, 300)
    with caplog.at_level(logging.INFO, logger="paraserve.policies"):
        ledger.log("req-1")
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, logger="paraserve.policies"):
        ledger.log("req-1")
    (line,) = caplog.messages
    assert line.startswith("req-1: policy max-tokens-overflow: clamp_max_tokens: 'xxx")
    assert line.endswith("... -> 300")
    assert len(line) < 250


def test_differences_name_the_leaf_that_changed() -> None:
    shared = {"deep": [1, 2]}
    before = {"a": 1, "b": [shared, {"c": 1}], "gone": 1}
    after = {"a": 1, "b": [shared, {"c": 2}], "new": [1]}
    assert list(differences(before, after)) == [("b[1].c", 1, 2), ("gone", 1, None), ("new", None, [1])]


def call(call_id: str | None, name: str = "read_file") -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def turn(*calls: dict[str, object]) -> dict[str, object]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(call_id: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


IDS = [
    ("other ids", [turn(call("call_9f")), result("call_9f")], ["functions.read_file:0"], ["functions.read_file:0"]),
    ("no ids", [turn(call(None)), result("x")], ["functions.read_file:0"], ["x"]),
    (
        "ids that start over in every turn",
        [turn(call("0"), call("1", "ls")), result("1"), result("0"), turn(call("0", "ls")), result("0")],
        ["functions.read_file:0", "functions.ls:1", "functions.ls:2"],
        ["functions.ls:1", "functions.read_file:0", "functions.ls:2"],
    ),
    (
        "canonical ids of a conversation that lost its beginning",
        [turn(call("functions.read_file:4")), result("functions.read_file:4")],
        ["functions.read_file:0"],
        ["functions.read_file:0"],
    ),
    (
        "canonical ids in another order",
        [turn(call("functions.ls:1", "ls"), call("functions.ls:0", "ls")), result("functions.ls:0")],
        ["functions.ls:0", "functions.ls:1"],
        ["functions.ls:1"],
    ),
]


@pytest.mark.parametrize(("messages", "calls", "results"), [row[1:] for row in IDS], ids=[row[0] for row in IDS])
def test_history_ids_become_canonical_for_calls_and_their_results(
    messages: list[dict[str, object]], calls: list[str], results: list[str]
) -> None:
    got = canonical_tool_call_ids(messages)
    assert [c["id"] for message in got if message["role"] == "assistant" for c in message["tool_calls"]] == calls
    assert [message["tool_call_id"] for message in got if message["role"] == "tool"] == results
    again = canonical_tool_call_ids(got)
    assert all(new is old for new, old in zip(again, got, strict=True))
