"""Loops with tools in the message shapes of agent clients: a call, its result in the shape in which the client sends
both back, an answer.

The shapes are those of recorded clients, told again here; where the recordings lie beside the shared assets, their
bodies are sent as well.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraserve.protocol.chat import decode_chat
from tests.api.wire import CHAT, chunks, folded, unfolded
from tests.prompt.real_templates import real_prompts
from tests.toy import TOKENIZER, client, deployment, engine, reply

Message = dict[str, Any]
RECORDED = Path(os.environ.get("PARASERVE_SHARED_AGENTS", Path(__file__).parents[3] / "shared" / "agent-apis"))
BODIES = sorted(RECORDED.glob("chat-*.json"))

ASK = {"role": "user", "content": "Read notes.txt."}
RESULT = "The word is SECRET."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]
CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "notes.txt"}}\n</tool_call>'
SPOKEN = "<think>The user wants me to look.</think>I will look." + CALL


def call_of(got: Message) -> Message:
    (call,) = got["tool_calls"]
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def answered(got: Message, content: Any = RESULT, **fields: Any) -> Message:
    return {"role": "tool", "tool_call_id": got["tool_calls"][0]["id"], "content": content, **fields}


def said(got: Message, **fields: Any) -> Message:
    return {"role": "assistant", "tool_calls": [call_of(got)]} | fields


SHAPES: dict[str, Callable[[Message], list[Message]]] = {
    "openai agents: null content": lambda got: [said(got, content=None), answered(got)],
    "openai client: empty content, index beside the call": lambda got: [
        {
            "content": "",
            "role": "assistant",
            "tool_calls": [{**call_of(got), "index": 0}],
            "reasoning_content": "I look.",
        },
        answered(got),
    ],
    "llama-index: the id last": lambda got: [
        said(got, content=got["content"], tool_calls=[dict(reversed(call_of(got).items()))]),
        answered(got),
    ],
    "ai sdk, opencode, cline, pydantic-ai: reasoning beside content": lambda got: [
        said(got, content=got["content"], reasoning_content=got["reasoning_content"]),
        answered(got),
    ],
    "langchain, litellm: the tool's name in its result": lambda got: [
        said(got, content=got["content"], reasoning_content=got["reasoning_content"]),
        answered(got, name="read_file"),
    ],
    "qwen-code: the result as parts": lambda got: [
        said(got, content=got["content"]),
        answered(got, [{"type": "text", "text": RESULT}]),
    ],
    "autogen, crewai: content missing, nulls": lambda got: [
        said(got, refusal=None, name=None, function_call=None, audio=None),
        answered(got),
    ],
    "mistral's client: thinking chunks": lambda got: [
        said(
            got,
            content=[
                {"type": "thinking", "thinking": [{"type": "text", "text": got["reasoning_content"]}], "closed": True},
                {"type": "text", "text": got["content"]},
            ],
        ),
        answered(got),
    ],
    "reasoning as a part": lambda got: [
        said(got, content=[{"type": "reasoning", "text": got["reasoning_content"]}, {"type": "text", "text": "Well."}]),
        answered(got),
    ],
    "a user's word behind the result": lambda got: [
        said(got, content=""),
        answered(got),
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}]},
    ],
    "a call that was cut": lambda got: [
        said(got, tool_calls=[{**call_of(got), "function": {"name": "read_file", "arguments": '{"path": "notes.txt'}}]),
        answered(got, "An error: " + RESULT),
    ],
    "a call without arguments, as null": lambda got: [
        said(got, tool_calls=[{**call_of(got), "function": {"name": "read_file", "arguments": "null"}}]),
        answered(got),
    ],
    "an aborted turn: nothing in it": lambda got: [
        said(got, content=None),
        answered(got),
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Go on."},
    ],
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_loop_goes_on_in_the_shape_in_which_its_client_sends_history(shape: str, stream: bool) -> None:
    scripted = engine(reply(SPOKEN), reply("<think>So.</think>It is SECRET."))
    async with client(deployment(scripted)) as http:

        async def turn(messages: list[Message]) -> Message:
            body = {"model": "toy", "messages": messages, "tools": TOOLS, "stream": stream}
            response = await http.post(CHAT, json=body)
            assert response.status_code == 200, response.text
            choices = folded(chunks(response.text)) if stream else unfolded(response.json())
            return choices[0]

        first = await turn([ASK])
        assert first["finish_reason"] == "tool_calls"
        last = await turn([ASK, *SHAPES[shape](first)])
    assert (last["content"], last["finish_reason"]) == ("It is SECRET.", "stop")
    prompt = TOKENIZER.decode(scripted.requests[-1].token_ids)
    assert prompt.index("Read notes.txt.") < prompt.index("read_file") < prompt.index(RESULT)


def recorded(path: Path) -> dict[str, Any]:
    """A body; what recording has shortened (texts among the tools, limits of a larger context) is left out."""
    body: dict[str, Any] = json.loads(path.read_text())["body"]
    body.pop("max_tokens", None)
    return body | {"tools": [tool for tool in body["tools"] if isinstance(tool, dict)]}


@pytest.mark.skipif(not BODIES, reason=f"there are no recorded clients here ({RECORDED}); set PARASERVE_SHARED_AGENTS")
@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
async def test_a_recorded_body_is_served(path: Path) -> None:
    body = recorded(path)
    scripted = engine(reply("<think>So.</think>It is SECRET."), context_length=100_000)
    async with client(deployment(scripted, allow_any_model=True)) as http:
        response = await http.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    choices = folded(chunks(response.text)) if body.get("stream") else unfolded(response.json())
    assert choices[0]["content"] == "It is SECRET."


@pytest.mark.skipif(not BODIES, reason=f"there are no recorded clients here ({RECORDED}); set PARASERVE_SHARED_AGENTS")
def test_the_calls_and_results_of_recorded_bodies_are_in_the_prompt_of_every_template(shared_assets: Path) -> None:
    for body in BODIES:
        request = decode_chat(json.dumps(recorded(body)).encode())
        for path, prompt in real_prompts(shared_assets).items():
            if prompt.capabilities["default"].results and prompt.capabilities["default"].calls:
                text = prompt.prepare(request).text
                assert "SECRET" in text, (body.stem, path.stem)
                assert "notes.txt" in text, (body.stem, path.stem)
