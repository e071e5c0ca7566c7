"""A call that a limit cuts, or whose arguments break, is told as what it is and takes no text with it."""

from __future__ import annotations

import json
from itertools import product

import pytest

from paraserve.formats.declared.response_template import read_response_template
from paraserve.formats.families import FORMATS
from paraserve.formats.spec import Elements, Format, JsonEnvelope, JsonObject, Parameters
from paraserve.formats.templates import Text, pieces
from paraserve.formats.types import ReplyStart, TextEnd, ToolSpec
from tests.formats.declared_templates import DECLARED
from tests.formats.formats_kit import WITH_CALLS, each, parse
from tests.formats.golden_replies import CALLS, REPLIES
from tests.formats.render import Call, render

PASSED_THROUGH = [f for f in WITH_CALLS if isinstance(f.calls[0].arguments, JsonObject | JsonEnvelope)]
LISTED = [f for f in PASSED_THROUGH if isinstance(f.calls[0].arguments, JsonEnvelope) and "," in f.calls[0].between]


def ends_of_calls(format: Format, text: str) -> list[int]:
    """How much text makes each call complete, where a limit cuts behind it."""
    ends: list[int] = []
    for length in range(1, len(text) + 1):
        _, parser = parse(format, text[:length], "length")
        if parser.completed_calls > len(ends):
            ends.append(length)
    return ends


def announcing(format: Format) -> tuple[str, ...]:
    """The literals that announce a call or its section."""
    if format.channels and format.channels.call:
        return format.channels.opens
    templates = (format.read_calls[0].section_open, format.read_calls[0].open)
    words = [piece.text for template in templates for piece in pieces(template)[:1] if isinstance(piece, Text)]
    return tuple(word for word in words if any(map(str.isalpha, word)))


def opener_end(format: Format, text: str, after: int, name: str) -> int:
    """Where the opener of the call of this name is whole that begins behind ``after``: its announcing literal, or the
    object that holds the name, or (a Python call) the name's first character."""
    in_bodies = format.read_calls != format.calls  # behind a header with the name
    begin = text.index(f'"{name}"' if in_bodies else name, after)
    ends = [at + len(word) for word in announcing(format) if (at := text.find(word, after, begin)) >= 0]
    brace = text.find("{", after, begin)
    return min(ends, default=brace + 1 if brace >= 0 else begin + 1)


@each(WITH_CALLS)
@pytest.mark.parametrize("reason", ["length", "abort"])
def test_a_later_call_that_is_cut_is_open_from_its_opener_to_its_end(format: Format, reason: str) -> None:
    text = REPLIES[format.name]
    ends = ends_of_calls(format, text)
    assert len(ends) == len(CALLS)
    for index in range(1, len(ends)):
        _, parser = parse(format, text[: ends[index - 1]], reason)
        assert not parser.open_call
        begin = opener_end(format, text, ends[index - 1], CALLS[index][0])
        for cut in range(begin, ends[index]):
            _, parser = parse(format, text[:cut], reason)
            assert parser.open_call, text[:cut]
            assert parser.completed_calls == index
    assert not parse(format, text, reason)[1].open_call


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_region_of_calls_that_is_cut_is_an_open_call(name: str) -> None:
    declared, text = DECLARED[name]
    format = read_response_template(declared, name=name)
    whole, _ = parse(format, text)
    for cut in range(text.index("title"), len(text)):
        folded, parser = parse(format, text[:cut], "length")
        assert parser.open_call == (len(folded.calls) < len(whole.calls)), text[:cut]


@each(WITH_CALLS)
def test_a_header_that_the_model_itself_left_open_is_mere_mention(format: Format) -> None:
    text = REPLIES[format.name]
    first, second, *_ = ends_of_calls(format, text)
    begin = opener_end(format, text, first, CALLS[1][0])
    _, parser = parse(format, text[:begin], "stop")
    assert not parser.open_call
    assert second > begin


@each(WITH_CALLS)
def test_a_later_call_that_may_not_be_made_is_never_open(format: Format) -> None:
    text = REPLIES[format.name]
    first, second, *_ = ends_of_calls(format, text)
    for cut in range(first, second):
        _, parser = parse(format, text[:cut], "length", parallel_tool_calls=False)
        assert not parser.open_call, text[:cut]


# Arguments that break

BREAKS = ["NaN", "tru e", "[1, 2", "{'a': 1}", "<", "--3", '"a" "b"', "nul", "01", ",", "]", ")", "!", '{"a" 1}']


def broken_reply(format: Format, wrong: str, *keys: str) -> str:
    """A reply with one call whose number is something else."""
    values = {"title": "w1w", "stars": 31415, "body": "w2w"}
    call = Call("save_note", {key: values[key] for key in keys}, "id0000001" if format.ids == "nine" else "")
    return render(format, content="", calls=[call], start=ReplyStart.CONTENT).replace("31415", wrong)


