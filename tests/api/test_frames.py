"""What readers of event streams can take: short events, and no line break but those of the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.wire import COMPLETIONS, chunks, folded, post
from tests.toy import client, deployment, engine, reply

MOST_BYTES = 32 << 10
BREAKS = "\u2028\u2029\u0085"
LONG = {
    "plain": "x" * 100_000,
    "escaped twice": '\x01"\\' * 10_000,
    "four bytes each": "🙂" * 30_000,
    "breaks": BREAKS * 10_000,
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
KINDS = {
    "content": "{}",
    "reasoning": "<think>{}</think>",
    "arguments": '<tool_call>{{"name": "f", "arguments": {{"a": "{}"}}}}</tool_call>',
}


def events(text: str) -> list[str]:
    """As a reader has them that ends lines wherever Unicode does."""
    assert all(line == "" or line.startswith("data: ") for line in text.splitlines())
    return text.split("\n\n")


async def streamed(text: str, path: str, burst: int, **fields: Any) -> tuple[Any, list[str]]:
    served = deployment(engine(reply(text, burst=burst), context_length=1 << 20))
    answer = await post(client(served), path, stream=True, max_tokens=1 << 19, **fields)
    return chunks(answer.text), events(answer.text)


@pytest.mark.parametrize("burst", [1000, 1 << 20])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_event_is_longer_than_its_readers_lines(kind: str, text: str, burst: int) -> None:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\x01", "\\u0001") if kind == "arguments" else text
    came, shown = await streamed(KINDS[kind].format(inner), "/v1/chat/completions", burst, tools=TOOLS)
    assert max(len(event.encode()) for event in shown) <= MOST_BYTES
    message = folded(came)[0]
    if kind == "arguments":
        assert message["tool_calls"][0]["arguments"] == '{"a": "' + inner + '"}'
    else:
        assert message["content" if kind == "content" else "reasoning_content"] == text


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
async def test_no_event_of_a_completion_is_either(text: str) -> None:
    came, shown = await streamed(text, COMPLETIONS, 1 << 20, prompt=text, echo=True)
    assert max(len(event.encode()) for event in shown) <= MOST_BYTES
    assert "".join(choice["text"] for chunk in came for choice in chunk["choices"]) == text + text


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_delta_of_the_other_apis_is_either(kind: str, path: str) -> None:
    """What ends an item repeats it whole: these APIs say so."""
    tool: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    body = {"input": "hi", "tools": [tool]}
    if path == "/v1/messages":
        tool = {"name": "f", "input_schema": {"type": "object"}}
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1 << 19, "tools": [tool]}
    served = deployment(engine(reply(KINDS[kind].format("x" * 100_000), burst=1 << 20), context_length=1 << 20))
    async with client(served) as http:
        answer = await http.post(path, json={"model": "toy", "stream": True, **body})
    deltas = [event for event in answer.text.split("\n\n") if "delta" in event.partition("\n")[0]]
    assert sum(map(len, deltas)) > 100_000
    assert max(len(event.encode()) for event in deltas) <= MOST_BYTES


@pytest.mark.parametrize("fields", [{}, {"logprobs": True}, {"stop": ["zz"]}, {"n": 2}], ids=str)
async def test_line_breaks_of_unicode_are_escaped(fields: dict[str, Any]) -> None:
    said = f"a{BREAKS}b’“\u2027\u00a0北京"
    came, _ = await streamed(said, "/v1/chat/completions", 1, **fields)
    assert folded(came)[0]["content"] == said


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_events_that_repeat_what_was_asked_or_said_have_no_line_breaks_of_unicode(path: str) -> None:
    said = f"a{BREAKS}b"
    asked = {"messages": [{"role": "user", "content": said}], "max_tokens": 50, "system": said}
    body = asked if path == "/v1/messages" else {"input": said, "instructions": said, "metadata": {"a": said}}
    async with client(deployment(engine(reply(said)))) as http:
        answer = await http.post(path, json={"model": "toy", "stream": True, **body})
    assert answer.status_code == 200
    assert all(not line or line.startswith(("event: ", "data: ")) for line in answer.text.splitlines())
    assert "\\u2028" in answer.text


async def test_line_breaks_of_unicode_are_escaped_in_what_tells_of_a_failure() -> None:
    served = deployment(engine(reply("a"), context_length=64), served_model_name=(f"toy{BREAKS}",))
    answer = await post(client(served), stream=True)
    events(answer.text)
    assert chunks(answer.text)[0]["model"] == f"toy{BREAKS}"
