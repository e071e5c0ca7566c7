"""What models write beside their family's own form is read, and what is right stays as it is.

The laws hold for every family: a value that was not closed, whitespace between any two pieces of markup, and special
tokens that open or close nothing. What single families are known to write stands in `drift.jsonl`, in the words of
docs/formats.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraserve.formats.families import FORMATS
from paraserve.formats.reading.strings import encode_string
from paraserve.formats.registry import get_format
from paraserve.formats.spec import Format, Parameters
from paraserve.formats.templates import fill, is_special, marks
from paraserve.formats.types import ReplyStart, TextEnd, ToolSpec
from tests.formats.formats_kit import parse, parse_invariant, random_split
from tests.formats.render import Call, render

RUN = ToolSpec(
    "run",
    {
        "type": "object",
        "properties": {
            "cmd": {"type": "string"},
            "timeout": {"type": "integer"},
            "flags": {"type": "array", "items": {"type": "string"}},
            "code": {"description": "of no type"},
        },
    },
)
LIST = ToolSpec("list_shelves", {"type": "object", "properties": {}})
TOOLS = (RUN, LIST)
WITH_CALLS = [format for format in FORMATS if format.calls]
TAGGED = [format for format in WITH_CALLS if isinstance(format.calls[0].arguments, Parameters)]
WORDS = st.text("abc <>/&'\"{}=é", min_size=1, max_size=12).filter(
    lambda text: text.strip() == text and not re.search(r"</[^<>/\s]+>\Z", text)  # which stands for the closing marker
)


def written(format: Format, *calls: Call, content: str = "") -> str:
    made = [
        Call(call.name, call.arguments, f"id{i:07}" if format.ids == "nine" else "") for i, call in enumerate(calls)
    ]
    return render(format, content=content, calls=made, start=ReplyStart.CONTENT)


def closing(format: Format) -> tuple[str, str]:
    """A value's closing marker, with what is written before and behind it."""
    arguments = format.calls[0].arguments
    assert isinstance(arguments, Parameters)
    close = arguments.close.strip()
    return arguments.close, arguments.close.replace(close, "").replace("\n\n", "\n")


# A value that is not closed


@pytest.mark.parametrize("format", TAGGED, ids=lambda format: format.name)
def test_a_value_that_is_not_closed_ends_where_something_else_begins(format: Format) -> None:
    """At the next argument, at the call's remaining closing markup where the reply ends or another call follows."""

    @settings(max_examples=15, deadline=None, database=None)
    @given(cmd=WORDS, seed=st.integers(0, 2**32))
    def run(cmd: str, seed: int) -> None:
        close, left = closing(format)
        one, both = Call("run", {"cmd": cmd}), Call("run", {"cmd": cmd, "timeout": 5})
        for calls, wanted in (
            ([both], [("run", {"cmd": cmd, "timeout": 5})]),
            ([one], [("run", {"cmd": cmd})]),
            ([one, both], [("run", {"cmd": cmd}), ("run", {"cmd": cmd, "timeout": 5})]),
        ):
            text = written(format, *calls).replace(cmd + close, cmd + left, 1)
            for chunks in ([text], list(text), random_split(text, seed)):
                folded, parser = parse(format, chunks, tools=TOOLS, start=ReplyStart.CONTENT)
                assert folded.plain_calls == wanted, text
                assert (folded.content, parser.broken_calls, parser.open_call) == ("", 0, False)

    run()


@pytest.mark.parametrize("format", TAGGED, ids=lambda format: format.name)
def test_a_value_that_tells_of_calls_is_whole(format: Format) -> None:
    """Openers of arguments and closing markup in it are its text, as long as its own closing marker comes."""
    inner = written(format, Call("list_shelves", {}))
    opener = fill(format.calls[0].arguments.open, key="timeout", type="number", string="false")  # type: ignore[union-attr]
    in_a_line = [f"write {opener.strip()} in a line"] if "\n" in closing(format)[0] else []
    for told in (f"so:\n{inner}\n", f"{inner} and {inner}.", *in_a_line):
        text = written(format, Call("run", {"cmd": told, "code": "x"}))
        folded = parse_invariant(format, text, tools=TOOLS, start=ReplyStart.CONTENT)
        assert folded.plain_calls == [("run", {"cmd": told, "code": "x"})]


PAIRS = [
    format
    for format in TAGGED
    if isinstance(arguments := format.calls[0].arguments, Parameters) and "{key}</" in "".join(arguments.also_opens)
]


