"""Tokens that are there together leave together, and nothing else about a reply depends on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.wire import COMPLETIONS, chunks, folded, post
from tests.toy import client, deployment, engine, reply

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
REPLIES = {
    "content": "Words with ümläute, 北京 and 🙂, <b>tags</b>\n\n and more words. " * 3,
    "reasoning": "<think>Let me\n\nsee 🙂.</think>The answer.",
    "call": "<think>Hm.</think>I call.<tool_call>\n"
    '{"name": "f", "arguments": {"a": "b \\n c", "n": [1, 2]}}\n</tool_call>',
    "two calls": '<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "f", "arguments": {"x": 1}}'
    "</tool_call>",
    "cut call": '<tool_call>{"name": "f", "arguments": {"a": "b',
}
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "stop string": {"stop": ["words. W", "nswer"]},
    "limit": {"max_tokens": 37},
    "several": {"n": 2},
    "logprobs": {"logprobs": True, "top_logprobs": 1},
    "running usage": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
}


async def streamed(text: str, burst: int, fields: dict[str, Any]) -> list[dict[str, Any]]:
    served = deployment(engine(reply(text, burst=burst, end=not text.endswith("b"))))
    options = {"stream_options": {"include_usage": True}}
    answer = await post(client(served), stream=True, tools=TOOLS, **(options | fields))
    return chunks(answer.text)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", REPLIES)
async def test_a_reply_folds_to_the_same_however_many_tokens_came_together(kind: str, way: str) -> None:
    alone = await streamed(REPLIES[kind], 1, WAYS[way])
    for burst in (2, 7, 64, 1000):
        together = await streamed(REPLIES[kind], burst, WAYS[way])
        assert without_ids(folded(together)) == without_ids(folded(alone))
        assert together[-1]["usage"] == alone[-1]["usage"]
        assert len(together) <= len(alone)


async def test_tokens_that_came_together_are_one_delta() -> None:
    together = await streamed("x" * 64, 1000, {})
    texts = [part["choices"][0]["delta"].get("content") for part in together if part["choices"]]
    assert [text for text in texts if text] == ["x" * 64]


async def test_each_token_has_an_event_of_its_own_when_log_probabilities_are_asked_for() -> None:
    together = await streamed("x" * 64, 1000, {"logprobs": True})
    entries = [part["choices"][0]["logprobs"] for part in together if part["choices"]]
    assert [len(entry["content"]) for entry in entries if entry][:64] == [1] * 64


async def test_completions_fold_to_the_same_too() -> None:
    texts = []
    for burst in (1, 50):
        served = deployment(engine(reply(REPLIES["content"], burst=burst)))
        parts = chunks((await post(client(served), COMPLETIONS, stream=True, max_tokens=500)).text)
        texts.append("".join(part["choices"][0]["text"] for part in parts))
    assert texts == [REPLIES["content"]] * 2


def without_ids(choices: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    for choice in choices.values():
        for call in choice["tool_calls"]:
            call["id"] = ""
    return choices
