"""Every rule of the policies at the wire, flag off and on, streamed and not.

What the engine was asked and what the client got. Off, a server under a Kimi or GLM path does what it does under any
other path, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from paraserve.engines.base import EngineError, EngineRequest
from paraserve.engines.scripted.engine import ScriptedReply
from tests.policies.exchange import Exchange, exchange
from tests.toy import TOKENIZER, reply

KIMI, GLM, TOY = "models/Moonshot-KIMI-k2.6", "models/Zai-GLM-4.6", "models/toy"
TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]
NAMED = {"type": "function", "function": {"name": "ls"}}
HI = [{"role": "user", "content": "hi"}]
FAILURE = EngineError(503, "engine_overloaded", "The engine is busy.")

PLAIN_TEMPLATE = """\
{%- for message in messages -%}
<|{{ 'assistant' if message.role == 'assistant' else 'user' }}|>
{%- if message.role == 'tool' %}[result of {{ message.tool_call_id }}] {% endif -%}
{{ message.content if message.content is string else message.content | tojson }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.id }} {{ call.function | tojson }}</tool_call>
{%- endfor -%}
{%- endfor -%}
{%- if tools %}[tools {{ tools | tojson }}]{% endif -%}
{%- if add_generation_prompt %}<|assistant|>
{%- if thinking is defined %}{{ '<think>' if thinking else '<think></think>' }}{% endif -%}
{%- endif -%}
"""
"""Shows ids, and a list of parts as the data structure that it is."""

AS_SENT = {"history_normalization": "off"}
"""The prompt stage would adapt a list of parts to this template; what a policy does must show without it."""

Check = Callable[[Exchange], None]


def asked(got: Exchange) -> EngineRequest:
    return got.engine.requests[0]


def sampling(**expected: Any) -> Check:
    def check(got: Exchange) -> None:
        assert {name: getattr(asked(got).sampling, name) for name in expected} == expected

    return check


def limit(tokens: int | None) -> Check:
    """The limit that the engine was asked for; None is all the room of the toy's 4096."""

    def check(got: Exchange) -> None:
        room = 4096 - len(asked(got).token_ids)
        assert asked(got).sampling.max_tokens == (room if tokens is None else tokens)

    return check


def constrained(got: Exchange) -> None:
    assert asked(got).constraint is not None


def free(got: Exchange) -> None:
    assert asked(got).constraint is None


def prompt_has(text: str) -> Check:
    def check(got: Exchange) -> None:
        assert text in got.prompt

    return check


def prompt_lacks(text: str) -> Check:
    def check(got: Exchange) -> None:
        assert text not in got.prompt

    return check


def prompt_ends(text: str) -> Check:
    def check(got: Exchange) -> None:
        assert got.prompt.endswith(text)

    return check


def choices(count: int) -> Check:
    def check(got: Exchange) -> None:
        assert len(got.choices) == len(got.engine.requests) == count

    return check


def refused(status: int, param: str | None, *phrases: str, code: str | None = None) -> Check:
    """Before the engine was asked, with a plain body even where a stream was wanted."""

    def check(got: Exchange) -> None:
        assert got.engine.requests == []
        assert not got.streams
        assert got.status == status
        error = got.error
        assert error is not None
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"
        if code is not None:
            assert error["code"] == code
        for phrase in phrases:
            assert phrase in error["message"]

    return check


def usage(**expected: Any) -> Check:
    """The reasoning part of usage, exactly."""

    def check(got: Exchange) -> None:
        assert got.usage is not None
        counts = {"prompt_tokens", "completion_tokens", "total_tokens"}
        assert {name: value for name, value in got.usage.items() if name not in counts} == expected

    return check


def said(content: str, *, reasoning: str = "", finish: str = "stop") -> Check:
    def check(got: Exchange) -> None:
        (choice,) = got.choices
        assert (choice.content, choice.reasoning, choice.finish) == (content, reasoning, finish)

    return check


def stream_usage(in_chunk: bool, in_choice: bool = False) -> Check:
    def check(got: Exchange) -> None:
        if not got.streams:
            assert got.usage is not None
            return
        assert (got.usage is not None) == in_chunk
        in_choices = [choice.usage for choice in got.choices if choice.usage is not None]
        assert in_choices == ([got.usage] if in_choice else [])

    return check


def both(*checks: Check) -> Check:
    def check(got: Exchange) -> None:
        for one in checks:
            one(got)

    return check


