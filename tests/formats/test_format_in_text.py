"""Calls that no marker announces, behind text and in a fenced block: read where the operator asks for it, else text."""

from __future__ import annotations

import json

import pytest

from paraserve.formats.families.in_text import with_calls_in_text
from paraserve.formats.registry import get_format
from paraserve.formats.spec import Format, compose
from paraserve.formats.types import ReplyStart
from tests.formats.formats_kit import TOOLS, WITH_CALLS, parse, parse_invariant
from tests.formats.golden_replies import REPLIES

CALL = {
    "llama3_json": '{"name": "save_note", "parameters": {"title": "x"}}',
    "xlam": '[{"name": "save_note", "arguments": {"title": "x"}}]',
    "pythonic": '[save_note(title="x")]',
    "lfm2": '[save_note(title="x")]',
}
BARE = [format for format in WITH_CALLS if any(calls.bare for calls in format.calls)]
NOTE = [("save_note", {"title": "x"})]


@pytest.mark.parametrize("format", BARE, ids=lambda format: format.name)
@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ("Let me see.\n{}", "Let me see.\n"),
        ("Let me see.\n\n```json\n{}\n```", "Let me see.\n\n"),
        ("```json\n{}\n```", ""),
        ("```\n{}\n```\nDone.", "\nDone."),
        ("So: {}\nDone.", "So: \nDone."),
    ],
)
def test_a_call_behind_text_or_in_a_fence_is_read_where_it_is_asked_for(
    format: Format, reply: str, content: str
) -> None:
    text = reply.replace("{}", CALL[format.name])
    folded = parse_invariant(with_calls_in_text(format), text)
    assert (folded.plain_calls, folded.content.strip()) == (NOTE, content.strip())
    folded = parse_invariant(format, text)
    assert (folded.plain_calls, folded.content) == ([], text)


@pytest.mark.parametrize("format", BARE, ids=lambda format: format.name)
@pytest.mark.parametrize(
    "text",
    [
        'It is\n```json\n{"name": "Ann", "age": 3}\n```\nas you see, [1] and {"name": 3}.',
        '{"name": "nobody", "parameters": {}} [nobody(x=1)]',
        '```json\n{"name": "save_note"}\n```',
        'a {"name": "save_note", "more": 1, "parameters": {"title": "x"}} b',
        '```python\nprint("{\\"name\\"")\n```',
        'He said {"name": "save_no',
    ],
)
def test_what_is_no_call_stays_as_it_is(format: Format, text: str) -> None:
    folded = parse_invariant(with_calls_in_text(format), text)
    assert (folded.calls, folded.content) == ([], text)


def test_a_thought_may_tell_of_calls() -> None:
    format = with_calls_in_text(compose(get_format("qwen3"), get_format("llama3_json")))
    call = CALL["llama3_json"]
    folded = parse_invariant(format, f"I write {call} then.\n</think>\n\nNow {call}", start=ReplyStart.REASONING)
    assert (folded.reasoning, folded.content, folded.plain_calls) == (f"I write {call} then.", "Now ", NOTE)


@pytest.mark.parametrize("format", WITH_CALLS, ids=lambda format: format.name)
def test_nothing_else_changes(format: Format) -> None:
    asked = with_calls_in_text(format)
    assert asked == format or format in BARE
    assert asked.calls[0] == format.calls[0]
    assert parse(asked, REPLIES[format.name])[0].comparable == parse(format, REPLIES[format.name])[0].comparable


def test_arguments_of_several_calls_in_text_keep_their_order() -> None:
    calls = "; ".join(json.dumps({"name": name, "parameters": {}}) for name in ("list_shelves", "save_note"))
    folded = parse_invariant(with_calls_in_text(get_format("llama3_json")), f"Two: {calls}", tools=TOOLS)
    assert [name for name, _ in folded.plain_calls] == ["list_shelves", "save_note"]
