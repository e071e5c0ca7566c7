"""Tools that a message declares, and those that ``allowed_tools`` leaves: what reads a reply knows them."""

from typing import Any

import pytest

from tests.api.wire import CHAT, chunks, folded, unfolded
from tests.toy import client, deployment, engine, reply

TEMPLATE = """
{%- for m in messages %}{% if m.tools %}MORE {{ m.tools | tojson }}{% continue %}{% endif -%}
[{{ m.role }}]{{ m.content }}
{% endfor %}{{ tools | tojson }}{% if add_generation_prompt %}[assistant]{% endif %}"""
CALL = '<tool_call>\n{"name": "late", "arguments": {}}\n</tool_call>'


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


async def called(stream: bool, **fields: Any) -> tuple[list[str], Any]:
    """Names of the calls that a client gets of a reply that calls ``late``, and what the engine was asked."""
    scripted = engine(reply(CALL))
    async with client(deployment(scripted, template=TEMPLATE, undeclared_tools="content")) as http:
        body = {"model": "toy", "stream": stream} | fields
        response = await http.post(CHAT, json=body)
    assert response.status_code == 200, response.text
    choices = folded(chunks(response.text)) if stream else unfolded(response.json())
    return [call["name"] for call in choices[0]["tool_calls"]], scripted.requests[-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "late"}}])
async def test_a_call_to_a_tool_of_a_message_is_one(stream: bool, choice: Any) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "system", "tools": [tool("late")]}]
    names, asked = await called(stream, messages=messages, tool_choice=choice)
    assert names == ["late"]
    assert (asked.constraint is not None) == (choice != "auto")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("allowed", "names"), [(["late"], ["late"]), (["early"], [])])
async def test_only_allowed_tools_are_called(stream: bool, allowed: list[str], names: list[str]) -> None:
    chosen = {"mode": "auto", "tools": [{"type": "function", "function": {"name": name}} for name in allowed]}
    got, _ = await called(
        stream,
        messages=[{"role": "user", "content": "hi"}],
        tools=[tool("early"), tool("late")],
        tool_choice={"type": "allowed_tools", "allowed_tools": chosen},
    )
    assert got == names
