"""Every endpoint through the official client, streamed and not, on a real model."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import openai
import pytest

from tests.e2e.conftest import MODEL

FRANCE: list[Any] = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "days": {"type": "integer", "minimum": 1, "maximum": 5},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": MODEL, "messages": FRANCE, "temperature": 0, **fields})


def joined(stream: Any) -> tuple[str, str | None, Any]:
    """The text, the finish reason and the usage of a stream with one choice."""
    text, finish, usage = "", None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, usage


def test_the_capital_of_france_is_paris_streamed_and_not_with_the_same_usage(client: openai.OpenAI) -> None:
    whole = chat(client)
    text, finish, usage = joined(chat(client, stream=True, stream_options={"include_usage": True}))
    assert "Paris" in whole.choices[0].message.content
    assert text == whole.choices[0].message.content
    assert finish == whole.choices[0].finish_reason == "stop"
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens == 27


def test_a_limit_ends_with_length_and_is_counted_exactly(client: openai.OpenAI) -> None:
    for fields in ({"max_tokens": 3}, {"max_completion_tokens": 3}):
        whole = chat(client, **fields)
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage.completion_tokens == 3


def test_two_choices_differ_and_a_seed_repeats_them_or_is_named_as_not_used(
    client: openai.OpenAI, facts: dict[str, Any]
) -> None:
    fields = {"n": 2, "seed": 7, "temperature": 1.5, "max_tokens": 12}
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=FRANCE, **fields)
    first, second = raw.parse(), chat(client, **fields)
    texts = [choice.message.content for choice in first.choices]
    assert texts[0] != texts[1]
    assert first.usage.prompt_tokens == 27
    if facts["engine"]["seeds"]:
        assert [choice.message.content for choice in second.choices] == texts
    else:
        assert raw.headers["x-paraserve-normalizations"] == "seed_not_used"


def test_logprobs_are_equal_between_the_modes_and_join_to_the_text(client: openai.OpenAI) -> None:
    fields = {"logprobs": True, "top_logprobs": 3, "max_tokens": 5}
    whole = chat(client, **fields)
    entries = whole.choices[0].logprobs.content
    streamed: list[Any] = []
    for chunk in chat(client, stream=True, **fields):
        for choice in chunk.choices:
            streamed += choice.logprobs.content if choice.logprobs else []
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == whole.choices[0].message.content
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in entries], abs=0.05)
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
    assert all(entry.top_logprobs[0].token == entry.token for entry in entries), "temperature 0 takes the likeliest"


def test_a_stop_string_ends_the_reply_before_it(client: openai.OpenAI) -> None:
    whole = chat(client, stop=["Paris", "zzz"])
    text, finish, _ = joined(chat(client, stop="Paris", stream=True))
    assert "Paris" not in text
    assert whole.choices[0].message.content == text
    assert finish == whole.choices[0].finish_reason == "stop"


def test_a_bias_is_obeyed_or_refused(client: openai.OpenAI, facts: dict[str, Any]) -> None:
    end = chat(client).choices[0].matched_stop
    assert isinstance(end, int)
    fields = {"logit_bias": {str(end): -100}, "max_tokens": 20}
    if not facts["engine"]["logit_bias"]:
        with pytest.raises(openai.BadRequestError) as refused:
            chat(client, **fields)
        assert refused.value.param == "logit_bias"
        return
    assert chat(client, **fields).usage.completion_tokens == 20


def test_a_stop_token_is_obeyed(client: openai.OpenAI) -> None:
    (france,) = client.post("/tokenize", body={"prompt": " France"}, cast_to=dict)["tokens"]
    short = chat(client, extra_body={"stop_token_ids": [france]})
    assert short.choices[0].message.content == "The capital of"
    assert (short.choices[0].finish_reason, short.choices[0].matched_stop) == ("stop", france)


def test_a_json_schema_reply_validates(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
        "required": ["capital", "sure"],
        "additionalProperties": False,
    }
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    whole = chat(client, response_format=wanted, max_tokens=100)
    jsonschema.validate(json.loads(whole.choices[0].message.content), schema)
    text, _, _ = joined(chat(client, response_format=wanted, max_tokens=100, stream=True))
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_has_valid_arguments_in_both_modes(client: openai.OpenAI, choice: Any) -> None:
    fields = {"tools": [WEATHER], "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 120}
    whole = chat(client, **fields)
    (call,) = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "get_weather"
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
    name, arguments, finish = "", "", None
    for chunk in chat(client, stream=True, **fields):
        for part in chunk.choices:
            for delta in part.delta.tool_calls or []:
                name += delta.function.name or ""
                arguments += delta.function.arguments or ""
            finish = part.finish_reason or finish
    assert (name, finish) == ("get_weather", "tool_calls")
    assert json.loads(arguments) == json.loads(call.function.arguments)


def test_a_repeated_prompt_is_reported_as_cached(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "Count to three, please. " * 20}]
    chat(client, messages=messages, max_tokens=2)
    usage = chat(client, messages=messages, max_tokens=2).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


def test_an_assistant_text_is_continued(client: openai.OpenAI) -> None:
    messages = [*FRANCE, {"role": "assistant", "content": "The capital of France is"}]
    whole = chat(client, messages=messages, max_tokens=5, extra_body={"continue_final_message": True})
    assert whole.choices[0].message.content.startswith(" Paris")


def test_text_completions_take_every_prompt_form(client: openai.OpenAI) -> None:
    fields: Any = {"model": MODEL, "temperature": 0, "max_tokens": 4}
    one = client.completions.create(prompt="The capital of France is", **fields)
    assert one.choices[0].text.startswith(" Paris")
    several = client.completions.create(prompt=["The capital of France is", "One, two,"], n=2, **fields)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text == one.choices[0].text
    streamed = client.completions.create(prompt="The capital of France is", stream=True, **fields)
    assert "".join(choice.text for chunk in streamed for choice in chunk.choices) == one.choices[0].text
    echoed = client.completions.create(prompt="The capital of France is", echo=True, **fields)
    assert echoed.choices[0].text == "The capital of France is" + one.choices[0].text


def test_an_echoed_prompt_has_its_log_probabilities(client: openai.OpenAI, facts: dict[str, Any]) -> None:
    if not facts["engine"]["prompt_logprobs"]:
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model=MODEL, prompt="The capital", echo=True, logprobs=1)
        assert refused.value.param == "logprobs"
        return
    fields: Any = {"model": MODEL, "temperature": 0, "max_tokens": 2, "echo": True, "logprobs": 1}
    choice = client.completions.create(prompt="The capital of France is", **fields).choices[0]
    scored = choice.logprobs
    assert "".join(scored.tokens) == choice.text
    assert scored.token_logprobs[0] is None
    assert all(value <= 0 for value in scored.token_logprobs[1:])
    assert scored.text_offset[0] == 0


def test_models_health_and_version_answer(client: openai.OpenAI, server: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    for path in ("/health", "/health_generate", "/version", "/v1/policies"):
        assert client.get(f"{server.url}{path}", cast_to=object) is not None


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI, facts: dict[str, Any]) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        chat(client, model="gpt-9")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        chat(client, temperature=9)
    assert wrong.value.param == "temperature"
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as long:
            chat(client, messages=[{"role": "user", "content": "word " * 9000}], stream=stream)
        assert long.value.code == "context_length_exceeded"
        assert f"maximum context length is {facts['context_length']} tokens" in str(long.value)


def test_leaving_frees_the_engine_at_once(client: openai.OpenAI) -> None:
    """Every slot is busy with a reply of thousands of tokens; when clients leave, the next one is served before the one
    that stayed, which is as long, has ended."""
    long = {"max_tokens": 4000, "stream": True, "extra_body": {"ignore_eos": True}}
    stays, *leave = [chat(client, **long) for _ in range(4)]
    served = threading.Event()

    def read_on() -> bool:
        for _ in stays:
            if served.is_set():
                stays.close()
                return True
        return False

    with ThreadPoolExecutor(1) as pool:
        still_going = pool.submit(read_on)
        for stream in leave:
            next(iter(stream))
            stream.close()
        chat(client, max_tokens=1)
        served.set()
        assert still_going.result()


async def test_a_hundred_streams_finish_and_none_gets_anothers_text(async_client: openai.AsyncOpenAI) -> None:
    async def one(number: int) -> str:
        stream = await async_client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"Say number {number}."}],
            max_tokens=40,
            stream=True,
            extra_body={"regex": f"Reply {number:03d}: [a-z]{{5,10}}\\."},
        )
        text = ""
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
        return text

    texts = await asyncio.gather(*(one(number) for number in range(100)))
    for number, text in enumerate(texts):
        assert text.startswith(f"Reply {number:03d}: ")
        assert text.endswith(".")
