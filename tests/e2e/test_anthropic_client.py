"""Anthropic's own client against the real model: whole, streamed, tools, parsed, counted. No patch, no special flag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pydantic
import pytest

from tests.e2e.conftest import MODEL, Server

FRANCE: Any = [{"role": "user", "content": "What is the capital of France?"}]
HELPFUL = "You are a helpful assistant."
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}

ONE_CALL: Any = {"type": "any", "disable_parallel_tool_use": True}


@pytest.fixture
def claude(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


def asked(**fields: Any) -> Any:
    return {
        "model": MODEL,
        "max_tokens": 200,
        "system": HELPFUL,
        "messages": FRANCE,
        "extra_body": {"temperature": 0},
        **fields,
    }


def test_a_stream_accumulates_to_the_whole_message(claude: anthropic.Anthropic) -> None:
    whole: Any = claude.messages.create(**asked())
    assert "Paris" in whole.content[0].text
    assert whole.stop_reason == "end_turn"
    with claude.messages.stream(**asked()) as stream:
        said = "".join(stream.text_stream)
        final: Any = stream.get_final_message()
    assert said == final.content[0].text == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_a_limit_far_above_the_room_is_served(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(**asked(max_tokens=128_000)) as stream:
        assert "Paris" in stream.get_final_text()


def test_a_prefill_is_gone_on_with(claude: anthropic.Anthropic) -> None:
    prefilled = [*FRANCE, {"role": "assistant", "content": "The capital of France is"}]
    assert claude.messages.create(**asked(messages=prefilled)).content[0].text.startswith(" Paris")


def test_a_forced_tool_use_is_whole_and_its_result_is_read(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(**asked(tools=[WEATHER], tool_choice=ONE_CALL)) as stream:
        turn = stream.get_final_message()
    (use,) = (block for block in turn.content if block.type == "tool_use")
    assert turn.stop_reason == "tool_use"
    assert use.input.keys() == {"city"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "Sunny."}
    history: Any = [*FRANCE, {"role": "assistant", "content": turn.content}, {"role": "user", "content": [result]}]
    counted = claude.messages.count_tokens(model=MODEL, system=HELPFUL, messages=history, tools=[WEATHER])
    usage = claude.messages.create(**asked(messages=history, tools=[WEATHER], max_tokens=8)).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert usage.cache_read_input_tokens, "the turn before is the beginning of this one"


def test_a_reply_is_parsed_by_a_schema(claude: anthropic.Anthropic) -> None:
    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)

    parsed = claude.messages.parse(**asked(output_format=City))
    assert isinstance(parsed.parsed_output, City)


def test_the_tool_runner_goes_on_without_kept_conversations(claude: anthropic.Anthropic) -> None:
    called = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
            city: its name
        """
        called.append(city)
        return f"Sunny in {city}."

    runner = claude.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=200,
        max_iterations=2,
        tools=[get_weather],
        tool_choice=ONE_CALL,
        messages=FRANCE,
        extra_body={"temperature": 0},
    )
    turns = list(runner)
    assert [block.type for block in turns[0].content] == ["tool_use"]
    assert len(called) == sum(block.type == "tool_use" for turn in turns for block in turn.content)


def test_models_are_read(claude: anthropic.Anthropic) -> None:
    (model,) = claude.models.list().data
    assert (model.id, model.type, model.display_name) == (MODEL, "model", MODEL)
    assert claude.models.retrieve(MODEL).created_at == model.created_at


def test_errors_are_its_own(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        claude.messages.create(**asked(model="other"))
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long") as caught:
        claude.messages.create(**asked(messages=[{"role": "user", "content": "word " * 9000}]))
    assert caught.value.request_id
