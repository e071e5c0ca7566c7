"""The anthropic package: only base URL, key and model are its own."""

from collections.abc import Callable
from typing import Any

from anthropic import Anthropic, beta_tool
from pydantic import BaseModel
from task import QUESTION, REMEMBERING, SCHEMA, THOUGHT, File, play

DECLARED: Any = {"name": "read_file", "description": "Reads a file.", "input_schema": SCHEMA}
START: Any = [{"role": "user", "content": QUESTION}]


class Word(BaseModel):
    word: str


def client(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="none", max_retries=0)


def loop(turn: Callable[..., Any]) -> None:
    """Turns until no tool is used any more."""
    file, messages = File(), [*START]
    for _ in range(2):
        message = turn(model="scripted", max_tokens=1000, tools=[DECLARED], messages=messages)
        assert message.content[0].thinking == THOUGHT
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason == "tool_use":
            (use,) = (block for block in message.content if block.type == "tool_use")
            result = {"type": "tool_result", "tool_use_id": use.id, "content": file.read_file(**use.input)}
            messages.append({"role": "user", "content": [result]})
    assert message.stop_reason == "end_turn"
    assert message.content[-1].text == REMEMBERING
    file.was_read_once()


def create(url: str) -> None:
    loop(client(url).messages.create)


def stream(url: str) -> None:
    def turn(**fields: Any) -> Any:
        with client(url).messages.stream(**fields) as running:
            return running.get_final_message()

    loop(turn)


def tool_runner(url: str) -> None:
    for streamed in (False, True):
        file = File()
        tool = beta_tool(file.read_file, name="read_file", description="Reads a file.")
        runner = client(url).beta.messages.tool_runner(
            model="scripted", max_tokens=1000, messages=START, tools=[tool], stream=streamed
        )
        last: Any = runner.until_done()
        assert last.content[-1].text == REMEMBERING
        file.was_read_once()


def parse(url: str) -> None:
    asked: Any = [{"role": "user", "content": "Say the word as JSON."}]
    parsed = client(url).messages.parse(model="scripted", max_tokens=100, messages=asked, output_format=Word)
    assert parsed.parsed_output == Word(word="heron-4711")


def count_tokens(url: str) -> None:
    asked: Any = {"model": "scripted", "messages": START, "tools": [DECLARED]}
    usage = client(url).messages.create(**asked, max_tokens=1000).usage
    counted = client(url).messages.count_tokens(**asked).input_tokens
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def models(url: str) -> None:
    assert [model.id for model in client(url).models.list()] == ["scripted"]


play(create, stream, tool_runner, parse, count_tokens, models)
