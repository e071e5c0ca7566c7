"""A conversation with tools to its end, on the default model and without any flag.

The model calls, the program runs the functions and sends their results back, the model answers.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import openai

URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:30000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none")


def get_weather(city: str) -> dict[str, Any]:
    return {"city": city, "temperature": 18, "sky": "sunny"}


FUNCTIONS: dict[str, Callable[..., Any]] = {"get_weather": get_weather}
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 20}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


def ask(client: openai.OpenAI, model: str, messages: list[Any], *, choice: Any, stream: bool) -> Any:
    """The assistant's message. ``required`` is enforced by a grammar, so that the smallest model calls, too."""
    options: Any = {"model": model, "messages": messages, "tools": TOOLS, "tool_choice": choice}
    options |= {"temperature": 0, "max_tokens": 120, "parallel_tool_calls": False}
    if not stream:
        return client.chat.completions.create(**options).choices[0].message
    with client.chat.completions.stream(**options) as events:
        return events.get_final_completion().choices[0].message


def loop(client: openai.OpenAI, model: str, *, stream: bool) -> list[Any]:
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    for choice in ("required", "auto", "none"):
        message = ask(client, model, messages, choice=choice, stream=stream)
        calls = message.tool_calls or []
        assert calls or choice != "required", message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not calls:
            break
        for call in calls:
            result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
            print(f"  {call.function.name}({call.function.arguments}) -> {result}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    return messages


def main() -> None:
    with openai.OpenAI(base_url=URL, api_key=KEY) as client:
        model = client.models.list().data[0].id
        for stream in (False, True):
            print("streamed:" if stream else "whole:")
            *_, last = loop(client, model, stream=stream)
            assert last["role"] == "assistant", last
            assert last["content"], last
            print("  answer:", last["content"])


if __name__ == "__main__":
    main()
