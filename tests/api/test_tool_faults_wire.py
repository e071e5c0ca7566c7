"""Tool calls at the wire, where what users reported was in the wire and not in a format."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.engines.scripted.engine import ScriptedReply
from paraserve.formats.families import FORMATS
from paraserve.formats.registry import get_format
from tests.api.wire import chunks, folded, post, unfolded
from tests.formats.render import Call, render_calls
from tests.toy import END, TEMPLATE, TOKENIZER, client, deployment, engine, reply

SHELVES = {"type": "function", "function": {"name": "list_shelves", "parameters": {"type": "object", "properties": {}}}}
# Those which frame the whole reply want a reasoning parser of their own.
WITH_CALLS = [format.name for format in FORMATS if format.calls and not (format.channels or format.frame_markers)]


def call_of(family: str) -> str:
    format = get_format(family)
    return render_calls(format, [Call("list_shelves", {}, "abcDEF123" if format.ids == "nine" else "")])


SPELLED = [name for name in WITH_CALLS if "<tool_call>" in call_of(name)]


async def said(tokens: list[int], family: str, stream: bool, **fields: Any) -> dict[str, Any]:
    served = deployment(engine(ScriptedReply(token_ids=tokens)), reasoning_parser=None, tool_call_parser=family)
    async with client(served) as http:
        response = await post(http, tools=[SHELVES], stream=stream, **fields)
    assert response.status_code == 200, response.text
    (choice,) = (folded(chunks(response.text)) if stream else unfolded(response.json())).values()
    return choice


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("family", SPELLED)
async def test_a_marker_of_ordinary_tokens_is_the_same_marker(family: str, stream: bool) -> None:
    """A model that spells it letter by letter would leak it as content."""
    text = call_of(family)
    ordinary, special = [*text.encode(), END], [*TOKENIZER.encode(text), END]
    assert len(special) < len(ordinary)
    for tokens in (ordinary, special):
        choice = await said(tokens, family, stream)
        assert [(call["name"], call["arguments"]) for call in choice["tool_calls"]] == [("list_shelves", "{}")]
        assert (choice["content"], choice["finish_reason"]) == ("", "tool_calls")


@pytest.mark.parametrize("family", WITH_CALLS)
async def test_the_first_delta_of_a_call_has_its_id_and_name_and_no_later_one_has(family: str) -> None:
    """Clients that join deltas fail on an id that is missing, null or repeated."""
    served = deployment(engine(reply(call_of(family))), reasoning_parser=None, tool_call_parser=family)
    async with client(served) as http:
        response = await post(http, tools=[SHELVES], stream=True)
    deltas = [part["choices"][0]["delta"] for part in chunks(response.text)]
    (first, *later) = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert isinstance(first.pop("id"), str)
    assert first == {"index": 0, "type": "function", "function": {"name": "list_shelves", "arguments": ""}}
    assert later
    assert all(call.keys() == {"index", "function"} and call["function"].keys() == {"arguments"} for call in later)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "function": {"name": "burn_shelves"}},
        {"type": "function"},
        {"type": "allowed_tools"},
        "list_shelves",
    ],
)
async def test_a_choice_that_names_no_declared_tool_is_refused(choice: Any, stream: bool) -> None:
    """It was read as `auto`."""
    async with client(deployment(engine())) as http:
        response = await post(http, tools=[SHELVES], tool_choice=choice, stream=stream)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("tool_choice")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_tools_are_served_by_a_server_that_was_told_only_its_model(stream: bool) -> None:
    """It took two more flags of the server."""
    chosen = {"reasoning_parser": None, "tool_call_parser": None}
    text = call_of("hermes")
    for template, calls in ((TEMPLATE, ["list_shelves"]), ("{{ messages[0].content }}", [])):
        async with client(deployment(engine(reply(text)), template=template, **chosen)) as http:
            response = await post(http, tools=[SHELVES], tool_choice="auto", stream=stream)
        assert response.status_code == 200
        (choice,) = (folded(chunks(response.text)) if stream else unfolded(response.json())).values()
        assert [call["name"] for call in choice["tool_calls"]] == calls
        assert choice["content"] == ("" if calls else text)