@dataclass(frozen=True)
class Rule:
    """One rule: what a request leads to without the flags and with them.

    ``header`` is what a response shows in ``x-paraserve-policies`` with the flags; without them there is none.
    """

    flags: str
    body: dict[str, Any]
    off: Check
    on: Check
    header: str | None
    model: str = TOY
    endpoint: str = "chat"
    replies: tuple[ScriptedReply, ...] = (reply("Hello."),)
    served: dict[str, Any] = field(default_factory=dict)
    header_of_stream: str | None = "same"


DEFAULT_LIMIT = "--openai-chat-default-max-tokens"
FORCE = "--openai-force-tool-choice-auto"
COMPAT_KIMI = "--openai-kimi-compat"
REJECT = "--openai-kimi-compat --openai-kimi-sampling reject"
COMPAT_GLM = "--openai-glm-compat"
FLATTEN = "--openai-flatten-tool-role-text-content"
CLAMP = "--openai-max-tokens-overflow clamp"
IDS = "--openai-kimi-tool-call-ids"
THINKING = "--openai-thinking-object"
STOP = "--openai-stop-after-reasoning"
USAGE = "--openai-stream-usage"

FIXED = {"top_p": 0.95, "presence_penalty": 0.0, "frequency_penalty": 0.0}
SENT = {"top_p": 0.5, "presence_penalty": 1.0, "frequency_penalty": -1.0}
API = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
LONG = [{"role": "user", "content": "x" * 5000}]
THOUGHTFUL = reply("<think>plan</think>Hi")
QUOTED_STOP = reply("<think>restate Q: two</think>4 Q: next")


def tool_turn(content: Any, call_id: str = "call_9f") -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    return [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": content},
    ]


def texts(*parts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part, **more} for part in parts]


OVERFLOW = ("maximum context length is 4096 tokens", "50")