@pytest.mark.parametrize("format", PAIRS, ids=lambda format: format.name)
def test_an_opener_of_a_call_in_a_value_is_seen_whatever_else_may_begin_there(format: Format) -> None:
    """A key may stand behind it as well, which more text decides: the value goes on where none does."""
    text = written(format, Call("run", {"cmd": "u"}))
    close, left = closing(format)
    opener = marks(format.calls[0].open)[0]
    key = fill(format.calls[0].arguments.open, key="timeout")  # type: ignore[union-attr]
    _, _, behind = key.partition("timeout")
    for told, calls in (
        (f"u{opener}{behind}", [("run", {"cmd": f"u{opener}{behind}"})]),
        (f"u{left}{opener}timeout{behind}5", [("run", {"cmd": "u", "timeout": 5})]),
    ):
        reply = text.replace(f"u{close}", f"{told}{close}", 1)
        assert parse_invariant(format, reply, tools=TOOLS, start=ReplyStart.CONTENT).plain_calls == calls


@pytest.mark.parametrize("name", ["glm45", "glm47", "longcat2", "qwen3_coder", "deepseek_v4", "minimax_m2"])
def test_text_behind_a_closing_tag_at_the_end_is_not_lost(name: str) -> None:
    """Only half a tag is hidden there, and whole ones behind which nothing stands."""
    format = get_format(name)
    text, _, _ = written(format, Call("run", {"cmd": "pwd"})).partition("pwd")
    reasons: tuple[TextEnd, ...] = ("stop", "length")
    for reason in reasons:
        for tag in (closing(format)[0], "</e>"):
            for chunks in ([f"{text}pwd{tag}words"], list(f"{text}pwd{tag}words")):
                folded, parser = parse(format, chunks, reason, tools=TOOLS, start=ReplyStart.CONTENT)
                assert folded.calls[0].arguments == '{"cmd": ' + encode_string(f"pwd{tag}words")[:-1]
                assert folded.content == ""
                assert (parser.broken_calls, parser.open_call) == (1, True)


def test_what_may_be_a_set_is_not_lost_where_the_reply_ends() -> None:
    text = "<function_calls>run(flags={words"
    folded = parse_invariant(get_format("olmo3"), text, tools=TOOLS, start=ReplyStart.CONTENT)
    assert (folded.calls[0].arguments, folded.content) == ('{"flags": ', "{words")


@pytest.mark.parametrize("name", ["minimax_m1", "hunyuan_a13b", "ernie45"])
def test_a_marker_of_the_reply_is_no_stray_closing_tag_of_a_call(name: str) -> None:
    format = get_format(name)
    tag = format.content_close.strip() or (format.reasoning.close if format.reasoning else "")
    text = written(format, Call("nobody", {})).rstrip()
    cut = text.rindex("</")
    for start in (ReplyStart.REASONING, ReplyStart.CONTENT):
        parse_invariant(format, f"{text[:cut]}{tag}{text[cut:]}", tools=TOOLS, start=start)


# Whitespace in every joint


def joints(format: Format, text: str) -> list[int]:
    """Places in the text between two marks of the format's call markup."""
    calls = format.calls[0]
    arguments = calls.arguments
    templates = [calls.section_open + calls.open, calls.close, calls.section_close]
    if isinstance(arguments, Parameters):
        templates += [arguments.close.strip()]
    found = set()
    for template in templates:
        for piece in template.replace("{name}", "\0").replace("{id}", "\0").replace("{index}", "\0").split("\0"):
            pieces = marks(piece.strip())
            at = text.find(piece.strip())
            if at < 0:
                continue
            for mark in pieces[:-1]:
                at = text.index(mark, at) + len(mark)
                found.add(at)
    return sorted(found)


@pytest.mark.parametrize("format", WITH_CALLS, ids=lambda format: format.name)
@pytest.mark.parametrize("space", [" ", "\n"], ids=["blank", "line break"])
def test_whitespace_between_two_pieces_of_markup_means_nothing(format: Format, space: str) -> None:
    if format.channels:
        pytest.skip("a header is read as a whole")
    calls = [Call("run", {"cmd": "ls", "timeout": 5}), Call("list_shelves", {})]
    text = written(format, *calls)
    places = joints(format, text)
    loose = [text[:at] + space + text[at:] for at in places]
    every = text
    for at in reversed(places):
        every = every[:at] + space + every[at:]
    for reply in (*loose, every):
        for chunks in ([reply], list(reply)):
            folded, parser = parse(format, chunks, tools=TOOLS, start=ReplyStart.CONTENT)
            assert folded.plain_calls == [("run", {"cmd": "ls", "timeout": 5}), ("list_shelves", {})], reply
            assert (folded.content.strip(), parser.broken_calls) == ("", 0), reply


# Special tokens


def special_markers(format: Format) -> list[str]:
    """The format's own special tokens that close or open something."""
    markers = [format.reasoning.open, format.reasoning.close] if format.reasoning else []
    calls = format.calls[0]
    markers += [mark for mark in marks(calls.close) + marks(calls.section_close) if any(map(str.isalpha, mark))]
    return [marker for marker in markers if is_special(marker) and not marker.startswith(("<|open|>", "<|sep|>"))]


