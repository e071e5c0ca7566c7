"""The official client's Responses API against the real model: whole, streamed, parsed, kept. No patch, no special
flag."""

from __future__ import annotations

import time
from typing import Any

import openai
import pydantic
import pytest

from tests.e2e.conftest import MODEL

FRANCE = "What is the capital of France?"
HELPFUL = "You are a helpful assistant."
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def asked(**fields: Any) -> Any:
    return {"model": MODEL, "instructions": HELPFUL, "input": FRANCE, "temperature": 0, **fields}


def test_a_stream_accumulates_to_the_whole_response(client: openai.OpenAI) -> None:
    whole = client.responses.create(**asked())
    assert "Paris" in whole.output_text
    with client.responses.stream(**asked()) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final: Any = stream.get_final_response()
    assert said == final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens  # type: ignore[union-attr]
    assert (final.status, whole.status) == ("completed", "completed")


def test_the_prompt_is_the_one_of_chat(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "system", "content": HELPFUL}, {"role": "user", "content": FRANCE}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    response = client.responses.create(**asked())
    counted = client.responses.input_tokens.count(model=MODEL, instructions=HELPFUL, input=FRANCE)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens == counted.input_tokens  # type: ignore[union-attr]


def test_a_tool_loop_goes_on_by_the_id_of_the_response(client: openai.OpenAI) -> None:
    tools = {"tools": [WEATHER], "parallel_tool_calls": False}
    first: Any = client.responses.create(**asked(**tools, tool_choice="required"))
    call = first.output[-1]
    assert (call.type, call.name) == ("function_call", "get_weather")
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    more = {"previous_response_id": first.id, **tools, "max_output_tokens": 32}
    kept: Any = client.responses.create(**asked(input=output, **more))
    history = [{"role": "user", "content": FRANCE}, *first.output, *output]
    sent: Any = client.responses.create(**asked(input=history, **{**more, "previous_response_id": None}, store=False))
    own = {"id", "call_id"}
    assert [item.model_dump(exclude=own) for item in kept.output] == [
        item.model_dump(exclude=own) for item in sent.output
    ]
    # Each turn is the beginning of the next one's prompt: all that was read is not read again.
    assert sent.usage.input_tokens_details.cached_tokens > first.usage.input_tokens


def test_a_stream_of_a_call_and_a_schema_are_parsed(client: openai.OpenAI) -> None:
    class City(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        country: str = pydantic.Field(max_length=10)

    parsed = client.responses.parse(**asked(text_format=City, max_output_tokens=64))
    assert isinstance(parsed.output_parsed, City)
    forced = {"tool_choice": {"type": "function", "name": "get_weather"}, "parallel_tool_calls": False}
    with client.responses.stream(**asked(tools=[WEATHER], **forced)) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        final: Any = stream.get_final_response()
    assert [event.arguments for event in done] == [final.output[-1].arguments]


def test_a_stored_response_is_found_listed_and_deleted(client: openai.OpenAI) -> None:
    talk = client.conversations.create(metadata={"a": "b"})
    made = client.responses.create(**asked(conversation=talk.id, max_output_tokens=8))
    assert client.responses.retrieve(made.id).output_text == made.output_text
    assert [item.type for item in client.responses.input_items.list(made.id)] == ["message"]
    assert [item.type for item in client.conversations.items.list(talk.id)] == ["message", "message"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as error:
        client.responses.retrieve(made.id)
    assert error.value.code == "response_not_found"


def test_a_reply_in_the_background_comes_and_another_is_cancelled(client: openai.OpenAI) -> None:
    made = client.responses.create(**asked(background=True))
    deadline = time.monotonic() + 60
    while made.status in ("queued", "in_progress") and time.monotonic() < deadline:
        time.sleep(0.1)
        made = client.responses.retrieve(made.id)
    assert "Paris" in made.output_text
    long = client.responses.create(**asked(background=True, input="Count to a thousand."))
    assert client.responses.cancel(long.id).status == "cancelled"