RULES = {
    "default limit: none sent": Rule(f"{DEFAULT_LIMIT} 7", {}, limit(None), limit(7), "chat-default-max-tokens"),
    "default limit: null sent": Rule(
        f"{DEFAULT_LIMIT} 7", {"max_tokens": None}, limit(None), limit(7), "chat-default-max-tokens"
    ),
    "default limit: capped by the room": Rule(f"{DEFAULT_LIMIT} 32768", {}, limit(None), limit(None), None),
    "default limit: never below what the client wants at least": Rule(
        f"{DEFAULT_LIMIT} 5", {"min_tokens": 10}, limit(None), limit(10), "chat-default-max-tokens"
    ),
    "default limit: max_tokens sent": Rule(f"{DEFAULT_LIMIT} 7", {"max_tokens": 9}, limit(9), limit(9), None),
    "default limit: max_completion_tokens sent": Rule(
        f"{DEFAULT_LIMIT} 7", {"max_completion_tokens": 9}, limit(9), limit(9), None
    ),
    "default limit: completions keep 16": Rule(
        f"{DEFAULT_LIMIT} 7", {"prompt": "hi"}, limit(16), limit(16), None, endpoint="completions"
    ),
    "force auto: required": Rule(
        FORCE, {"tools": TOOLS, "tool_choice": "required"}, constrained, free, "force-tool-choice-auto"
    ),
    "force auto: named": Rule(
        FORCE, {"tools": TOOLS, "tool_choice": NAMED}, constrained, free, "force-tool-choice-auto"
    ),
    "force auto: none": Rule(
        FORCE,
        {"tools": TOOLS, "tool_choice": "none"},
        prompt_lacks("[tools"),
        prompt_has("[tools"),
        "force-tool-choice-auto",
    ),
    "force auto: required without tools": Rule(
        FORCE, {"tool_choice": "required"}, refused(400, "tool_choice"), free, "force-tool-choice-auto"
    ),
    "force auto: a form that no API here knows": Rule(
        FORCE,
        {"tools": TOOLS, "tool_choice": {"type": "any"}},
        refused(400, "tool_choice.type"),
        free,
        "force-tool-choice-auto",
    ),
    "force auto: auto": Rule(FORCE, {"tools": TOOLS, "tool_choice": "auto"}, free, free, None),
    "force auto: absent": Rule(FORCE, {"tools": TOOLS}, free, free, None),
    "kimi: nothing sent": Rule(
        COMPAT_KIMI, {}, sampling(**API), both(sampling(**FIXED), choices(1)), "kimi-compat", KIMI
    ),
    "kimi: other values sent": Rule(
        COMPAT_KIMI,
        {**SENT, "n": 2},
        both(sampling(**SENT), choices(2)),
        both(sampling(**FIXED), choices(1)),
        "kimi-compat",
        KIMI,
    ),
    "kimi: temperature is the client's": Rule(
        COMPAT_KIMI, {"temperature": 0.3}, sampling(temperature=0.3), sampling(temperature=0.3), "kimi-compat", KIMI
    ),
    "kimi: thinking enabled": Rule(
        COMPAT_KIMI,
        {"thinking": {"type": "enabled"}},
        prompt_ends("<|assistant|>"),
        prompt_ends("<think>"),
        "kimi-compat",
        KIMI,
        replies=(reply("plan</think>Hi"),),
    ),
    "kimi: thinking of another type": Rule(
        COMPAT_KIMI,
        {"thinking": {"type": "adaptive"}},
        prompt_ends("<|assistant|>"),
        prompt_ends("<think>"),
        "kimi-compat",
        KIMI,
        replies=(reply("plan</think>Hi"),),
    ),
    "kimi: thinking disabled": Rule(
        COMPAT_KIMI,
        {"thinking": {"type": "disabled"}},
        prompt_ends("<|assistant|>"),
        both(prompt_ends("</think>"), said("Hello.")),
        "kimi-compat",
        KIMI,
    ),
    "kimi: thinking beats the template variable": Rule(
        COMPAT_KIMI,
        {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": True}},
        prompt_ends("<think>"),
        prompt_ends("</think>"),
        "kimi-compat",
        KIMI,
    ),
    "kimi: not on another model": Rule(
        COMPAT_KIMI,
        {**SENT, "n": 2, "thinking": {"type": "disabled"}},
        both(sampling(**SENT), choices(2)),
        both(sampling(**SENT), choices(2), prompt_ends("<|assistant|>")),
        None,
    ),
    "kimi: not on completions": Rule(
        COMPAT_KIMI, {"prompt": "hi", **SENT}, sampling(**SENT), sampling(**SENT), None, KIMI, "completions"
    ),
    "kimi fill: sent values stay": Rule(
        f"{COMPAT_KIMI} --openai-kimi-sampling fill",
        {"top_p": 0.5, "n": 2},
        both(sampling(top_p=0.5), choices(2)),
        both(sampling(top_p=0.5), choices(2)),
        "kimi-compat",
        KIMI,
    ),
    "kimi fill: missing values are filled": Rule(
        f"{COMPAT_KIMI} --openai-kimi-sampling fill", {}, sampling(**API), sampling(**FIXED), "kimi-compat", KIMI
    ),
    "kimi reject: wrong top_p": Rule(
        REJECT, {"top_p": 0.8}, sampling(top_p=0.8), refused(400, "top_p", "must be 0.95"), "kimi-compat", KIMI
    ),
    "kimi reject: wrong n": Rule(REJECT, {"n": 2}, choices(2), refused(400, "n", "must be 1"), "kimi-compat", KIMI),
    "kimi reject: wrong temperature while thinking": Rule(
        REJECT,
        {"temperature": 0.5},
        sampling(temperature=0.5),
        refused(400, "temperature", "must be 0 or 0.6 or 1"),
        "kimi-compat",
        KIMI,
    ),
    "kimi reject: wrong temperature when not thinking": Rule(
        REJECT,
        {"temperature": 1.0, "thinking": {"type": "disabled"}},
        sampling(temperature=1.0),
        refused(400, "temperature", "must be 0.6"),
        "kimi-compat",
        KIMI,
    ),
    "kimi reject: right values": Rule(
        REJECT,
        {**FIXED, "n": 1, "temperature": 0.6, "thinking": {"type": "disabled"}},
        sampling(temperature=0.6),
        sampling(temperature=0.6, **FIXED),
        "kimi-compat",
        KIMI,
    ),
    "glm: required": Rule(
        COMPAT_GLM, {"tools": TOOLS, "tool_choice": "required"}, constrained, free, "glm-compat", GLM
    ),
    "glm: required on another model": Rule(
        COMPAT_GLM, {"tools": TOOLS, "tool_choice": "required"}, constrained, constrained, None
    ),
    "glm: named stays forced": Rule(
        COMPAT_GLM,
        {"tools": TOOLS, "tool_choice": NAMED},
        constrained,
        constrained,
        "glm-compat",
        GLM,
        header_of_stream=None,
    ),
    "glm named: named": Rule(
        "--openai-glm-named-tool-choice-auto",
        {"tools": TOOLS, "tool_choice": NAMED},
        constrained,
        free,
        "glm-named-tool-choice-auto",
        GLM,
    ),
    "glm: too long a chat": Rule(
        COMPAT_GLM,
        {"messages": LONG},
        refused(400, "messages", *OVERFLOW, code="context_length_exceeded"),
        refused(413, "messages", *OVERFLOW, code="context_length_exceeded"),
        "glm-compat",
        GLM,
    ),
    "glm: too long a prompt": Rule(
        COMPAT_GLM,
        {"prompt": "x" * 5000},
        refused(400, "prompt", *OVERFLOW, code="context_length_exceeded"),
        refused(413, "prompt", *OVERFLOW, code="context_length_exceeded"),
        "glm-compat",
        GLM,
        "completions",
    ),
    "glm: too long a limit is still a 400": Rule(
        COMPAT_GLM,
        {"max_tokens": 5000},
        refused(400, "max_tokens", "maximum context length is 4096", code="context_length_exceeded"),
        refused(400, "max_tokens", "maximum context length is 4096", code="context_length_exceeded"),
        None,
        GLM,
    ),
    "glm: too long a chat on another model": Rule(
        COMPAT_GLM, {"messages": LONG}, refused(400, "messages"), refused(400, "messages"), None
    ),
    "flatten: text parts": Rule(
        FLATTEN,
        {"messages": tool_turn(texts("12 C", " rain"))},
        prompt_has('[result of call_9f] [{"type": "text", "text": "12 C"}'),
        prompt_has("[result of call_9f] 12 C rain<|"),
        "flatten-tool-role-text-content",
        served=AS_SENT,
    ),
    "flatten: no parts": Rule(
        FLATTEN,
        {"messages": tool_turn([])},
        prompt_has("[result of call_9f] []<|"),
        prompt_has("[result of call_9f] <|"),
        "flatten-tool-role-text-content",
        served=AS_SENT,
    ),
    "flatten: a part with another field": Rule(
        FLATTEN,
        {"messages": tool_turn(texts("12 C", cache_control={"type": "ephemeral"}))},
        prompt_has("cache_control"),
        prompt_has("cache_control"),
        None,
        served=AS_SENT,
    ),
    "flatten: a string": Rule(
        FLATTEN,
        {"messages": tool_turn("12 C")},
        prompt_has("[result of call_9f] 12 C<|"),
        prompt_has("[result of call_9f] 12 C<|"),
        None,
    ),
    "flatten: a user's parts": Rule(
        FLATTEN,
        {"messages": [{"role": "user", "content": texts("a", "b")}]},
        prompt_has('[{"type"'),
        prompt_has('[{"type"'),
        None,
        served=AS_SENT,
    ),
    "kimi ids": Rule(
        IDS,
        {"messages": tool_turn("ok")},
        prompt_has("<tool_call>call_9f "),
        both(prompt_has("<tool_call>functions.ls:0 "), prompt_has("[result of functions.ls:0]")),
        "kimi-tool-call-ids",
        KIMI,
    ),
    "kimi ids: not on another model": Rule(
        IDS, {"messages": tool_turn("ok")}, prompt_has("<tool_call>call_9f "), prompt_has("<tool_call>call_9f "), None
    ),
    "thinking object: disabled": Rule(
        THINKING,
        {"thinking": {"type": "disabled"}, "reasoning_effort": "high"},
        prompt_ends("<|assistant|>"),
        both(prompt_ends("</think>"), said("Hello.")),
        "thinking-object",
    ),
    "thinking object: unknown type": Rule(
        THINKING,
        {"thinking": {"type": "sometimes"}},
        said("Hello."),
        refused(400, "thinking.type"),
        "thinking-object",
    ),
    "thinking object: a text as a switch": Rule(
        f"{THINKING} {REJECT}",
        {"chat_template_kwargs": {"thinking": "false"}, "temperature": 0.6},
        said("Hello."),
        both(prompt_ends("</think>"), sampling(temperature=0.6)),
        "thinking-object, kimi-compat",
        KIMI,
    ),
    "overflow: clamped chat": Rule(
        CLAMP, {"max_tokens": 5000}, refused(400, "max_tokens", "there is room for"), limit(None), "max-tokens-overflow"
    ),
    "overflow: clamped completion": Rule(
        CLAMP,
        {"prompt": "hi", "max_tokens": 5000},
        refused(400, "max_tokens", "there is room for 4094"),
        limit(4094),
        "max-tokens-overflow",
        endpoint="completions",
    ),
    "overflow: a limit that fits": Rule(CLAMP, {"max_tokens": 50}, limit(50), limit(50), None),
    "overflow: a prompt that does not fit": Rule(
        CLAMP, {"messages": LONG}, refused(400, "messages"), refused(400, "messages"), None
    ),
    "stop while thinking": Rule(
        STOP,
        {"stop": ["Q:"]},
        said("", reasoning="restate "),
        said("4 ", reasoning="restate Q: two"),
        "stop-after-reasoning",
        replies=(QUOTED_STOP,),
    ),
    "stop after thinking was switched off": Rule(
        STOP,
        {"stop": ["Q:"], "chat_template_kwargs": {"thinking": False}},
        said("4 "),
        said("4 "),
        None,
        replies=(reply("4 Q: next"),),
    ),
}


def spoken(rule: Rule, stream: bool) -> dict[str, Any]:
    start = {} if rule.endpoint == "completions" else {"messages": HI}
    return {**start, **rule.body, "stream": stream}


async def served(rule: Rule, *, flags: str, stream: bool, model: str | None = None) -> Exchange:
    return await exchange(
        spoken(rule, stream),
        *rule.replies,
        flags=flags,
        model_path=model or rule.model,
        endpoint=rule.endpoint,
        **{"template": PLAIN_TEMPLATE, **rule.served},
    )


def without_ids(body: bytes) -> str:
    text = re.sub(r'"(chatcmpl|cmpl)-[0-9a-f]{32}"', '"ID"', body.decode())
    return re.sub(r'"created":\d+', '"created":0', text)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
async def test_a_rule_holds_with_its_flags_and_only_then(rule: Rule, stream: bool) -> None:
    on = await served(rule, flags=rule.flags, stream=stream)
    rule.on(on)
    assert on.policies == (rule.header_of_stream if stream and rule.header_of_stream != "same" else rule.header)

    off = await served(rule, flags="", stream=stream)
    rule.off(off)
    assert off.policies is None
    elsewhere = await served(rule, flags="", stream=stream, model=TOY)
    assert without_ids(off.body) == without_ids(elsewhere.body)
    assert [engine_view(r) for r in off.engine.requests] == [engine_view(r) for r in elsewhere.engine.requests]


def engine_view(request: EngineRequest) -> tuple[Any, ...]:
    return (list(request.token_ids), request.sampling, request.constraint, request.logprobs, request.in_reasoning)


USAGE_SHAPES = [
    # flags, model, endpoint, reply, the reasoning part of usage
    ("", GLM, "chat", "Hello.", {"reasoning_tokens": 0}),
    (
        "",
        GLM,
        "chat",
        "<think>plan</think>Hi",
        {"reasoning_tokens": 6, "completion_tokens_details": {"reasoning_tokens": 6}},
    ),
    (COMPAT_GLM, GLM, "chat", "Hello.", {"completion_tokens_details": {"reasoning_tokens": 0}}),
    (COMPAT_GLM, GLM, "chat", "<think>plan</think>Hi", {"completion_tokens_details": {"reasoning_tokens": 6}}),
    (COMPAT_GLM, TOY, "chat", "Hello.", {"reasoning_tokens": 0}),
    (COMPAT_GLM, GLM, "completions", "Hello.", {"reasoning_tokens": 0}),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("flags", "model", "endpoint", "text", "expected"), USAGE_SHAPES)
async def test_reasoning_tokens_are_where_the_deployment_wants_them(
    flags: str, model: str, endpoint: str, text: str, expected: dict[str, Any], stream: bool
) -> None:
    body: dict[str, Any] = {"messages": HI} if endpoint == "chat" else {"prompt": "hi"}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    got = await exchange(body, reply(text), flags=flags, model_path=model, endpoint=endpoint)
    usage(**expected)(got)
    assert got.policies == ("glm-compat" if flags and model == GLM and endpoint == "chat" else None)


STREAM_USAGE = [
    # value, stream_options, in the chunk without choices, in the last choice
    ("requested", None, False, False),
    ("requested", {}, False, False),
    ("requested", {"include_usage": False}, False, False),
    ("requested", {"include_usage": True}, True, False),
    ("default", None, True, False),
    ("default", {}, True, False),
    ("default", {"include_usage": False}, False, False),
    ("default", {"include_usage": True}, True, False),
    ("last-choice", None, True, True),
    ("last-choice", {"include_usage": False}, False, False),
    ("last-choice", {"include_usage": True}, True, True),
]


@pytest.mark.parametrize(("value", "options", "in_chunk", "in_choice"), STREAM_USAGE)
@pytest.mark.parametrize("n", [1, 2])
async def test_stream_usage_is_sent_when_the_policy_says_so(
    value: str, options: dict[str, Any] | None, in_chunk: bool, in_choice: bool, n: int
) -> None:
    body = {"messages": HI, "stream": True, "n": n}
    if options is not None:
        body["stream_options"] = options
    got = await exchange(body, reply("Hello."), flags=f"{USAGE} {value}")
    stream_usage(in_chunk, in_choice)(got)
    assert got.body.endswith(b"data: [DONE]\n\n")
    assert [choice.content for choice in got.choices] == ["Hello."] * n


@pytest.mark.parametrize(("value", "in_chunk"), [("requested", False), ("default", True), ("last-choice", True)])
async def test_stream_usage_of_completions_is_in_its_own_chunk_only(value: str, in_chunk: bool) -> None:
    body = {"prompt": "hi", "stream": True}
    got = await exchange(body, reply("Hello."), flags=f"{USAGE} {value}", endpoint="completions")
    stream_usage(in_chunk)(got)
    assert got.choices[0].content == "Hello."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_stop_strings_of_completions_wait_for_the_end_of_reasoning_too(stream: bool) -> None:
    body = {"prompt": "hi<think>", "stop": ["Q:"], "max_tokens": 50, "stream": stream}
    off = await exchange(body, reply("restate Q: two</think>4 Q: next"), endpoint="completions")
    assert (off.choices[0].content, off.choices[0].finish) == ("restate ", "stop")
    on = await exchange(body, reply("restate Q: two</think>4 Q: next"), endpoint="completions", flags=STOP)
    assert (on.choices[0].content, on.choices[0].finish) == ("restate Q: two</think>4 ", "stop")


@pytest.mark.parametrize("value", ["default", "last-choice"])
async def test_stream_usage_leaves_a_whole_response_alone(value: str) -> None:
    plain = await exchange({"messages": HI}, reply("Hello."))
    got = await exchange({"messages": HI}, reply("Hello."), flags=f"{USAGE} {value}")
    assert without_ids(got.body) == without_ids(plain.body)
    assert got.policies is None


STREAMS = [
    ("chat", {"messages": HI, "stream": True}),
    ("completions", {"prompt": "hi", "stream": True}),
]
PREFLIGHT = "--openai-streaming-error-preflight"


@pytest.mark.parametrize(("endpoint", "body"), STREAMS)
async def test_an_error_before_the_first_chunk_is_a_plain_error_with_the_preflight(
    endpoint: str, body: dict[str, Any]
) -> None:
    failing = reply("Hello.", error=FAILURE)
    off = await exchange(body, failing, endpoint=endpoint)
    assert (off.status, off.streams) == (200, True)
    assert off.error is not None
    assert off.error["code"] == "engine_overloaded"

    on = await exchange(body, failing, endpoint=endpoint, flags=PREFLIGHT)
    assert (on.status, on.streams) == (503, False)
    assert json.loads(on.body) == {"error": off.error}
    assert on.headers["retry-after"]
    assert on.policies == "streaming-error-preflight"
    assert on.engine.running == 0


@pytest.mark.parametrize(("endpoint", "body"), STREAMS)
@pytest.mark.parametrize("flags", ["", PREFLIGHT])
async def test_an_error_after_a_chunk_is_an_event_that_ends_the_stream(
    endpoint: str, body: dict[str, Any], flags: str
) -> None:
    got = await exchange(body, reply("Hello.", error=FAILURE, error_after=1), endpoint=endpoint, flags=flags)
    assert (got.status, got.streams) == (200, True)
    assert got.choices[0].content == "H"
    assert got.choices[0].finish is None
    assert got.error is not None
    assert got.error["code"] == "engine_overloaded"
    assert b"[DONE]" not in got.body


@pytest.mark.parametrize(("endpoint", "body"), STREAMS)
async def test_a_good_first_chunk_is_put_back_and_the_stream_is_the_same(endpoint: str, body: dict[str, Any]) -> None:
    off = await exchange(body, reply("Hello."), endpoint=endpoint)
    on = await exchange(body, reply("Hello.", first_delay=0.05), endpoint=endpoint, flags=PREFLIGHT)
    assert without_ids(on.body) == without_ids(off.body)


@pytest.mark.parametrize(("endpoint", "body"), STREAMS)
async def test_a_client_that_leaves_while_the_head_is_held_aborts_its_generation(
    endpoint: str, body: dict[str, Any]
) -> None:
    got = await exchange(
        {**body, "n": 2},
        reply("Hello.", hang_after=0),
        endpoint=endpoint,
        flags=PREFLIGHT,
        leave_when=lambda so_far: so_far.engine.running == 2,
    )
    assert got.status in (0, 499)
    assert len(got.engine.aborted) == len(got.engine.requests) == 2
    assert got.engine.running == 0


@pytest.mark.parametrize(("endpoint", "body"), STREAMS)
async def test_a_preflight_with_a_bound_starts_the_stream_when_the_engine_is_silent(
    endpoint: str, body: dict[str, Any]
) -> None:
    flags = f"{PREFLIGHT} --openai-streaming-error-preflight-seconds 0.05 --stream-comment-interval 0.05"
    silent = await exchange(
        body,
        reply("Hello.", hang_after=0),
        endpoint=endpoint,
        flags=flags,
        leave_when=lambda so_far: so_far.body.count(b": keep-alive\n\n") >= 2,
    )
    assert (silent.status, silent.streams) == (200, True)
    got = await exchange(body, reply("Hello.", first_delay=0.2), endpoint=endpoint, flags=flags)
    assert got.choices[0].content == "Hello."
    assert all(b"keep-alive" not in frame[1:] for frame in got.body.split(b"\n\n") if frame.startswith(b"data"))

    failing = reply("Hello.", first_delay=0.2, error=FAILURE)
    late = await exchange(body, failing, endpoint=endpoint, flags=flags)
    assert (late.status, late.streams) == (200, True)
    assert late.error is not None
    assert late.error["code"] == "engine_overloaded"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_the_preset_is_the_six_policies_together(stream: bool) -> None:
    flags = "--openai-compat para"
    body = {"messages": tool_turn(texts("12 ", "C")), "tools": TOOLS, "tool_choice": "required", "n": 2}
    got = await exchange(
        {**body, "stream": stream},
        reply("Hi"),
        flags=flags,
        model_path="models/kimi-glm",
        template=PLAIN_TEMPLATE,
        **AS_SENT,
    )
    both(free, choices(1), sampling(**FIXED), prompt_has("[result of call_9f] 12 C["), limit(None))(got)
    assert got.policies is not None
    assert {"kimi-compat", "glm-compat", "flatten-tool-role-text-content"} <= set(got.policies.split(", "))


async def test_a_bare_image_url_is_an_object_at_decode_without_any_policy() -> None:
    url = "data:image/png;base64,AAAA"
    parts = [{"type": "image_url", "image_url": url}, {"type": "image_url", "image_url": {"url": url, "detail": "low"}}]
    body = {"messages": [{"role": "user", "content": [*parts, *texts("what?")]}]}
    got = await exchange(body, reply("A dot."), template=PLAIN_TEMPLATE, **AS_SENT)
    assert got.error is not None
    assert got.error["param"] == "messages[0].content[0]"
    assert "image" in got.error["message"]


async def test_reasoning_that_the_template_opened_is_counted_and_summed_over_choices() -> None:
    body = {"messages": HI, "n": 2, "chat_template_kwargs": {"thinking": True}}
    whole = await exchange(body, reply("plan</think>Hi"), reply("no</think>Hi"))
    streamed = await exchange(
        {**body, "stream": True, "stream_options": {"include_usage": True}},
        reply("plan</think>Hi"),
        reply("no</think>Hi"),
    )
    expected = len(TOKENIZER.encode("plan</think>no</think>"))
    for got in (whole, streamed):
        assert got.usage is not None
        assert got.usage["reasoning_tokens"] == expected
        assert got.usage["completion_tokens_details"] == {"reasoning_tokens": expected}
    assert whole.usage == streamed.usage
