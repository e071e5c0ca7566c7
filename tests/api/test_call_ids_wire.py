"""A call's id has its family's shape on every way to a call: chosen, required or named, streamed or not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paraserve.formats.registry import get_format
from tests.api.wire import chunks, folded, post, unfolded
from tests.formats.render import Call, render_calls
from tests.toy import client, deployment, engine, reply

SHELVES = {"type": "function", "function": {"name": "list_shelves", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "list_shelves"}}
BEFORE = "functions.list_shelves:0"
HISTORY = [
    {"role": "user", "content": "What is there?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": BEFORE, "type": "function", "function": {"name": "list_shelves", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": BEFORE, "content": "books"},
    {"role": "user", "content": "And next door?"},
]
FAMILIES = {
    # with ids of their own: counted over the conversation; nine alphanumerics, the model's where it writes one
    "kimi_k2": r"functions\.list_shelves:[12]",
    "mistral": r"[A-Za-z0-9]{9}",
    "mistral_v11": r"abcDEF12[12]",
    # without
    "hermes": r"call_[0-9a-f]{24}",
    "glm47": r"call_[0-9a-f]{24}",
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("choice", ["auto", "required", NAMED], ids=["auto", "required", "named"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_ids_have_the_shape_of_the_family_however_the_call_came_about(
    family: str, choice: Any, stream: bool
) -> None:
    format = get_format(family)
    written = ("abcDEF121", "abcDEF122") if format.ids == "nine" else ("", "")
    text = render_calls(format, [Call("list_shelves", {}, id_) for id_ in written], call_index_offset=1)
    served = deployment(engine(reply(text)), reasoning_parser=None, tool_call_parser=family)
    async with client(served) as http:
        response = await post(http, messages=HISTORY, tools=[SHELVES], tool_choice=choice, stream=stream)
    assert response.status_code == 200, response.text
    (said,) = (folded(chunks(response.text)) if stream else unfolded(response.json())).values()
    assert said["finish_reason"] == "tool_calls"
    ids = [call["id"] for call in said["tool_calls"]]
    assert len(set(ids)) == (1 if choice == NAMED else 2), "one that is named is called once"
    assert all(re.fullmatch(FAMILIES[family], id_) for id_ in ids), ids
