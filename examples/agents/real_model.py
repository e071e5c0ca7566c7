"""Every client on the small real model: an answer, the same as a stream, and a tool that is forced by name.

Such a model calls a tool when it must, and then once; what it makes of the result is its own.
"""

from collections.abc import Iterator
from typing import Any

import litellm
from agents import Agent as Assistant
from agents import ModelSettings, Runner, function_tool, set_default_openai_client
from anthropic import Anthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from task import play

MODEL, KEY = "smollm2", "none"
HELPFUL = "You are a helpful assistant."
FRANCE = "What is the capital of France?"
ABOUT = "The weather of a city."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
ASKED: list[Any] = [{"role": "user", "content": FRANCE}]
SUNNY = "Sunny."
FEW = 24
"""Tokens of what it makes of the result."""

litellm.suppress_debug_info = True


class Place(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=20)


def told(text: str) -> None:
    assert text.strip()  # its words depend on what the cache holds of others' prompts


def anthropic_sdk(url: str) -> None:
    messages = Anthropic(base_url=url, api_key=KEY, max_retries=0).messages
    common: dict[str, Any] = {"model": MODEL, "system": HELPFUL, "extra_body": {"temperature": 0}}
    told(messages.create(**common, max_tokens=200, messages=ASKED).content[0].text)
    with messages.stream(**common, max_tokens=200, messages=ASKED) as stream:
        told("".join(stream.text_stream))
    tools: list[Any] = [{"name": "get_weather", "description": ABOUT, "input_schema": SCHEMA}]
    choice: Any = {"type": "tool", "name": "get_weather"}
    with messages.stream(**common, max_tokens=200, messages=ASKED, tools=tools, tool_choice=choice) as stream:
        turn = stream.get_final_message()
    (use,) = (block for block in turn.content if block.type == "tool_use")
    assert use.input.keys() == {"city"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": SUNNY}
    history: Any = [*ASKED, {"role": "assistant", "content": turn.content}, {"role": "user", "content": [result]}]
    assert messages.create(**common, max_tokens=FEW, messages=history, tools=tools).content


def openai_sdk(url: str) -> None:
    responses = OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0).responses
    common: dict[str, Any] = {"model": MODEL, "instructions": HELPFUL, "temperature": 0}
    told(responses.create(**common, input=FRANCE).output_text)
    with responses.stream(**common, input=FRANCE) as stream:
        told(stream.get_final_response().output_text)
    tools: Any = [
        {"type": "function", "name": "get_weather", "description": ABOUT, "parameters": SCHEMA, "strict": True}
    ]
    choice: Any = {"type": "function", "name": "get_weather"}
    with responses.stream(**common, input=FRANCE, tools=tools, tool_choice=choice) as stream:
        first = stream.get_final_response()
    (call,) = (item for item in first.output if item.type == "function_call")
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": SUNNY}]
    more: Any = {"tools": tools, "input": output, "previous_response_id": first.id, "max_output_tokens": FEW}
    assert responses.create(**common, **more).output


async def openai_agents(url: str) -> None:
    set_default_openai_client(AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0))
    plain = Assistant(name="A", model=MODEL, instructions=HELPFUL, model_settings=ModelSettings(temperature=0))
    told((await Runner.run(plain, FRANCE)).final_output)
    streamed = Runner.run_streamed(plain, FRANCE)
    async for _ in streamed.stream_events():
        pass
    told(streamed.final_output)

    @function_tool
    def get_weather(place: Place) -> str:
        """The weather of a city."""
        return SUNNY

    forced = ModelSettings(temperature=0, tool_choice="get_weather")
    caller = plain.clone(tools=[get_weather], model_settings=forced, tool_use_behavior="stop_on_first_tool")
    assert (await Runner.run(caller, FRANCE)).final_output == SUNNY


def langchain(model: BaseChatModel, few: BaseChatModel) -> None:
    asked = [SystemMessage(HELPFUL), HumanMessage(FRANCE)]
    told(model.invoke(asked).text)
    told("".join(chunk.text for chunk in model.stream(asked)))
    called = model.bind_tools([Place], tool_choice="Place").invoke(asked)
    (call,) = called.tool_calls
    assert Place(**call["args"]).city
    assert few.invoke([*asked, called, ToolMessage(SUNNY, tool_call_id=call["id"])]).usage_metadata


def langchain_anthropic(url: str) -> None:
    common: Any = {"model": MODEL, "base_url": url, "api_key": KEY, "max_retries": 0, "temperature": 0}
    langchain(ChatAnthropic(**common, max_tokens=200), ChatAnthropic(**common, max_tokens=FEW))


def langchain_openai(url: str) -> None:
    common: Any = {"model": MODEL, "base_url": f"{url}/v1", "api_key": KEY, "max_retries": 0, "temperature": 0}
    responses: Any = {**common, "use_responses_api": True}
    langchain(ChatOpenAI(**responses), ChatOpenAI(**responses, max_tokens=FEW))


async def pydantic_ai(model: Model) -> None:
    """Its output is a tool that must be called."""
    settings: Any = {"temperature": 0, "max_tokens": 200, "parallel_tool_calls": False}
    agent = Agent(model, system_prompt=HELPFUL, model_settings=settings)
    told((await agent.run(FRANCE)).output)
    async with agent.run_stream(FRANCE) as running:
        told(await running.get_output())
    placed = Agent(model, system_prompt=HELPFUL, model_settings=settings, output_type=Place)
    assert isinstance((await placed.run(FRANCE)).output, Place)


async def pydantic_ai_anthropic(url: str) -> None:
    await pydantic_ai(AnthropicModel(MODEL, provider=AnthropicProvider(base_url=url, api_key=KEY)))


async def pydantic_ai_openai(url: str) -> None:
    await pydantic_ai(OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=KEY)))


def litellm_anthropic(url: str) -> None:
    common: Any = {"model": f"anthropic/{MODEL}", "base_url": url, "api_key": KEY, "temperature": 0}
    asked: Any = [{"role": "system", "content": HELPFUL}, *ASKED]
    told(litellm.completion(**common, messages=asked, max_tokens=200).choices[0].message.content)
    told("".join(_texts(litellm.completion(**common, messages=asked, max_tokens=200, stream=True))))
    function = {"name": "get_weather", "description": ABOUT, "parameters": SCHEMA}
    tools = {"tools": [{"type": "function", "function": function}]}
    choice = {"type": "function", "function": {"name": "get_weather"}}
    called = litellm.completion(**common, **tools, messages=asked, max_tokens=200, tool_choice=choice)
    message = called.choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": SUNNY}
    assert litellm.completion(**common, **tools, messages=[*asked, message, result], max_tokens=FEW).choices


def _texts(stream: Any) -> Iterator[str]:
    return (chunk.choices[0].delta.content or "" for chunk in stream)


play(
    anthropic_sdk,
    openai_sdk,
    openai_agents,
    langchain_anthropic,
    langchain_openai,
    pydantic_ai_anthropic,
    pydantic_ai_openai,
    litellm_anthropic,
)
