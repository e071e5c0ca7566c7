"""The openai package on the Responses API."""

import json
from collections.abc import Callable
from typing import Any

from openai import OpenAI
from pydantic import BaseModel
from task import QUESTION, REMEMBERING, SCHEMA, THOUGHT, File, play

DECLARED: Any = {
    "type": "function",
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": SCHEMA,
    "strict": True,
}


class Word(BaseModel):
    word: str


def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def loop(turn: Callable[..., Any]) -> None:
    """Turns until nothing is called any more."""
    file = File()
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        response = turn(model="scripted", tools=[DECLARED], input=items)
        assert response.status == "completed"
        assert response.output[0].content[0].text == THOUGHT
        items += response.output
        for call in response.output:
            if call.type == "function_call":
                output = file.read_file(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    assert response.output_text == REMEMBERING
    file.was_read_once()


def create(url: str) -> None:
    loop(client(url).responses.create)


def stream(url: str) -> None:
    def turn(**fields: Any) -> Any:
        with client(url).responses.stream(**fields) as running:
            return running.get_final_response()

    loop(turn)


def previous_response_id(url: str) -> None:
    """The server keeps the history, thought included."""
    asked: Any = {"model": "scripted", "tools": [DECLARED]}
    first = client(url).responses.create(**asked, input=QUESTION)
    (call,) = (item for item in first.output if item.type == "function_call")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "heron-4711"}
    second = client(url).responses.create(**asked, input=[output], previous_response_id=first.id)
    assert second.output_text == REMEMBERING
    assert client(url).responses.retrieve(second.id).output_text == REMEMBERING


def parse(url: str) -> None:
    parsed = client(url).responses.parse(model="scripted", input="Say the word as JSON.", text_format=Word)
    assert parsed.output_parsed == Word(word="heron-4711")


def input_tokens(url: str) -> None:
    asked: Any = {"model": "scripted", "input": QUESTION, "tools": [DECLARED]}
    usage = client(url).responses.create(**asked).usage
    assert usage is not None
    assert client(url).responses.input_tokens.count(**asked).input_tokens == usage.input_tokens


play(create, stream, previous_response_id, parse, input_tokens)