def without(text: str, *marks: str) -> str:
    """Without whitespace and markup, which a reader may take away."""
    for mark in sorted(marks, key=len, reverse=True):
        text = text.replace(mark, "")
    return "".join(text.split())


@each(PASSED_THROUGH)
def test_json_arguments_that_break_are_there_in_every_character(format: Format) -> None:
    """What came before the break is in the deltas of the call, all that follows is content, but for named markers."""
    markers = [marker for marker in format.marker_texts if any(map(str.isalpha, marker))]
    for wrong, keys in product(BREAKS, [("title", "stars", "body"), ("title", "stars"), ("stars",)]):
        text = broken_reply(format, wrong, *keys)
        folded, parser = parse(format, text, start=ReplyStart.CONTENT)
        assert (parser.completed_calls, parser.broken_calls) == (0, 1), text
        assert not folded.calls[0].ended
        shown = folded.calls[0].arguments + folded.content
        begin = text.index("{", text.rindex("save_note"))
        assert without(shown, *markers) == without(text[begin:], *markers)
        assert parse(format, list(text), start=ReplyStart.CONTENT)[0].comparable == folded.comparable


@each(WITH_CALLS)
def test_no_word_behind_a_break_is_lost(format: Format) -> None:
    for wrong in BREAKS:
        text = broken_reply(format, f"{wrong} w3w", "title", "stars", "body")
        folded, _ = parse(format, text, start=ReplyStart.CONTENT)
        shown = folded.content + "".join(call.arguments for call in folded.calls)
        assert [shown.count(word) for word in ("w1w", "w2w", "w3w")] == [1, 1, 1], (text, shown)
        assert parse(format, list(text), start=ReplyStart.CONTENT)[0].comparable == folded.comparable


@each(LISTED)
def test_a_call_in_the_list_behind_one_that_broke_is_a_call(format: Format) -> None:
    ids = "id0000001", "id0000002"
    calls = [Call("save_note", {"stars": 31415}, ids[0]), Call("list_shelves", {}, ids[1])]
    text = render(format, content="", calls=calls, start=ReplyStart.CONTENT).replace("31415", "NaN")
    folded, parser = parse(format, text, start=ReplyStart.CONTENT)
    assert folded.plain_calls == [("list_shelves", {})]
    assert parser.broken_calls == 1
    assert "NaN}" in folded.content


def test_elements_that_break_are_said_once() -> None:
    format = next(format for format in FORMATS if isinstance(format.calls[:1] and format.calls[0].arguments, Elements))
    call = Call("save_note", {"opts": {"pin": "w1w"}})
    text = render(format, content="", calls=[call], start=ReplyStart.CONTENT)
    tag = format.calls[0].arguments.tag  # type: ignore[union-attr]
    value_end = text.index(f"{tag}</opts>") + len(f"{tag}</opts>")
    for junk in ("w2w", f"{tag}</w2w>"):
        folded, _ = parse(format, text[:value_end] + junk + text[value_end:], start=ReplyStart.CONTENT)
        shown = folded.calls[0].arguments + folded.content
        assert (shown.count("w1w"), shown.count("w2w")) == (1, 1), shown


IN_ELEMENTS = [f for f in WITH_CALLS if isinstance(f.calls[0].arguments, Parameters)]
TYPED = ToolSpec(
    "set_all",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string"},
            "on": {"type": "boolean"},
            "off": {"type": ["boolean", "null"]},
            "rate": {"type": "number"},
            "opts": {"type": "object"},
            "days": {"type": "array"},
        },
    },
)


@each(IN_ELEMENTS)
@pytest.mark.parametrize("reason", ["length", "abort"])
def test_what_a_cut_leaves_of_tagged_arguments_is_a_prefix_of_the_whole(format: Format, reason: TextEnd) -> None:
    """No half of a tag in a value, and no value of another type than the whole one has."""
    values = {
        "word": "x < y",
        "on": True,
        "off": None,
        "rate": 1.5,
        "opts": {"a": [1, "é"]},
        "days": [True, "b"],
    }
    call = Call("set_all", values, "id0000001" if format.ids == "nine" else "")
    text = render(format, content="", calls=[call], start=ReplyStart.CONTENT)
    options = {"tools": (TYPED,), "start": ReplyStart.CONTENT}
    whole = parse(format, text, **options)[0].calls[0].arguments
    assert json.loads(whole) == values
    for cut in range(len(text)):
        folded, _ = parse(format, text[:cut], reason, **options)
        if folded.calls:
            assert whole.startswith(folded.calls[0].arguments), text[:cut]
            assert parse(format, list(text[:cut]), reason, **options)[0].comparable == folded.comparable
