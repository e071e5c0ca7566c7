"""Policies on the real server with the real small model, through the official client.

The model is served under a path that says kimi and glm. What a small model cannot show (thinking, calls) is at the
wire in ``tests/policies``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import ENGINE, get
from tests.waiting import PATIENCE

OTHER = dict(zip(ENGINE[::2], ENGINE[1::2], strict=True))
"""The flags of another engine than the embedded one."""

CONTEXT = 512
EVERY_POLICY = (
    *("--openai-compat", "para"),
    *("--openai-chat-default-max-tokens", "5"),
    *("--openai-max-tokens-overflow", "clamp"),
    *("--openai-stream-usage", "last-choice"),
    *("--openai-streaming-error-preflight-seconds", "20"),
)
PARIS: list[Any] = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
]


@dataclass
class Server:
    client: openai.OpenAI
    started: str
    """What the terminal showed until the server was ready."""

    def chat(self, **fields: Any) -> tuple[Any, Any]:
        """The reply, and what the header says of policies."""
        body = {"model": "m", "messages": PARIS, "temperature": 0, **fields}
        raw = self.client.chat.completions.with_raw_response.create(**body)
        return raw.parse(), raw.headers.get("x-paraserve-policies")

    def refusal(self, **fields: Any) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as caught:
            self.chat(**fields)
        return caught.value


def serve(path: Path, flags: Sequence[str]) -> Iterator[Server]:
    command = [sys.executable, "-m", "paraserve", "serve", "--port", "0", "--parallel", "2", "--model-path", str(path)]
    # The model's template knows no lists: without the prompt stage's own help, what flattens them is the policy.
    command += ["--served-model-name", "m", "--context-length", str(CONTEXT), "--history-normalization", "off"]
    command += ["--log-format", "text", "--log-requests", "off", *flags]
    command += [part for name, value in OTHER.items() if name != "--model-path" for part in (name, value)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARASERVE_")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield _when_ready(process)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def _when_ready(process: subprocess.Popen[str]) -> Server:
    assert process.stderr is not None
    started, url = "", None
    for line in process.stderr:
        started += line
        if found := re.search(r"ready on (http://\S+)", line):
            url = found[1]
        if "policies" in line:
            break
    assert url is not None, started
    return Server(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=2 * PATIENCE), started)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = Path(OTHER.get("--model-path") or default_model_path())
    link = tmp_path_factory.mktemp("models") / f"Kimi-and-GLM{model.suffix}"
    link.symlink_to(model)
    return link


@pytest.fixture(scope="module")
def on(path: Path) -> Iterator[Server]:
    yield from serve(path, EVERY_POLICY)


@pytest.fixture(scope="module")
def off(path: Path) -> Iterator[Server]:
    yield from serve(path, [])


def test_a_default_limit_ends_a_reply_that_named_none(on: Server, off: Server) -> None:
    reply, header = on.chat()
    assert (reply.usage.completion_tokens, reply.choices[0].finish_reason) == (5, "length")
    assert "chat-default-max-tokens" in header
    reply, header = off.chat()
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert header is None


def test_a_forced_call_is_served_as_auto(on: Server, off: Server) -> None:
    reply, header = on.chat(tools=TOOLS, tool_choice="required", max_tokens=20)
    assert reply.choices[0].message.tool_calls is None
    assert "tool-choice-auto" in header or "glm-compat" in header
    assert off.refusal(tools=TOOLS, tool_choice="required", max_tokens=20).status_code == 400


def test_kimi_compat_makes_one_choice_of_two(on: Server, off: Server) -> None:
    reply, header = on.chat(n=2, top_p=1.0, max_tokens=3)
    assert len(reply.choices) == 1
    assert "kimi-compat" in header
    assert len(off.chat(n=2, max_tokens=3)[0].choices) == 2


def test_glm_compat_answers_413_to_an_input_that_is_too_long(on: Server, off: Server) -> None:
    messages = [{"role": "user", "content": "word " * 600}]
    for server, status in ((on, 413), (off, 400)):
        for stream in (False, True):
            error = server.refusal(messages=messages, stream=stream)
            assert error.status_code == status
            assert error.code == "context_length_exceeded"
            assert f"maximum context length is {CONTEXT} tokens" in error.message


def test_glm_compat_always_has_the_reasoning_detail(on: Server, off: Server) -> None:
    usage = on.chat(max_tokens=3)[0].usage
    assert usage.completion_tokens_details.reasoning_tokens == 0
    assert "reasoning_tokens" not in usage.model_extra
    usage = off.chat(max_tokens=3)[0].usage
    assert usage.completion_tokens_details is None
    assert usage.model_extra["reasoning_tokens"] == 0


def test_text_parts_of_a_tool_reach_the_model_as_the_joined_string(on: Server, off: Server) -> None:
    def turn(content: Any) -> list[Any]:
        call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        asked = {"role": "assistant", "content": "", "tool_calls": [call]}
        return [*PARIS, asked, {"role": "tool", "tool_call_id": "c", "content": content}]

    parts = turn([{"type": "text", "text": "Par"}, {"type": "text", "text": "is"}])
    reply, header = on.chat(messages=parts, max_tokens=5)
    twin, twin_header = on.chat(messages=turn("Paris"), max_tokens=5)
    assert (reply.choices[0].message.content, reply.usage) == (twin.choices[0].message.content, twin.usage)
    assert "flatten-tool-role-text-content" in header
    assert "flatten-tool-role-text-content" not in twin_header
    assert off.refusal(messages=parts, max_tokens=5).status_code == 400


def test_a_limit_over_the_room_is_clamped(on: Server, off: Server) -> None:
    reply, header = on.chat(max_tokens=100_000)
    assert "Paris" in reply.choices[0].message.content
    assert "max-tokens-overflow" in header
    assert "there is room for" in off.refusal(max_tokens=100_000).message


def test_a_stream_with_preflight_and_usage_says_what_a_whole_reply_says(on: Server, off: Server) -> None:
    whole, _ = off.chat(max_tokens=12)
    chunks = list(on.chat(max_tokens=12, stream=True)[0])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == (
        whole.choices[0].message.content
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-2].choices[0].model_extra["usage"]["completion_tokens"] == whole.usage.completion_tokens
    assert all(chunk.choices and chunk.usage is None for chunk in off.chat(max_tokens=12, stream=True)[0])


def test_operators_see_what_is_in_force(on: Server, off: Server) -> None:
    listed = get(f"{on.client.base_url}policies").json()["data"]
    in_force = {policy["name"] for policy in listed if policy["endpoints"]}
    assert {"kimi-compat", "glm-compat", "streaming-error-preflight", "stream-usage"} <= in_force
    assert {policy["flag"] for policy in listed} >= {"--openai-kimi-compat", "--openai-thinking-object"}
    assert all(name in on.started for name in in_force)
    assert not any(policy["endpoints"] for policy in get(f"{off.client.base_url}policies").json()["data"])
    assert re.search(r"policies\s+none", off.started)
