"""The official Python client: plain, streamed, tools, structured replies, usage; sync and async."""

import asyncio
import json
import os
from typing import Any

import openai
from pydantic import BaseModel

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:30000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none")
FRANCE: Any = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class City(BaseModel):
    name: str
    country: str


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str


def plain(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(model=model, messages=FRANCE, temperature=0, max_tokens=20)
    assert "Paris" in (reply.choices[0].message.content or ""), reply
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    print("plain:", reply.choices[0].message.content)


def streamed(client: openai.OpenAI, model: str) -> None:
    stream = client.chat.completions.create(
        model=model,
        messages=FRANCE,
        temperature=0,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert "Paris" in text
    assert usage is not None
    assert usage.completion_tokens > 1
    print("streamed:", text)


def stream_helper(client: openai.OpenAI, model: str) -> None:
    """The client's own accumulation of events into a completion."""
    with client.chat.completions.stream(model=model, messages=FRANCE, temperature=0, max_tokens=20) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
    assert "Paris" in (final.choices[0].message.content or "")
    print("stream helper:", sorted(kinds))


def forced_call(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[WEATHER],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        parallel_tool_calls=False,
        temperature=0,
    )
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    print("forced call:", call.function.name, call.function.arguments.replace("\n", " "))


def parsed(client: openai.OpenAI, model: str) -> None:
    """A pydantic type as the reply's schema, and as a tool."""
    reply = client.chat.completions.parse(model=model, messages=FRANCE, temperature=0, response_format=City)
    city = reply.choices[0].message.parsed
    assert isinstance(city, City)
    print("parsed:", city)
    reply_with_call = client.chat.completions.parse(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    (call,) = reply_with_call.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)
    print("parsed call:", call.function.parsed_arguments)


def streamed_call(client: openai.OpenAI, model: str) -> None:
    """The pieces of a call's arguments as they come, and what the client makes of them."""
    with client.chat.completions.stream(
        model=model,
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    ) as stream:
        pieces = [event.arguments_delta for event in stream if event.type == "tool_calls.function.arguments.delta"]
        (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, GetWeather)
    assert "".join(pieces) == call.function.arguments
    print("streamed call:", f"{len(pieces)} pieces,", call.function.parsed_arguments)


async def asynchronously(model: str) -> None:
    """The async client: plain, four streams at once, its stream helper, a call, a parsed reply."""
    async with openai.AsyncOpenAI(base_url=URL, api_key=KEY) as client:
        common: Any = {"model": model, "messages": FRANCE, "temperature": 0, "max_tokens": 20}

        async def ask() -> str:
            stream = await client.chat.completions.create(**common, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        reply = await client.chat.completions.create(**common)
        async with client.chat.completions.stream(**common) as helped:
            final = await helped.get_final_completion()
        texts = await asyncio.gather(*(ask() for _ in range(4)))
        assert all("Paris" in str(text) for text in [*texts, *(r.choices[0].message.content for r in (reply, final))])
        called = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "What is the weather in Paris?"}],
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,
        )
        assert called.choices[0].finish_reason == "tool_calls"
        parsed_reply = await client.chat.completions.parse(
            model=model, messages=FRANCE, temperature=0, response_format=City
        )
        assert isinstance(parsed_reply.choices[0].message.parsed, City)
    print("async: plain, stream helper, four streams at once, call, parsed")


def main() -> None:
    with openai.OpenAI(base_url=URL, api_key=KEY) as client:
        model = client.models.list().data[0].id
        for show in (plain, streamed, stream_helper, forced_call, streamed_call, parsed):
            show(client, model)
    asyncio.run(asynchronously(model))


if __name__ == "__main__":
    main()
