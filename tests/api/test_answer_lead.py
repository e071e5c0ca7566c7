"""A template that writes a blank in front of answers: the model writes it, too, and it is no part of the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.wire import CHAT, USER, chunks, folded, post
from tests.toy import TEMPLATE, client, deployment, engine, reply

RENDER = "/v1/chat/completions/render"
SHOWN = "{{ message.content }}\n{%- else %}"
LED = TEMPLATE.replace(SHOWN, "{{ ' ' if message.role == 'assistant' and message.content }}" + SHOWN)
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


async def answers(text: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a whole response, and what its stream folds to."""
    found = []
    for stream in (False, True):
        async with client(deployment(engine(reply(text)), template=LED)) as http:
            response = await post(http, CHAT, stream=stream, **fields)
        assert response.status_code == 200, response.text
        found.append(response)
    return found[0].json()["choices"][0]["message"], folded(chunks(found[1].text))[0]


@pytest.mark.parametrize(("text", "content"), [(" Sure.", "Sure."), ("  Sure.", " Sure."), ("Sure. ", "Sure. ")])
async def test_the_blank_is_left_out_and_every_other_one_stays(text: str, content: str) -> None:
    whole, streamed = await answers(text)
    assert whole["content"] == streamed["content"] == content


@pytest.mark.parametrize("text", [" Sure.", "  two", " a\n\nb "])
async def test_the_answer_sent_back_is_the_text_that_the_model_wrote(text: str) -> None:
    whole, _ = await answers(text)
    async with client(deployment(engine(), template=LED)) as http:
        asked = (await http.post(RENDER, json={"messages": USER})).json()
        again = (await http.post(RENDER, json={"messages": [*USER, whole, *USER]})).json()
    assert again["text"].startswith(asked["text"] + text)


async def test_calls_and_reasoning_come_as_ever() -> None:
    whole, streamed = await answers(CALL, tools=TOOLS)
    assert whole["tool_calls"][0]["function"]["name"] == streamed["tool_calls"][0]["name"] == "look"
    whole, streamed = await answers("<think> why</think> because")
    assert whole["reasoning_content"] == streamed["reasoning_content"]
    assert whole["content"] == streamed["content"]


async def test_a_continued_message_keeps_its_blank() -> None:
    messages = [*USER, {"role": "assistant", "content": "One,"}]
    whole, streamed = await answers(" two", messages=messages, continue_final_message=True, add_generation_prompt=False)
    assert whole["content"] == streamed["content"] == " two"


async def test_a_template_without_one_leaves_the_models_blank() -> None:
    async with client(deployment(engine(reply(" Sure.")))) as http:
        body = (await post(http)).json()
    assert body["choices"][0]["message"]["content"] == " Sure."
