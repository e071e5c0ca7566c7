"""A reply that goes on from text which the prompt holds: what is shown is the rest of what the whole would show.

Two laws over every family and every place where a reply can be divided into prefill and rest: *suffix* (reasoning,
content and calls are exactly what the whole reply shows beyond the prefill; a call that it leaves open is whole) and
*chunk invariance* of the rest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.output import parser_for
from paraserve.formats.registry import get_format
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart
from tests.formats.formats_kit import (
    LIST_SHELVES,
    SAVE_NOTE,
    TOOLS,
    WITH_CALLS,
    Folded,
    each,
    fold,
    parse,
    random_split,
)
from tests.formats.golden_replies import REPLIES
from tests.formats.render import Call, render
from tests.formats.test_format_fuzz import REASONS, soup


def replies(format: Format) -> list[str]:
    """Short ones: as the family writes them, twice, with text and half a marker behind, with a tool nobody knows."""
    ids = ("nOtE00001", "sHeLf0002") if format.ids == "nine" else ("", "")
    calls = [Call("save_note", {"title": " a\n", "stars": 3}, ids[0]), Call("list_shelves", {}, ids[1])]
    unknown = [Call("nobody", {"title": "one"}, ids[0])]
    reply = render(format, reasoning="Hm — 先." if format.reasoning else None, content="Hi ✍️", calls=calls)
    opener = next((m for m in sorted(format.marker_texts, key=len) if len(m) > 3), "<x>")
    return [
        f"{reply}\n{reply}",
        f"{reply}\n Then \n{opener[:3]} {opener}more",
        render(format, content="Hi", calls=unknown),
    ]


def shown_after(format: Format, text: str, at: int, chunks: Sequence[str]) -> Folded:
    folded, _ = parse(format, chunks, prefill=text[:at])
    return folded


def completed_before(format: Format, text: str, **options: Any) -> list[int]:
    """How many calls are complete in front of each character, and at the end."""
    parser = parser_for(format)(format, tools=TOOLS, **options)
    counts = [0]
    for character in text:
        parser.feed(character)
        counts.append(parser.completed_calls)
    return counts


def drops_only_what_the_prompt_holds(before: str, after: str, character: str) -> bool:
    return after == before or character + after == before


@each(WITH_CALLS)
def test_what_is_shown_after_a_prefill_is_the_suffix_of_the_whole(format: Format) -> None:
    for text in [REPLIES[format.name], *replies(format)]:
        whole, _ = parse(format, text)
        calls = [(call.name, call.arguments, call.ended) for call in whole.calls]
        shown = [shown_after(format, text, at, [text[at:]]) for at in range(len(text) + 1)]
        assert shown[0].comparable == whole.comparable
        assert (shown[-1].reasoning, shown[-1].content) == ("", "")
        for at, completed in enumerate(completed_before(format, text)):
            said = [(call.name, call.arguments, call.ended) for call in shown[at].calls]
            assert said == calls[completed:], (text[:at], text[at:])
        for at, (before, after) in enumerate(pairwise(shown)):
            place = (text[:at], text[at:])
            assert drops_only_what_the_prompt_holds(before.reasoning, after.reasoning, text[at]), place
            assert drops_only_what_the_prompt_holds(before.content, after.content, text[at]), place


@each(WITH_CALLS)
def test_the_rest_after_a_prefill_means_the_same_in_every_split(format: Format) -> None:
    for text in replies(format):
        for at in range(0, len(text) + 1, 3):
            whole = shown_after(format, text, at, [text[at:]]).comparable
            assert shown_after(format, text, at, list(text[at:])).comparable == whole, (text[:at], text[at:])


@each(FORMATS)
def test_soup_after_a_prefill_keeps_the_laws(format: Format) -> None:
    chooser = random.Random(f"prefill {format.name}")
    for _ in range(25):
        text = soup(format, chooser)
        at = chooser.randint(0, len(text))
        reason, start = chooser.choice(REASONS), chooser.choice(list(ReplyStart))
        options = {"start": start, "undeclared": chooser.choice(["content", "call"])}
        whole, _ = parse(format, text, reason, **options)
        rest, _ = parse(format, [text[at:]], reason, prefill=text[:at], **options)
        for chunks in (list(text[at:]), random_split(text[at:], at)):
            cut, _ = parse(format, chunks, reason, prefill=text[:at], **options)
            assert cut.comparable == rest.comparable, (text[:at], chunks, options, reason)
        # Behind a whole call, a cut hides the header that it cuts; a call of the prompt is none of the rest's.
        hides = reason != "stop" and any(call.ended for call in whole.calls[: len(whole.calls) - len(rest.calls)])
        assert hides or whole.content.endswith(rest.content), (text[:at], text[at:], options, reason)
        assert whole.reasoning.endswith(rest.reasoning), (text[:at], text[at:], options, reason)


@pytest.mark.parametrize(
    ("prefill", "rest", "content"),
    [
        ('<tool_call>\n{"name": "list_shelves", "arguments": {}}\n', "</tool_call>Hello world", "Hello world"),
        ('<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool', "_call>\nHello world", "\nHello world"),
    ],
)
def test_closing_markup_after_a_prefilled_call_takes_no_text_with_it(prefill: str, rest: str, content: str) -> None:
    for chunks in ([rest], list(rest)):
        assert parse(get_format("qwen3"), chunks, prefill=prefill)[0].content == content


@each(WITH_CALLS)
def test_a_call_of_the_prefill_does_not_count_as_the_one_that_parallel_calls_allow(format: Format) -> None:
    """Calls of the prefill belong to the conversation before: the first of the reply is its own first."""
    ids = ("nOtE00001", "sHeLf0002") if format.ids == "nine" else ("", "")
    calls = [Call("save_note", {"title": "one"}, ids[0]), Call("list_shelves", {}, ids[1])]
    text = render(format, content="", calls=calls, start=ReplyStart.CONTENT)
    options = {"start": ReplyStart.CONTENT, "parallel_tool_calls": False}
    for at, completed in enumerate(completed_before(format, text, start=ReplyStart.CONTENT)):
        folded, _ = parse(format, [text[at:]], prefill=text[:at], **options)
        wanted = [(call.name, call.arguments) for call in calls[completed:][:1]]
        assert folded.plain_calls == wanted, (text[:at], text[at:])


def test_a_call_left_open_is_reported_with_nothing_said_before_it() -> None:
    parser = parser_for(get_format("qwen3"))(
        get_format("qwen3"),
        tools=[SAVE_NOTE, LIST_SHELVES],
        prefill='Hi <tool_call>\n{"name": "save_note", "arguments": {"title": "o',
    )
    folded = fold([*parser.feed('ne"}}\n</tool_call>'), *parser.finish("stop")])
    assert folded.content == ""
    assert folded.plain_calls == [("save_note", {"title": "one"})]
