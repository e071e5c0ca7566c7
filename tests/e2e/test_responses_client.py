"""The official client's Responses API against the real model: whole, streamed, parsed, kept. No patch, no special
flag."""

from __future__ import annotations

import re
from typing import Any

import openai
import pydantic
import pytest

from tests.e2e.conftest import MODEL, eventually

FRANCE = "What is the capital of France?"
HELPFUL = "You are a helpful assistant."
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def asked(**fields: Any) -> Any:
    return {"model": MODEL, "instructions": HELPFUL, "input": FRANCE, "temperature": 0, **fields}


def test_a_stream_accumulates_to_the_whole_response(client: openai.OpenAI) -> None:
    whole = client.responses.create(**asked())
    assert "Paris" in whole.output_text
    with client.responses.stream(**asked()) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final: Any = stream.get_final_response()
    assert said == final.output_text == whole.output_text
    assert final.usage.output_tokens == whole.usage.output_tokens  # type: ignore[union-attr]
    assert (final.status, whole.status) == ("completed", "completed")


def test_the_prompt_is_the_one_of_chat(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "system", "content": HELPFUL}, {"role": "user", "content": FRANCE}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    response = client.responses.create(**asked())
    counted = client.responses.input_tokens.count(model=MODEL, instructions=HELPFUL, input=FRANCE)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens == counted.input_tokens  # type: ignore[union-attr]


def test_a_tool_loop_goes_on_by_the_id_of_the_response(client: openai.OpenAI) -> None:
    tools = {"tools": [WEATHER], "parallel_tool_calls": False}
    first: Any = client.responses.create(**asked(**tools, tool_choice="required"))
    call = first.output[-1]
    assert (call.type, call.name) == ("function_call", "get_weather")
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    more = {"previous_response_id": first.id, **tools, "max_output_tokens": 32}
    kept: Any = client.responses.create(**asked(input=output, **more))
    history = [{"role": "user", "content": FRANCE}, *first.output, *output]
    sent: Any = client.responses.create(**asked(input=history, **{**more, "previous_response_id": None}, store=False))
    own = {"id", "call_id"}
    assert [item.model_dump(exclude=own) for item in kept.output] == [
        item.model_dump(exclude=own) for item in sent.output
    ]
    # Each turn is the beginning of the next one's prompt: all that was read is not read again.
    assert sent.usage.input_tokens_details.cached_tokens > first.usage.input_tokens


def test_a_stream_of_a_call_and_a_schema_are_parsed(client: openai.OpenAI) -> None:
    class City(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        country: str = pydantic.Field(max_length=10)

    parsed = client.responses.parse(**asked(text_format=City, max_output_tokens=64))
    assert isinstance(parsed.output_parsed, City)
    forced = {"tool_choice": {"type": "function", "name": "get_weather"}}
    with client.responses.stream(**asked(tools=[WEATHER], **forced)) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        final: Any = stream.get_final_response()
    assert [event.arguments for event in done] == [final.output[-1].arguments]


def test_a_stored_response_is_found_listed_and_deleted(client: openai.OpenAI) -> None:
    talk = client.conversations.create(metadata={"a": "b"})
    made = client.responses.create(**asked(conversation=talk.id, max_output_tokens=8))
    assert client.responses.retrieve(made.id).output_text == made.output_text
    assert [item.type for item in client.responses.input_items.list(made.id)] == ["message"]
    assert [item.type for item in client.conversations.items.list(talk.id)] == ["message", "message"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as error:
        client.responses.retrieve(made.id)
    assert error.value.code == "response_not_found"


def test_a_reply_in_the_background_comes_and_another_is_cancelled(client: openai.OpenAI) -> None:
    made = client.responses.create(**asked(background=True))
    assert eventually(lambda: client.responses.retrieve(made.id).status not in ("queued", "in_progress"))
    assert "Paris" in client.responses.retrieve(made.id).output_text
    long = client.responses.create(**asked(background=True, input="Count to a thousand."))
    assert client.responses.cancel(long.id).status == "cancelled"


PATCH = r"""
start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF
%import common.LF
"""
MOVES = 'start: move ("; " move)~1..2\nmove: ("up" | "down") " " /[1-9]/'


@pytest.mark.parametrize(
    ("definition", "begins"),
    [(MOVES, "(up|down) [1-9]; (up|down) "), (PATCH, r"\*\*\* Begin Patch\n\*\*\* (Add|Delete|Update) File: .")],
)
def test_the_engine_obeys_the_grammar_of_a_custom_tool(client: openai.OpenAI, definition: str, begins: str) -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": definition}
    tool: Any = {"type": "custom", "name": "act", "description": "Acts.", "format": grammar}
    fields = asked(tools=[tool], tool_choice="required", parallel_tool_calls=False, max_output_tokens=60)
    raw = client.responses.with_raw_response.create(**fields)
    call: Any = raw.parse().output[-1]
    assert "custom_grammar_not_enforced" not in raw.headers.get("x-paraserve-normalizations", "")
    assert (call.type, call.name) == ("custom_tool_call", "act")
    assert re.match(begins, call.input), call.input
