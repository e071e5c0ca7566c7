"""openai-agents in its default mode: the Responses API."""

from agents import Agent, Runner, Tool, function_tool, set_default_openai_client
from openai import AsyncOpenAI
from pydantic import BaseModel
from task import QUESTION, REMEMBERING, File, play


class Word(BaseModel):
    word: str


def reader(url: str, file: File) -> Agent:
    set_default_openai_client(AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0))
    tools: list[Tool] = [function_tool(file.read_file, name_override="read_file")]
    return Agent(name="Reader", model="scripted", instructions="Be short.", tools=tools)


async def run(url: str) -> None:
    file = File()
    result = await Runner.run(reader(url, file), QUESTION)
    assert result.final_output == REMEMBERING, result.final_output
    file.was_read_once()


async def previous_response_id(url: str) -> None:
    file = File()
    result = await Runner.run(reader(url, file), QUESTION, auto_previous_response_id=True)
    assert result.final_output == REMEMBERING, result.final_output
    file.was_read_once()


async def stream(url: str) -> None:
    file = File()
    result = Runner.run_streamed(reader(url, file), QUESTION)
    async for _ in result.stream_events():
        pass
    assert result.final_output == REMEMBERING, result.final_output
    file.was_read_once()


async def typed(url: str) -> None:
    reader(url, File())
    teller = Agent(name="Teller", model="scripted", output_type=Word)
    assert (await Runner.run(teller, "Say the word as JSON.")).final_output == Word(word="heron-4711")


play(run, previous_response_id, stream, typed)
