"""LiteLLM as a client: plain, streamed, a forced tool call, a reply by a JSON schema, usage."""

import json
import os
from typing import Any

import litellm
from openai import OpenAI

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:30000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none")
FRANCE = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the capital of France?"},
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def main() -> None:
    with OpenAI(base_url=URL, api_key=KEY) as client:
        model = client.models.list().data[0].id
    common: dict[str, Any] = {"model": f"openai/{model}", "api_base": URL, "api_key": KEY, "temperature": 0}

    reply = litellm.completion(messages=FRANCE, max_tokens=20, **common)
    assert "Paris" in reply.choices[0].message.content, reply
    assert reply.usage.completion_tokens > 1
    print("plain:", reply.choices[0].message.content)

    chunks = litellm.completion(
        messages=FRANCE, max_tokens=20, stream=True, stream_options={"include_usage": True}, **common
    )
    text, usage = "", None
    for chunk in chunks:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = getattr(chunk, "usage", None) or usage
    assert "Paris" in text
    assert usage is not None
    print("streamed:", text)

    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    reply = litellm.completion(
        messages=asked, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, **common
    )
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert isinstance(json.loads(call.function.arguments)["city"], str)
    print("forced call:", call.function.name, call.function.arguments.replace("\n", " "))

    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
    reply = litellm.completion(messages=FRANCE, response_format=schema, **common)
    assert json.loads(reply.choices[0].message.content).keys() == {"city"}
    print("JSON schema:", reply.choices[0].message.content)


if __name__ == "__main__":
    main()