SPECIAL = [format for format in WITH_CALLS if not format.channels and special_markers(format)]


@pytest.mark.parametrize("format", SPECIAL, ids=lambda format: format.name)
def test_a_special_token_that_closes_nothing_is_never_content(format: Format) -> None:
    closers = [
        marker for marker in special_markers(format) if format.reasoning is None or marker != format.reasoning.open
    ]
    whole = [marker for marker in closers if not marker.startswith(("<|close|>", "]<]"))]

    @settings(max_examples=25, deadline=None, database=None)
    @given(parts=st.lists(st.sampled_from([*whole, "Well. ", "x"]), min_size=1, max_size=6), seed=st.integers(0, 2**32))
    def run(parts: list[str], seed: int) -> None:
        text = "Hi " + "".join(parts) + "end"
        for chunks in ([text], list(text), random_split(text, seed)):
            folded, parser = parse(format, chunks, tools=TOOLS, start=ReplyStart.CONTENT)
            assert folded.content == "Hi " + "".join(part for part in parts if part not in whole) + "end"
            assert (folded.reasoning, folded.calls) == ("", [])
            assert parser.stray_markers == sum(part in whole for part in parts)

    run()


@pytest.mark.parametrize(
    "format",
    [f for f in FORMATS if f.reasoning and not f.channels and is_special(f.reasoning.open)],
    ids=lambda f: f.name,
)
def test_a_late_block_between_special_tokens_is_reasoning(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    text = f"Hi{block.open}{block.open_after}late{block.close_before}{block.close}{block.close_after} there"
    folded = parse_invariant(format, text, tools=TOOLS, start=ReplyStart.CONTENT)
    assert (folded.reasoning, folded.content) == ("late", "Hi there")
    folded = parse_invariant(format, f"a{block.open}b{block.close}", tools=TOOLS, start=ReplyStart.REASONING)
    assert (folded.reasoning, folded.content) == ("ab", "")


# What single families are known to write


K3 = "kimi_k3"
DRIFT = [json.loads(line) for line in (Path(__file__).parent / "drift.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("drift", DRIFT, ids=lambda drift: f"{drift['format']} {drift['text']}")
def test_what_a_family_is_known_to_write_is_read(drift: dict[str, Any]) -> None:
    folded = parse_invariant(get_format(drift["format"]), drift["text"], tools=TOOLS, start=ReplyStart.CONTENT)
    assert [[name, arguments] for name, arguments in folded.plain_calls] == drift["calls"]
    assert folded.content == ""


@pytest.mark.parametrize(
    ("name", "text", "reasoning", "content"),
    [
        (K3, "plan<|open|>response<|sep|>Hi<|close|>response<|sep|><|close|>message<|sep|>", "plan", "Hi"),
        (K3, "plan<|close|>think<|open|>response<|sep|>Hi<|close|>response<|sep|>", "plan", "Hi"),
        (K3, "Hi<|close|>response<|sep|><|close|>message<|sep|>", "Hi", ""),
        ("cohere_command3", "plan<|START_RESPONSE|>Hi<|END_RESPONSE|>", "plan", "Hi"),
        ("ernie45", "plan\n<response>\nHi\n</response>\n", "plan", "Hi"),
    ],
)
def test_the_answers_own_opener_ends_reasoning(name: str, text: str, reasoning: str, content: str) -> None:
    folded = parse_invariant(get_format(name), text, tools=TOOLS, start=ReplyStart.REASONING)
    assert (folded.reasoning.strip(), folded.content) == (reasoning, content)


@pytest.mark.parametrize(("length", "told"), [(400, 1), (600, 2)], ids=["short", "long"])
def test_a_list_that_is_repeated_is_told_once_as_far_as_it_is_remembered(length: int, told: int) -> None:
    """However it is cut; a longer one is not held back."""
    calls = f"[run(cmd='{'x' * length}')]<|tool_call_end|>"
    text = f"<|tool_call_start|>{calls}{calls}"
    for size in (len(text), 1, 7, 64):
        chunks = [text[at : at + size] for at in range(0, len(text), size)]
        folded, _ = parse(get_format("lfm2"), chunks, tools=TOOLS, start=ReplyStart.CONTENT)
        assert (folded.plain_calls, folded.content) == ([("run", {"cmd": "x" * length})] * told, "")


@pytest.mark.parametrize("name", ["cohere_command3", "cohere_command4"])
def test_citations_are_no_part_of_the_answer(name: str) -> None:
    format = get_format(name)
    answer = " <co>4</co: 0:[1,2],1:[0]> <co>apples</co: 1:[0]>, not </co> or <code>.\n<co>Yes</co: 0:[0]>"
    text = f"{format.content_open}{answer}{format.content_close}"
    folded = parse_invariant(format, text, tools=TOOLS, start=ReplyStart.CONTENT)
    assert folded.content == " 4 apples, not </co> or <code>.\nYes"


def test_a_recipient_that_is_no_tool_gets_content() -> None:
    text = "<|channel|>commentary to=assistant<|message|>It is 4.<|end|>"
    folded = parse_invariant(get_format("gpt_oss"), text, tools=TOOLS)
    assert (folded.content, folded.calls) == ("It is 4.", [])


def test_arguments_that_are_given_twice_are_given_once() -> None:
    values = "".join(f"<arg_key>cmd</arg_key><arg_value>{value}</arg_value>" for value in "ab")
    text = f"<tool_call>run{values}</tool_call>"
    folded = parse_invariant(get_format("glm47"), text, tools=TOOLS, start=ReplyStart.CONTENT)
    assert folded.calls[0].arguments == '{"cmd": "a"}'
    assert json.loads(folded.calls[0].arguments) == {"cmd": "a"}


M3 = "]<]minimax[>["


def elements(*inner: str) -> str:
    text = "".join(f"{M3}{piece}" for piece in inner)
    return f'{M3}<tool_call>\n{M3}<invoke name="run">{text}{M3}</invoke>\n{M3}</tool_call>'


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (elements("<flags>a", "</flags>", "<flags>b", "</flags>"), {"flags": ["a", "b"]}),
        (elements("<flags>a", "</flags>", "<cmd>ls", "</cmd>", "<flags>b", "</flags>"), {"flags": "a", "cmd": "ls"}),
        (elements("<cmd>ls", "<timeout>5", "</timeout>"), {"cmd": "ls", "timeout": 5}),
        (elements("<cmd>ls"), {"cmd": "ls"}),
        (elements("<timeout>5", "<cmd>ls", "</cmd>"), {"timeout": 5, "cmd": "ls"}),
        (
            elements("<code>", "<a>1", "</a>", "<a>2", "</a>", "<b>x", "</b>", "</code>"),
            {"code": {"a": [1, 2], "b": "x"}},
        ),
    ],
)
def test_elements_that_are_repeated_are_a_list_and_no_key_comes_twice(text: str, arguments: dict[str, Any]) -> None:
    folded = parse_invariant(get_format("minimax_m3"), text, tools=TOOLS, start=ReplyStart.CONTENT)
    assert folded.plain_calls == [("run", arguments)]
    assert folded.calls[0].arguments == json.dumps(arguments)
    assert folded.content == ""


# A call that broke, or was cut


def test_a_call_that_broke_hides_no_other() -> None:
    broken = '<tool_call>\n{"name": "run", "arguments": {"cmd": ls}}\n</tool_call>\n'
    whole = '<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>'
    for text in (broken + whole, whole + "\n" + broken):
        folded, parser = parse(get_format("hermes"), text, tools=TOOLS)
        assert folded.plain_calls == [("list_shelves", {})]
        assert (parser.broken_calls, parser.open_call) == (1, False)


@pytest.mark.parametrize("cut", ["<tool_call>", "<tool_call>\n{", '<tool_call>\n{"name": "ru'])
def test_half_a_header_behind_a_whole_call_is_not_shown(cut: str) -> None:
    whole = '<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>\n'
    for chunks in ([whole + cut], list(whole + cut)):
        folded, parser = parse(get_format("hermes"), chunks, "length", tools=TOOLS)
        assert (folded.content, parser.broken_calls, parser.open_call) == ("", 1, True)
    folded, _ = parse(get_format("hermes"), f"{whole}<tool_ca", "length", tools=TOOLS)
    assert folded.content.strip() == "<tool_ca"
    assert parse(get_format("hermes"), cut, "length", tools=TOOLS)[0].content == cut


def test_half_a_marker_of_special_tokens_is_not_shown_where_a_limit_cut_it() -> None:
    for text in ("Hi<|close|>", "Hi<|close|>respon"):
        for reason, content in (("length", "Hi"), ("stop", text)):
            folded, _ = parse(get_format(K3), list(text), reason, tools=TOOLS, start=ReplyStart.CONTENT)
            assert folded.content == content


@pytest.mark.parametrize("name", ["gpt_oss", "kimi_k2", "qwen3"])
def test_a_format_without_calls_shows_their_markup_as_text(name: str) -> None:
    """With tools in the request too: nobody can call what no format reads."""
    format = replace(get_format(name), calls=())
    folded, _ = parse(format, 'Hi <tool_call>{"name": "run"}', tools=TOOLS)
    assert "run" in folded.content + folded.reasoning
    assert folded.calls == []
