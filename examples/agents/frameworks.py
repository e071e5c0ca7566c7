"""LangChain and pydantic-ai on both APIs, and LiteLLM as a bridge to Messages."""

import json
from typing import Any

import litellm
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from task import QUESTION, REMEMBERING, SCHEMA, THOUGHT, File, play

litellm.suppress_debug_info = True


class Word(BaseModel):
    word: str


def langchain_loop(model: BaseChatModel) -> None:
    for stream in (False, True):
        file = File()
        agent = create_agent(model, [tool(file.read_file)])
        asked: Any = {"messages": [{"role": "user", "content": QUESTION}]}
        if stream:
            *_, state = agent.stream(asked, stream_mode="values")
        else:
            state = agent.invoke(asked)
        assert state["messages"][-1].text == REMEMBERING, state["messages"]
        file.was_read_once()


def langchain_anthropic(url: str) -> None:
    model: Any = ChatAnthropic(model="scripted", base_url=url, api_key="none", max_retries=0)
    langchain_loop(model)


def langchain_openai(url: str) -> None:
    langchain_loop(
        ChatOpenAI(model="scripted", base_url=f"{url}/v1", api_key="none", max_retries=0, use_responses_api=True)
    )


async def pydantic_ai_loop(model: Model) -> None:
    for stream in (False, True):
        file = File()
        agent = Agent(model, tools=[file.read_file])
        if stream:
            async with agent.run_stream(QUESTION) as running:
                said = await running.get_output()
            messages = running.all_messages()
        else:
            result = await agent.run(QUESTION)
            said, messages = result.output, result.all_messages()
        assert said == REMEMBERING, messages
        thoughts = [
            part
            for message in messages
            if isinstance(message, ModelResponse)
            for part in message.parts
            if isinstance(part, ThinkingPart)
        ]
        assert len(thoughts) == 2, messages
        assert isinstance(model, OpenAIResponsesModel) or all(part.content == THOUGHT for part in thoughts), messages
        file.was_read_once()
    teller = Agent(model, output_type=Word)
    assert (await teller.run("Say the word as JSON.")).output == Word(word="heron-4711")


async def pydantic_ai_anthropic(url: str) -> None:
    provider = AnthropicProvider(base_url=url, api_key="none")
    await pydantic_ai_loop(AnthropicModel("scripted", provider=provider))


async def pydantic_ai_openai(url: str) -> None:
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    await pydantic_ai_loop(OpenAIResponsesModel("scripted", provider=provider))


def litellm_anthropic(url: str) -> None:
    declared = {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}
    for stream in (False, True):
        file, messages = File(), [{"role": "user", "content": QUESTION}]
        for _ in range(2):
            response: Any = litellm.completion(
                model="anthropic/scripted",
                base_url=url,
                api_key="none",
                messages=messages,
                tools=[{"type": "function", "function": declared}],
                stream=stream,
            )
            if stream:
                response = litellm.stream_chunk_builder(list(response), messages=messages)
            message = response.choices[0].message
            assert message.reasoning_content == THOUGHT, response
            messages.append(message.model_dump())
            for call in message.tool_calls or []:
                result = file.read_file(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert message.content == REMEMBERING, messages
        file.was_read_once()


play(langchain_anthropic, langchain_openai, pydantic_ai_anthropic, pydantic_ai_openai, litellm_anthropic)
