"""Tool calls at the wire, where what users reported was in the wire and not in a format."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.engines.scripted.engine import ScriptedReply
from paraserve.formats.families import FORMATS
from paraserve.formats.registry import get_format
from tests.api.wire import chunks, folded, post, unfolded
from tests.formats.render import Call, render_calls
from tests.observability.scrape import scrape
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


WHOLE = call_of("hermes")
BROKEN = WHOLE.replace("{}", '{"a": no}')


@pytest.mark.parametrize(
    ("text", "finish", "calls", "only_streamed", "content", "broken"),
    [
        (BROKEN, "stop", ['{"a": '], [], "no}}", 1),
        (f"{BROKEN}\n{WHOLE}", "tool_calls", ["{}"], ['{"a": '], "no}}", 1),
        (f"{WHOLE}\n{BROKEN}", "tool_calls", ["{}"], ['{"a": '], "no}}", 1),
        (BROKEN + BROKEN, "stop", ['{"a": ', '{"a": '], [], "no}}no}}", 2),
        (WHOLE.replace("list_shelves", "burn"), "stop", [], [], WHOLE.replace("list_shelves", "burn"), 1),
        ("<tool_call>", "stop", [], [], "<tool_call>", 0),
    ],
)
async def test_whole_and_streamed_agree_on_a_broken_call(
    text: str, finish: str, calls: list[str], only_streamed: list[str], content: str, broken: int
) -> None:
    """A stream cannot take back what it has shown of it; a whole response leaves it out beside complete ones."""
    async with client(deployment(engine(reply(text)), reasoning_parser=None, tool_call_parser="hermes")) as http:
        for stream in (False, True):
            response = await post(http, tools=[SHELVES], stream=stream)
            (choice,) = (folded(chunks(response.text)) if stream else unfolded(response.json())).values()
            got = [call["arguments"] for call in choice["tool_calls"]]
            assert sorted(got) == sorted(calls + only_streamed * stream)
            assert (choice["content"].replace("\n", ""), choice["finish_reason"]) == (content.replace("\n", ""), finish)
        seen = await scrape(http)
    assert seen.value("broken_tool_calls_total", model="toy") == 2 * broken
    assert seen.value("tool_calls_total", model="toy") == 2 * (finish == "tool_calls")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_special_tokens_that_close_nothing_are_counted_and_not_shown(stream: bool) -> None:
    text = "Hi<|tool_call_end|> there<|tool_calls_section_end|>"
    async with client(deployment(engine(reply(text)), reasoning_parser=None, tool_call_parser="kimi_k2")) as http:
        response = await post(http, tools=[SHELVES], stream=stream)
        seen = await scrape(http)
    (choice,) = (folded(chunks(response.text)) if stream else unfolded(response.json())).values()
    assert (choice["content"], choice["tool_calls"], choice["finish_reason"]) == ("Hi there", [], "stop")
    assert seen.value("stray_markers_total", model="toy") == 2


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
