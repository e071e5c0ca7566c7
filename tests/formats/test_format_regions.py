"""Declarations that no description can say are run as they stand, with the same laws as every format."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

import pytest

from paraserve.formats.declared.content import UnsupportedTemplateError
from paraserve.formats.declared.parser import RegionParser
from paraserve.formats.declared.regions import RegionKind
from paraserve.formats.declared.response_template import read_response_template
from paraserve.formats.output import checkpoint_format, parser_for
from paraserve.formats.spec import PLAIN, compose
from paraserve.formats.types import ReplyStart
from tests.formats.declared_templates import DECLARED, HARMONY, LINES, PYTHON, TAGS, WHOLE
from tests.formats.formats_kit import TOOLS, parse, parse_invariant, random_split, steps_of

FORMATS = {name: read_response_template(declared, name=name) for name, (declared, _) in DECLARED.items()}
REPLIES = {name: reply for name, (_, reply) in DECLARED.items()}
each = pytest.mark.parametrize("name", DECLARED)
CALL = [("save_note", {"title": "x", "stars": 3})]


@each
def test_reply_is_exact_in_every_split(name: str) -> None:
    assert FORMATS[name].declared is not None
    folded = parse_invariant(FORMATS[name], REPLIES[name])
    assert (folded.reasoning, folded.content, folded.plain_calls) == ("hm", "Hi there", CALL)


@each
def test_reply_after_an_opened_reasoning_block_means_the_same(name: str) -> None:
    block = FORMATS[name].reasoning
    assert block is not None
    rest = REPLIES[name][REPLIES[name].index("hm") :]
    for text in (rest, "\n" + rest, block.open + rest):
        folded = parse_invariant(FORMATS[name], text, start=ReplyStart.REASONING)
        assert (folded.reasoning, folded.content, folded.plain_calls) == ("hm", "Hi there", CALL)


@each
def test_reply_past_reasoning_means_the_same(name: str) -> None:
    rest = REPLIES[name][REPLIES[name].index("hm") + 2 :].lstrip()
    closing = FORMATS[name].declared.first(RegionKind.REASONING).close.at(rest, 0, final=True)  # type: ignore[union-attr]
    after = rest[closing.end() :]  # type: ignore[union-attr]
    for text in (after, rest[rest.index("Hi there") :]):  # the prompt may hold the answer's opener
        folded = parse_invariant(FORMATS[name], text, start=ReplyStart.CONTENT)
        assert (folded.reasoning, folded.content.strip(), folded.plain_calls) == ("", "Hi there", CALL)


@each
def test_prefilled_text_is_not_said_again(name: str) -> None:
    reply = REPLIES[name]
    for cut in range(1, len(reply), 3):
        whole, _ = parse(FORMATS[name], reply)
        rest, parser = parse(FORMATS[name], list(reply[cut:]), prefill=reply[:cut])
        assert whole.reasoning.endswith(rest.reasoning)
        assert whole.content.endswith(rest.content)
        assert rest.plain_calls == CALL
        assert parser.completed_calls == 1


@each
def test_a_reply_without_markup_is_content(name: str) -> None:
    folded = parse_invariant(FORMATS[name], "Just an answer, a < b.\n\n2. more")
    assert folded.content == "Just an answer, a < b.\n\n2. more"


@each
def test_with_tools_off_call_markup_is_text(name: str) -> None:
    folded = parse_invariant(FORMATS[name], REPLIES[name], parse_tool_calls=False)
    call = REPLIES[name][REPLIES[name].index("Hi there") + 8 :]
    assert not folded.calls
    assert "save_note" in folded.content
    assert folded.content.startswith("Hi there")
    if FORMATS[name].declared.implicit:  # type: ignore[union-attr]
        assert folded.content == "Hi there" + call


@each
def test_an_undeclared_tool_is_content_as_it_stands(name: str) -> None:
    reply = REPLIES[name].replace("save_note", "drop_note")
    folded = parse_invariant(FORMATS[name], reply)
    _, parser = parse(FORMATS[name], reply)
    assert not folded.calls
    assert parser.broken_calls == 1
    assert "drop_note" in folded.content
    folded, parser = parse(FORMATS[name], reply, undeclared="call")
    assert [call.name for call in folded.calls] == ["drop_note"]
    assert parser.completed_calls == 1


@each
def test_a_call_that_was_cut_is_content_and_no_call(name: str) -> None:
    reply = REPLIES[name]
    cut = reply[: reply.index("3")]
    for reason in ("length", "abort"):
        folded = parse_invariant(FORMATS[name], cut, reason)  # type: ignore[arg-type]
        _, parser = parse(FORMATS[name], cut, reason)  # type: ignore[arg-type]
        assert not folded.calls
        assert parser.broken_calls == 1
        assert "save_note" in folded.content


@each
def test_parallel_calls_off_keeps_the_first(name: str) -> None:
    once = REPLIES[name]
    if name == "whole":
        return
    again = once[once.index("Hi there") + 8 :]
    folded, parser = parse(FORMATS[name], once + again, parallel_tool_calls=False)
    assert folded.plain_calls == CALL
    assert folded.content == "Hi there"
    folded, parser = parse(FORMATS[name], once + again)
    assert folded.plain_calls == CALL * 2
    assert parser.completed_calls == 2


@each
def test_reasoning_is_known_while_it_lasts(name: str) -> None:
    reply = REPLIES[name]
    parser = parser_for(FORMATS[name])(FORMATS[name], tools=TOOLS)
    parser.feed(reply[: reply.index("hm") + 1])
    assert parser.in_reasoning
    parser.feed(reply[reply.index("hm") + 1 : reply.index("Hi there") + 8])
    assert not parser.in_reasoning


@each
def test_tokens_of_delimiters_stay_in_the_text(name: str) -> None:
    for region in FORMATS[name].declared.items:  # type: ignore[union-attr]
        for anchor in (region.open, region.close):
            for literal in anchor.literals if anchor else ():
                assert FORMATS[name].needs_token(literal)


@each
def test_any_text_means_the_same_in_every_split_and_loses_nothing(name: str) -> None:
    chooser = random.Random(name)
    format = FORMATS[name]
    pieces = [*format.marker_texts, *REPLIES[name].split(" "), " ", "\n", "{", "}", "<", "x", '"title"', ": 1", "é́🌤️"]
    for round_ in range(300):
        text = "".join(chooser.choice(pieces) for _ in range(chooser.randint(1, 14)))
        start = chooser.choice(list(ReplyStart))
        reason = chooser.choice(["stop", "length"])
        whole, parser = parse(format, text, reason, start=start)  # type: ignore[arg-type]
        for chunks in (list(text), random_split(text, round_)):
            other, cut = parse(format, chunks, reason, start=start)  # type: ignore[arg-type]
            assert other.comparable == whole.comparable, (text, start, chunks)
            assert cut.broken_calls == parser.broken_calls
        if not whole.calls:
            said = "".join((whole.reasoning + whole.content).split())
            left = "".join(text.split())
            for marker in sorted(format.marker_texts, key=len, reverse=True):
                left = left.replace("".join(marker.split()), "")
            for char in set(left) - set("".join(map(str, format.marker_texts))):
                assert char in said, (text, char)


def test_text_streams_as_it_comes() -> None:
    parser = parser_for(FORMATS["harmony"])(FORMATS["harmony"], tools=TOOLS)
    parser.feed("<|channel|>final<|message|>")
    assert [event.text for event in parser.feed("One <|re")] == ["One"]  # type: ignore[union-attr]
    assert [event.text for event in parser.feed("ply> two")] == [" <|reply> two"]  # type: ignore[union-attr]


@each
def test_plain_text_comes_out_as_if_it_were_read(name: str) -> None:
    def parser() -> RegionParser:
        return RegionParser(FORMATS[name], tools=TOOLS, new_id=lambda: "call_1")

    reader, quick = parser(), parser()
    plain = 0
    for char in REPLIES[name]:
        event, read = quick.plain(char), reader.feed(char)
        assert (quick.feed(char) if event is None else [event]) == read
        plain += event is not None
    assert plain
    assert quick.finish("stop") == reader.finish("stop")


def test_numbers_keep_their_text_and_strings_every_character() -> None:
    title = '  "a" <b>\\ \n\ud800'.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    numbers = "1.0, 1e5, 123456789012345678901234567890"
    body = json.dumps({"title": title, "opts": {"n": [1.0, 2]}}).replace("1.0", numbers)
    reply = REPLIES["harmony"].replace('{"title": "x", "stars": 3}', body)
    folded = parse_invariant(FORMATS["harmony"], reply)
    assert numbers in folded.calls[0].arguments
    assert folded.plain_calls[0][1]["title"] == title


def test_a_lone_surrogate_stays_an_escape() -> None:
    reply = REPLIES["harmony"].replace('"x"', r'"\ud83d"')
    folded, _ = parse(FORMATS["harmony"], reply)
    folded.calls[0].arguments.encode()
    assert folded.plain_calls == [("save_note", {"title": "\ud83d", "stars": 3})]


def test_untyped_values_take_their_type_from_the_schema() -> None:
    lines = "<call v2.set-rate>\nrate = 1.50\nexact = True\nlabel = 00042\n</call>"
    assert (
        parse_invariant(FORMATS["lines"], lines).calls[0].arguments == '{"rate": 1.50, "exact": true, "label": "00042"}'
    )
    tags = '<call name="v2.set-rate"><a rate>2</a><a exact>false</a><a label>null</a><a other>7</a></call>'
    read = parse(FORMATS["tags"], tags)[0].plain_calls[0][1]
    assert read == {"rate": 2, "exact": False, "label": None, "other": "7"}


def test_a_string_of_tags_keeps_every_space_and_its_own_markers() -> None:
    value = "  if a < b:\n\t<arg x> \n"
    folded = parse_invariant(FORMATS["tags"], f'<call name="save_note"><arg body>{value}</arg></call>')
    assert folded.plain_calls == [("save_note", {"body": value})]


def test_duplicate_tags_are_merged_where_that_is_declared() -> None:
    folded, _ = parse(FORMATS["tags"], '<call name="save_note"><a k>1</a><a k>2</a></call>')
    assert folded.plain_calls == [("save_note", {"k": ["1", "2"]})]


def test_reasoning_that_a_call_ends_leaves_the_call() -> None:
    folded = parse_invariant(FORMATS["tags"], '<think>hm<call name="list_shelves"></call>')
    assert (folded.reasoning, folded.plain_calls) == ("hm", [("list_shelves", {})])


def test_repeated_texts_are_joined_as_declared() -> None:
    folded = parse_invariant(FORMATS["python"], "<think> one </think><think>two</think>ok")
    assert (folded.reasoning, folded.content) == ("one\n--\ntwo", "ok")
    folded = parse_invariant(FORMATS["lines"], "One\n<call list_shelves></call>\nTwo")
    assert (folded.content, folded.plain_calls) == ("One\n\nTwo", [("list_shelves", {})])


def test_several_calls_of_one_list() -> None:
    folded = parse_invariant(FORMATS["python"], '<code>[list_shelves(), save_note(title="a")]</code>')
    assert folded.plain_calls == [("list_shelves", {}), ("save_note", {"title": "a"})]


@pytest.mark.parametrize(
    "reply",
    [
        '<|channel|>commentary to=functions.save_note<|message|>{"title": <|call|>',
        "<|channel|>commentary to=functions.save_note<|message|>[1]<|call|>",
        "<|channel|>commentary to=functions.save_note<|message|>" + '{"a":' * 3000 + "1" + "}" * 3000 + "<|call|>",
    ],
)
def test_what_is_no_call_is_content_as_it_stands(reply: str) -> None:
    folded, parser = parse(FORMATS["harmony"], reply)
    assert folded.content == reply
    assert (parser.completed_calls, parser.broken_calls) == (0, 1)


def test_a_balanced_object_at_the_end_is_a_whole_call() -> None:
    reply = REPLIES["harmony"].removesuffix("<|call|>")
    for reason in ("stop", "length"):
        folded, _ = parse(FORMATS["harmony"], reply, reason)  # type: ignore[arg-type]
        assert folded.plain_calls == CALL
    lines = REPLIES["lines"].removesuffix("</call>")
    assert parse(FORMATS["lines"], lines, "stop")[0].plain_calls == CALL
    assert parse(FORMATS["lines"], lines, "length")[0].plain_calls == []


def test_a_lone_message_start_between_regions_is_markup_and_other_text_is_content() -> None:
    reply = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    assert parse_invariant(FORMATS["harmony"], reply).content == ""
    assert parse_invariant(FORMATS["harmony"], reply + " Hello.").content == "Hello."


def test_one_half_of_a_declaration_can_be_turned_off() -> None:
    declared = FORMATS["lines"]
    no_tools, no_reasoning = compose(declared, PLAIN), compose(PLAIN, declared)
    assert parse(no_tools, REPLIES["lines"])[0].plain_calls == []
    assert parse(no_reasoning, REPLIES["lines"])[0].reasoning == ""
    with pytest.raises(ValueError, match="cannot be combined"):
        compose(declared, FORMATS["tags"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thinking": {"open_pattern": "(<a+)+", "close": "x"}}, "repetition within repetition"),
        ({"thinking": {"open_pattern": ".*<a>", "close": "x"}}, "too wide"),
        ({"thinking": {"open_pattern": "(?<=a)<b>", "close": "x"}}, "kind of group"),
        ({"thinking": {"open_pattern": "a|", "close": "x"}}, "match nothing"),
        ({"thinking": {"open_pattern": "(", "close": "x"}}, "no regular expression"),
        ({"thinking": {"open": "<t>"}}, "does not end"),
        ({"thinking": {"open": "", "close": "x"}}, "empty"),
        ({"thinking": {"open": "<t>", "open_pattern": "x", "close": "x"}}, "one pattern"),
        ({"thinking": {"open": "<t>", "close": "</t>", "content": "json"}}, "plain text"),
        ({"mood": {"open": "<m>", "close": "</m>"}}, "mood"),
        ({"tool_calls": {"open": ["<a>", "<b>"], "content": "yaml"}}, "yaml"),
        ({"tool_calls": {"open": ["<a>", "<b>"], "content": "json", "transform": "call {name}"}}, "placeholder"),
        ({"tool_calls": {"open": ["<a>", "<b>"], "content": "xml-inline"}}, "tag_pattern"),
        ({"tool_calls": {"open": "<a>", "surprise": 1}}, "unknown field `surprise`"),
    ],
)
def test_what_cannot_be_run_is_refused_at_start(
    change: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    declared = {**LINES, "fields": {"content": {}, **change}}
    with pytest.raises(UnsupportedTemplateError, match=message):
        read_response_template(declared)
    with caplog.at_level(logging.WARNING):
        assert checkpoint_format("{{ m.content }}", (), declared) is None
    assert "response_template is not used" in caplog.text


def test_a_declaration_serves_where_the_chat_template_is_unknown() -> None:
    for declared in (HARMONY, LINES, TAGS, PYTHON, WHOLE):
        found = checkpoint_format("{{ m.content }}", (), declared)
        assert found is not None
        assert parser_for(found) is RegionParser


@each
@pytest.mark.parametrize("part", ["content", "reasoning", "call"])
def test_cost_does_not_grow_with_the_reply(name: str, part: str) -> None:
    reply = REPLIES[name]
    before = {"content": "Hi there", "reasoning": "hm", "call": "x"}[part]
    cut = reply.index(before)

    def cost(chunks: int) -> float:
        parser = parser_for(FORMATS[name])(FORMATS[name], tools=TOOLS)
        parser.feed(reply[:cut])
        return steps_of(lambda: [parser.feed("ab <") for _ in range(chunks)]) / chunks

    assert cost(8000) < 1.1 * cost(1000) + 1


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "whole"])  # whose call ends with the reply
def test_a_prefill_may_hold_several_calls_though_the_reply_may_make_one(name: str) -> None:
    """The same rule as for descriptions: the request bounds the reply, not the conversation before it."""
    call = REPLIES[name].partition("Hi there")[2]
    prefill, twice = call + call, call + call
    options: dict[str, Any] = {"parallel_tool_calls": False, "start": ReplyStart.CONTENT}
    folded, parser = parse(FORMATS[name], twice, prefill=prefill, **options)
    assert [called for called, _ in folded.plain_calls] == ["save_note"]
    assert parser.completed_calls == 1
