"""The rules for hard cases, each over every family that it can apply to.

What stands under a name is the fault that users of other servers reported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.reading.parser import OutputParser
from paraserve.formats.reading.tables import compile_format
from paraserve.formats.registry import get_format
from paraserve.formats.spec import Elements, Format, JsonEnvelope, JsonObject, Keywords, Parameters, QuotedObject
from paraserve.formats.templates import is_special
from paraserve.formats.types import ReplyStart, ToolSpec
from tests.formats.formats_kit import (
    LIST_SHELVES,
    SAVE_NOTE,
    TOOLS,
    WITH_CALLS,
    Folded,
    each,
    next_message,
    parse,
    parse_invariant,
)
from tests.formats.render import Call, render, render_calls

MARKED = [format for format in WITH_CALLS if not format.calls[0].bare]
THINKING = [format for format in FORMATS if format.reasoning]
ONE = Call("save_note", {"title": "one"})
TWO = Call("save_note", {"title": "two"})


def having(*kinds: type, of: Sequence[Format] = WITH_CALLS) -> list[Format]:
    return [format for format in of if isinstance(format.calls[0].arguments, kinds)]


def spelled_specially(format: Format) -> bool:
    """Whether reasoning stands between special tokens."""
    return format.reasoning is not None and is_special(format.reasoning.open)


def written(format: Format, *calls: Call, content: str = "") -> str:
    """A reply after a closed reasoning block."""
    return render(format, content=content, calls=with_ids(format, calls), start=ReplyStart.CONTENT)


def section(format: Format, *calls: Call, after_text: bool = False) -> str:
    """Calls alone, with nothing of the reply's frame."""
    return render_calls(format, with_ids(format, calls), after_text=after_text)


def with_ids(format: Format, calls: Sequence[Call]) -> list[Call]:
    ids = [f"id{index:07}" if format.ids == "nine" else "" for index in range(len(calls))]
    return [Call(call.name, call.arguments, id_) for call, id_ in zip(calls, ids, strict=True)]


def read(format: Format, text: str, **options: Any) -> Folded:
    options.setdefault("start", ReplyStart.CONTENT)
    return parse_invariant(format, text, **options)


# Calls


@each(WITH_CALLS)
def test_two_calls_in_one_chunk_are_two_calls(format: Format) -> None:
    """The second lost its arguments, or the whole disappeared."""
    folded = read(format, written(format, ONE, TWO))
    assert folded.plain_calls == [("save_note", {"title": "one"}), ("save_note", {"title": "two"})]
    assert [call.index for call in folded.calls] == [0, 1]
    assert folded.calls[0].id != folded.calls[1].id
    assert folded.content == ""


@each(WITH_CALLS)
def test_a_call_without_arguments_is_a_call(format: Format) -> None:
    """It vanished in streams, or lacked a brace."""
    folded = read(format, written(format, Call("list_shelves", {})))
    assert [(call.name, call.arguments, call.ended) for call in folded.calls] == [("list_shelves", "{}", True)]


def test_glm_call_without_arguments_is_a_call_in_the_chunks_that_were_reported() -> None:
    for chunks in (["<tool_call>list_shelves</tool_call>"], ["<tool_call>", "list_shelves", "</tool_call>"]):
        folded, parser = parse(get_format("glm47"), chunks)
        assert [call.arguments for call in folded.calls] == ["{}"]
        assert parser.completed_calls == 1


@each(WITH_CALLS)
def test_names_with_dots_and_hyphens_are_whole(format: Format) -> None:
    """They were cut at the first sign that is no letter."""
    tools = [ToolSpec(name) for name in ("mail-box_list-items", "chat-kit_searchNow", "v2.search")]
    calls = [Call(tool.name, {}) for tool in tools]
    assert [name for name, _ in read(format, written(format, *calls), tools=tools).plain_calls] == [
        t.name for t in tools
    ]


@each(having(Parameters, of=[f for f in WITH_CALLS if f.name.startswith("glm")]))
@pytest.mark.parametrize("around", ["\n", " ", "\r\n", "  \n"])
def test_name_is_trimmed(format: Format, around: str) -> None:
    """It kept its line end, and no client knew the tool."""
    text = f"<tool_call>{around}save_note{around}<arg_key> title </arg_key><arg_value>t</arg_value></tool_call>"
    assert read(format, text).plain_calls == [("save_note", {"title": "t"})]


@each(WITH_CALLS)
def test_an_undeclared_tool_is_no_call_and_its_text_is_kept(format: Format) -> None:
    """A tool that does not exist was called."""
    unknown = Call("nobody", {"title": "<tool_call>save_note</tool_call>"})
    text = section(format, unknown)
    folded, parser = parse(format, text, start=ReplyStart.CONTENT)
    assert folded.calls == []
    assert "nobody" in folded.content
    assert "<tool_call>save_note</tool_call>" in folded.content
    assert parser.broken_calls == 1
    assert parser.completed_calls == 0
    assert read(format, text).content == folded.content


@each(WITH_CALLS)
def test_an_undeclared_tool_is_a_call_where_the_operator_allows_it(format: Format) -> None:
    unknown = Call("nobody", {"title": "x"})
    for tools in ((), TOOLS):
        folded = read(format, written(format, unknown), undeclared="call", tools=tools)
        assert folded.plain_calls == [("nobody", {"title": "x"})]


@each(WITH_CALLS)
def test_a_declared_call_after_an_undeclared_one_is_a_call(format: Format) -> None:
    unknown = Call("nobody", {"title": "x"})
    folded = read(format, written(format, unknown, ONE))
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert "nobody" in folded.content
    assert "one" not in folded.content


@each(WITH_CALLS)
def test_without_parallel_calls_only_the_first_is_given(format: Format) -> None:
    folded = read(format, written(format, ONE, TWO, Call("list_shelves", {})), parallel_tool_calls=False)
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert folded.content == ""


@each(MARKED)
def test_call_shaped_text_is_text_when_calls_are_off(format: Format) -> None:
    """It was deleted."""
    text = "Use this: " + format.calls[0].before + section(format, ONE) + " ok"
    for options in ({"parse_tool_calls": False}, {"tools": ()}):
        folded = read(format, text, **options)
        assert folded.calls == []
        if format.channels:  # the frame of the message is still a frame
            assert "save_note" in folded.content
            assert '"title"' in folded.content
            assert "one" in folded.content
        else:
            assert folded.content == text


@each(MARKED)
def test_text_after_a_call_is_content(format: Format) -> None:
    after = next_message(format, format.content_open) + format.content_open + "Done." if format.channels else " Done."
    folded = read(format, written(format, ONE, content="Before").removesuffix(format.end) + after)
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert folded.content == "Before" + ("Done." if format.channels else " Done.")


@each([f for f in MARKED if f.name in ("glm47", "qwen3", "kimi_k2", "deepseek_v32", "mistral_v13", "minimax_m2")])
def test_text_between_calls_is_content(format: Format) -> None:
    text = written(format, ONE) + " and " + written(format, TWO)
    folded = read(format, text)
    assert [value["title"] for _, value in folded.plain_calls] == ["one", "two"]
    assert folded.content.strip() == "and"


@each(having(JsonObject, JsonEnvelope))
def test_junk_after_the_arguments_is_not_part_of_them(format: Format) -> None:
    text = written(format, ONE)
    at = text.index('{"title": "one"}') + len('{"title": "one"}')
    folded = read(format, text[:at] + "#" + text[at:])
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert folded.content.startswith("#")


@each(having(JsonObject, JsonEnvelope))
def test_arguments_encoded_twice_are_unwrapped(format: Format) -> None:
    object_, double = '{"title": "one"}', json.dumps('{"title": "one"}')
    assert read(format, written(format, ONE).replace(object_, double)).plain_calls == [("save_note", {"title": "one"})]
    assert read(format, written(format, ONE).replace(object_, "null")).plain_calls == [("save_note", {})]


@each(having(JsonObject, JsonEnvelope))
def test_json_arguments_pass_through_as_they_were_written(format: Format) -> None:
    arguments = '{ "stars":1.0,"body" : "\\u00e9\\/", "opts":{"n":1e5, "big":12345678901234567890123} }'
    folded = read(format, written(format, ONE).replace('{"title": "one"}', arguments))
    assert folded.calls[0].arguments == arguments


@each(having(JsonObject, JsonEnvelope))
def test_what_json_forbids_in_a_string_is_escaped(format: Format) -> None:
    folded = read(format, written(format, ONE).replace('"one"', '"a\n\tb \\d"'))
    assert folded.plain_calls == [("save_note", {"title": "a\n\tb \\d"})]


@each(having(JsonObject, JsonEnvelope))
def test_arguments_that_are_no_json_make_a_broken_call(format: Format) -> None:
    text = written(format, ONE).replace('"one"', "one")
    folded, parser = parse(format, text, start=ReplyStart.CONTENT)
    assert folded.plain_calls == []
    assert parser.broken_calls == 1
    assert parser.completed_calls == 0
    assert "one" in folded.content
    read(format, text)


def test_an_envelope_that_spreads_its_arguments_is_not_a_call_without_any() -> None:
    folded, parser = parse(get_format("hermes"), '<tool_call>\n{"name": "save_note", "title": "x"}\n</tool_call>')
    assert folded.calls == []
    assert "title" in folded.content
    assert parser.broken_calls == 1


def test_an_envelope_may_name_the_tool_last() -> None:
    text = '<tool_call>\n{"arguments": {"title": "x"}, "name": "save_note"}\n</tool_call>'
    assert read(get_format("hermes"), text).plain_calls == [("save_note", {"title": "x"})]


def test_a_missing_brace_of_an_envelope_does_not_cost_the_call() -> None:
    text = '<tool_call>\n{"name": "save_note", "arguments": {"title": "x"}\n</tool_call>'
    folded = read(get_format("qwen3"), text)
    assert folded.plain_calls == [("save_note", {"title": "x"})]
    assert folded.content == ""


def test_a_json_answer_that_is_no_call_is_content() -> None:
    for text in (
        '{"answer": 42}',
        '{"name": "save_note", "age": 3}',
        "[1, 2]",
        "[link](x)",
        '{"na',
        '[save_note("x")]',
    ):
        for name in ("llama3_json", "pythonic"):
            assert read(get_format(name), text).content == text


def test_llama_objects_may_be_separated_in_any_usual_way() -> None:
    one = '{"name": "save_note", "parameters": {"title": "one"}}'
    for separator in ("; ", ";", "\n", ""):
        folded = read(get_format("llama3"), one + separator + one)
        assert [value["title"] for _, value in folded.plain_calls] == ["one", "one"]
        assert folded.content == ""


def test_coder_call_without_its_wrapper_is_a_call() -> None:
    text = "<function=save_note>\n<parameter=title>\nx\n</parameter>\n</function>\n</tool_call>"
    folded = read(get_format("qwen3_coder"), text)
    assert folded.plain_calls == [("save_note", {"title": "x"})]
    assert folded.content == ""


# Ends


@each(having(JsonObject, JsonEnvelope))
def test_a_balanced_object_at_the_end_of_the_reply_is_a_whole_call(format: Format) -> None:
    """A model that stops before its marker's end lost the call."""
    text = written(format, ONE)
    cut = text[: text.index('{"title": "one"}') + len('{"title": "one"}')]
    folded = read(format, cut)
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert folded.content == ""


@each(having(Parameters))
def test_closed_parameters_are_a_whole_call_when_the_model_ended_it(format: Format) -> None:
    close = format.calls[0].arguments.close.strip()  # type: ignore[union-attr]
    text = written(format, ONE)
    cut = (
        text[: text.index("one" if "\n" + close not in text else "one\n") + text[text.index("one") :].index(close)]
        + close
    )
    assert read(format, cut, reason="stop").plain_calls == [("save_note", {"title": "one"})]
    for reason in ("length", "abort"):
        folded, parser = parse(format, cut, reason, start=ReplyStart.CONTENT)  # type: ignore[arg-type]
        assert folded.plain_calls == []
        assert parser.broken_calls == 1


@each(WITH_CALLS)
@pytest.mark.parametrize("reason", ["stop", "length", "abort"])
def test_a_call_cut_in_its_arguments_is_not_complete(format: Format, reason: str) -> None:
    """The finish reason contradicted the body."""
    text = written(format, Call("save_note", {"title": "a longer title"}))
    cut = text[: text.index("title", text.index("longer")) - 1]
    folded, parser = parse(format, cut, reason, start=ReplyStart.CONTENT)  # type: ignore[arg-type]
    assert len(folded.calls) == 1
    assert not folded.calls[0].ended
    assert folded.calls[0].arguments.endswith("a longer")
    assert parser.completed_calls == 0
    assert parser.broken_calls == 1
    assert parser.open_call


@each(FORMATS)
def test_prose_alone_is_no_call(format: Format) -> None:
    folded, parser = parse(format, "I cannot do that.", start=ReplyStart.CONTENT)
    assert (folded.content, folded.calls) == ("I cannot do that.", [])
    assert (parser.completed_calls, parser.broken_calls) == (0, 0)


@each(FORMATS)
def test_a_marker_that_never_completes_is_text(format: Format) -> None:
    """It was held back for ever."""
    for marker in sorted(format.marker_texts):
        for length in (1, len(marker) // 2, len(marker) - 1):
            if length and not (format.channels and marker.startswith(tuple(format.channels.opens))):
                text = "x " + marker[:length]
                if not any(whole in text for whole in (*format.frame_markers, *_closes(format))):
                    assert read(format, text).content == text


def _closes(format: Format) -> tuple[str, ...]:
    return format.channels.closes if format.channels else ()


@each(FORMATS)
def test_text_with_angle_brackets_is_released_at_once(format: Format) -> None:
    parser = OutputParser(format, tools=TOOLS, start=ReplyStart.CONTENT)
    released = parser.feed("<Direct reply") + parser.feed(" with no thinking> and")
    assert "".join(event.text for event in released) == "<Direct reply with no thinking> and"  # type: ignore[union-attr]
    assert read(format, "stream that ends with x <").content == "stream that ends with x <"


# Reasoning


@each(THINKING)
def test_an_echoed_opener_is_dropped(format: Format) -> None:
    """It showed as text where the template had opened the block already."""
    block = format.reasoning
    assert block is not None
    body = "check stock" + block.close_before + block.close + block.close_after + format.content_open + "Sure."
    for echo in ("", block.open + block.open_after, "\n" + block.open):
        folded = read(format, echo + body, start=ReplyStart.REASONING)
        assert (folded.reasoning, folded.content) == ("check stock", "Sure.")


@each(FORMATS)
def test_after_a_closed_block_everything_is_content(format: Format) -> None:
    """The whole answer landed in the reasoning."""
    folded = read(format, "Sure.")
    assert (folded.reasoning, folded.content) == ("", "Sure.")


@each(WITH_CALLS)
def test_calls_are_read_after_a_closed_block(format: Format) -> None:
    assert read(format, written(format, ONE)).plain_calls == [("save_note", {"title": "one"})]


@each(THINKING)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_reasoning_without_an_end_stays_reasoning(format: Format, reason: str) -> None:
    """A reply that was cut off became content."""
    folded = read(format, "step one, step", start=ReplyStart.REASONING, reason=reason)
    assert (folded.reasoning, folded.content) == ("step one, step", "")


@each([format for format in THINKING if format.calls])
def test_a_call_ends_reasoning(format: Format) -> None:
    """A call that starts within the thought was lost in it."""
    calls = section(format, ONE, after_text=True)
    folded = read(format, "need file" + next_message(format, calls) + calls, start=ReplyStart.REASONING)
    assert folded.reasoning == "need file"
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert folded.content == ""


@each([format for format in THINKING if format.calls and not format.channels])
def test_the_marker_that_a_call_made_superfluous_is_dropped(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    calls = section(format, ONE, after_text=True)
    folded = read(
        format, f"need file{calls}{block.close}{block.close_after}Hi, {block.close}", start=ReplyStart.REASONING
    )
    last = "" if spelled_specially(format) else block.close
    assert (folded.reasoning, folded.content) == ("need file", f"Hi, {last}")


@each([format for format in MARKED if format.reasoning and not format.channels and not format.frame_markers])
def test_mere_mention_of_a_marker_is_text(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    spelling = format.calls[0]
    opener = (spelling.section_open or spelling.open.partition("{")[0]).strip()
    prose = f"a {opener} tag, or {opener}nobody knows, would help"
    folded = read(format, prose + block.close + f"so {opener} it is", start=ReplyStart.REASONING)
    assert folded.reasoning == prose
    assert folded.content == f"so {opener} it is"
    assert folded.calls == []


@each([format for format in THINKING if not format.channels and not spelled_specially(format)])
def test_reasoning_markers_are_text_when_thinking_is_off_or_over(format: Format) -> None:
    """Literal tags in prose were eaten."""
    block = format.reasoning
    assert block is not None
    prose = f"Use the {block.open} tag, then {block.close}."
    assert read(format, prose).content == prose
    folded = read(format, f"note {block.close} is a tag{block.close}ok", start=ReplyStart.REASONING)
    assert (folded.reasoning.strip(), folded.content.strip()) == ("note", f"is a tag{block.close}ok")


@each(FORMATS)
def test_a_reply_that_does_not_think_is_content(format: Format) -> None:
    folded = read(format, "Hi there", start=ReplyStart.HEADER)
    assert (folded.reasoning, folded.content) == ("", "Hi there")


@each([format for format in THINKING if not format.channels])
def test_a_lone_closer_at_the_head_is_an_empty_block(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    folded = read(format, block.close + block.close_after + "Hi", start=ReplyStart.HEADER)
    assert (folded.reasoning, folded.content) == ("", "Hi")


@each(THINKING)
def test_in_reasoning_flips_only_with_a_whole_marker(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    close = format.channels.closes[0] if format.channels else block.close
    parser = OutputParser(format, tools=TOOLS, start=ReplyStart.REASONING)
    for char in "thinking" + close[:-1]:
        parser.feed(char)
        assert parser.in_reasoning
    parser.feed(close[-1])
    assert not parser.in_reasoning


@each(THINKING)
def test_prefilled_reasoning_goes_on(format: Format) -> None:
    block = format.reasoning
    assert block is not None
    folded, parser = parse(format, ["an", block.close, format.content_open, "Hi"], prefill=block.open + "half a pl")
    assert (folded.reasoning, folded.content) == ("an", "Hi")
    folded, _ = parse(format, ["The answer"], prefill=block.open + "plan" + block.close + format.content_open)
    assert (folded.reasoning, folded.content) == ("", "The answer")
    assert not parser.in_reasoning


@each(MARKED)
def test_a_call_that_the_prefill_opened_is_reported_whole(format: Format) -> None:
    text = written(format, ONE)
    cut = text.index("one") + 1
    folded, parser = parse(format, [text[cut:]], prefill=text[:cut], start=ReplyStart.CONTENT)
    assert folded.plain_calls == [("save_note", {"title": "one"})]
    assert parser.completed_calls == 1


def test_held_back_prefill_is_not_said_again() -> None:
    for prefill in ("x <", "x \n", "x <tool_call"):
        folded, _ = parse(get_format("glm45"), ["y"], prefill=prefill, start=ReplyStart.CONTENT)
        assert folded.content == "y"


# Values


UNTYPED = [
    format
    for format in having(Parameters, Elements)
    if not any(field in getattr(format.calls[0].arguments, "open", "") for field in ("{type}", "{string}"))
]


def values(format: Format, schema: dict[str, Any], **texts: str) -> Any:
    """What a call's values mean, written as they are."""
    tool = ToolSpec("typed", {"type": "object", "properties": schema})
    text = written(format, Call("typed", texts))
    ((_, arguments),) = read(format, text, tools=[tool]).plain_calls
    return arguments


@each(UNTYPED)
def test_values_take_their_type_from_the_schema(format: Format) -> None:
    """They were typed by look."""
    schema = {
        "id": {"type": "string"},
        "tag": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "n": {"type": "integer"},
    }
    assert values(format, schema, id="00042", tag="null", n="5") == {"id": "00042", "tag": None, "n": 5}
    assert values(format, schema, tag="hi") == {"tag": "hi"}
    assert values(format, schema, id="null", tag="nullify") == {"id": "null", "tag": "nullify"}


@each(UNTYPED)
def test_an_argument_that_does_not_fit_is_still_json(format: Format) -> None:
    assert values(format, {"stars": {"type": "integer"}}, stars="many") == {"stars": "many"}
    assert values(format, {"opts": {"type": "object"}}, opts="{broken") == {"opts": "{broken"}


def test_glm_object_as_last_argument_closes_the_object() -> None:
    text = (
        "<tool_call>save_note\n<arg_key>stars</arg_key>\n<arg_value>7</arg_value>\n"
        '<arg_key>opts</arg_key>\n<arg_value>{"pin": true}</arg_value>\n</tool_call>'
    )
    for name in ("glm45", "glm47"):
        assert read(get_format(name), text).plain_calls == [("save_note", {"stars": 7, "opts": {"pin": True}})]


@each([format for format in UNTYPED if isinstance(format.calls[0].arguments, Parameters)])
@pytest.mark.parametrize("value", ["1.0", "1e5", "-0", "12345678901234567890123", "[1, 2.50]", '{"a": [null]}'])
def test_literals_keep_their_text(format: Format, value: str) -> None:
    tool = ToolSpec("typed", {"type": "object", "properties": {"v": {"type": ["number", "array", "object"]}}})
    folded = read(format, written(format, Call("typed", {"v": value})), tools=[tool])
    assert folded.calls[0].arguments == f'{{"v": {value}}}'


@each(UNTYPED)
def test_python_spellings_are_understood(format: Format) -> None:
    schema = {"a": {"type": "boolean"}, "b": {"type": ["integer", "null"]}, "c": {"type": "boolean"}}
    assert values(format, schema, a="True", b="None", c="false") == {"a": True, "b": None, "c": False}


@each(WITH_CALLS)
def test_strings_keep_every_space_and_line(format: Format) -> None:
    """They were stripped."""
    body = "    if ok:\n        go()  \n"
    folded = read(format, written(format, Call("save_note", {"body": body, "stars": 5})))
    assert folded.plain_calls == [("save_note", {"body": body, "stars": 5})]


def test_typed_values_are_trimmed() -> None:
    for name in ("glm45", "glm47", "minimax_m2"):
        assert values(get_format(name), {"stars": {"type": "integer"}}, stars=" 5 ") == {"stars": 5}


@each(having(Parameters))
def test_a_value_may_hold_its_own_closing_marker(format: Format) -> None:
    close = format.calls[0].arguments.close.strip()  # type: ignore[union-attr]
    body = f"write {close} to end it, or {close}{close} twice"
    folded = read(format, written(format, Call("save_note", {"body": body, "title": "t"})))
    assert folded.plain_calls == [("save_note", {"body": body, "title": "t"})]


@each(WITH_CALLS)
def test_a_brace_in_a_string_is_no_structure(format: Format) -> None:
    folded = read(format, written(format, Call("save_note", {"title": "}"})))
    assert folded.plain_calls == [("save_note", {"title": "}"})]


@each(WITH_CALLS)
def test_long_strings_stream(format: Format) -> None:
    """They arrived in one lump."""
    body = "".join(f"line {i}: x < y && z\n" for i in range(1000))[:20_000]
    text = written(format, Call("save_note", {"body": body}))
    step = len(text) // 400 + 1
    folded, _ = parse(format, [text[i : i + step] for i in range(0, len(text), step)], start=ReplyStart.CONTENT)
    assert folded.plain_calls == [("save_note", {"body": body})]
    assert folded.calls[0].deltas > 100


@each(UNTYPED)
def test_what_is_no_string_is_held_until_it_is_whole(format: Format) -> None:
    tool = ToolSpec("typed", {"type": "object", "properties": {"v": {"type": ["integer", "boolean"]}}})
    folded, _ = parse(
        format, list(written(format, Call("typed", {"v": "1234567"}))), tools=[tool], start=ReplyStart.CONTENT
    )
    assert folded.calls[0].deltas <= 3


# Ids


@pytest.mark.parametrize(
    ("written_id", "name"),
    [
        ("functions.save_note:2", "save_note"),
        ("functions_save_note_2", "save_note"),
        ("functionssave_note2", "save_note"),
        ("save_note:2", "save_note"),
        ("functions.save_note:0\n", "save_note"),
        ("functions_read_file_3", "read_file"),
        ("functionsread5", "read"),
    ],
)
def test_kimi_ids_are_resolved_against_the_declared_tools(written_id: str, name: str) -> None:
    tools = [SAVE_NOTE, ToolSpec("read"), ToolSpec("read_file")]
    text = (
        f"<|tool_calls_section_begin|><|tool_call_begin|>{written_id}<|tool_call_argument_begin|>"
        '{"title": "t"}<|tool_call_end|><|tool_calls_section_end|>'
    )
    folded = read(get_format("kimi_k2"), text, tools=tools, call_index_offset=2)
    assert [(call.id, call.name) for call in folded.calls] == [(f"functions.{name}:2", name)]
    assert folded.content == ""


def test_kimi_bare_counter_names_the_only_tool() -> None:
    text = '<|tool_call_begin|>0<|tool_call_argument_begin|>{"title": "t"}<|tool_call_end|>'
    assert read(get_format("kimi_k2"), text, tools=[SAVE_NOTE]).plain_calls == [("save_note", {"title": "t"})]
    assert read(get_format("kimi_k2"), text, tools=[SAVE_NOTE, LIST_SHELVES]).calls == []


def test_kimi_indices_go_on_over_the_conversation() -> None:
    """Ids that are not the family's make the model go silent."""
    folded, _ = parse(get_format("kimi_k2"), written(get_format("kimi_k2"), ONE, TWO), call_index_offset=1)
    assert [call.id for call in folded.calls] == ["functions.save_note:1", "functions.save_note:2"]


def test_kimi_big_section_is_whole() -> None:
    """Long sections were cut."""
    body = "B" * 40_000
    text = "I will save it." + written(get_format("kimi_k2"), Call("save_note", {"body": body}))
    folded, _ = parse(get_format("kimi_k2"), text)
    assert folded.content == "I will save it."
    assert folded.plain_calls == [("save_note", {"body": body})]


def test_ids_may_be_made_by_the_caller() -> None:
    for name, expected in (("glm45", "mine"), ("mistral_v13", "mine"), ("kimi_k2", "functions.save_note:0")):
        folded, _ = parse(get_format(name), written(get_format(name), ONE), new_id=lambda: "mine")
        assert folded.calls[0].id == expected


# Harmony


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.save_note <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.save_note<|message|>",
        "<|channel|>commentary to=functions.save_note code<|message|>",
        "<|start|>assistant to=functions.save_note<|channel|>commentary <|constrain|>json<|message|>",
        "<|start|>assistant to=functions.save_note<|channel|>commentary json<|message|>",
        " to=functions.save_note<|channel|>commentary <|constrain|>json<|message|>",
    ],
)
@pytest.mark.parametrize("end", ["<|call|>", "", "<|end|>"])
def test_harmony_recipient_may_stand_anywhere_in_the_header(header: str, end: str) -> None:
    """It was a 500, or the call was lost."""
    folded = read(get_format("gpt_oss"), header + '{"title": "tea"}' + end, start=ReplyStart.HEADER)
    assert folded.plain_calls == [("save_note", {"title": "tea"})]
    assert (folded.reasoning, folded.content) == ("", "")


def test_harmony_unknown_channel_is_content() -> None:
    assert read(get_format("gpt_oss"), "<|channel|>––commentary<|message|>hi<|end|>").content == "hi"


def test_harmony_may_reason_again_after_a_preamble() -> None:
    text = (
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>c<|end|><|start|>assistant<|channel|>final<|message|>d<|return|>"
    )
    folded = read(get_format("gpt_oss"), text, start=ReplyStart.HEADER)
    assert (folded.reasoning, folded.content) == ("ac", "bd")


# Cost


@each(WITH_CALLS)
def test_cost_does_not_grow_with_the_reply(format: Format) -> None:
    """What the parser keeps is bounded, in every kind of text: so is what it can look at again."""
    argument = written(format, Call("save_note", {"body": "BODY"}))
    for head, chunk in (
        ("Go ", "word <\n"),
        (argument[: argument.index("BODY")], "word <\n"),
        ("Go ", " "),
        ("\n", "\n"),
    ):
        parser = OutputParser(format, tools=TOOLS, start=ReplyStart.CONTENT)
        parser.feed(head)
        for _ in range(3000):
            parser.feed(chunk)
            assert len(parser._window.text) < 2500


def test_kinds_of_arguments_are_all_covered() -> None:
    kinds = {type(format.calls[0].arguments) for format in WITH_CALLS}
    assert kinds == {JsonObject, JsonEnvelope, Parameters, Elements, Keywords, QuotedObject}


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_no_closing_markup_begins_with_other_closing_markup(format: Format) -> None:
    """Else a reader of single characters would take the shorter one before the longer one can be there."""
    for spelling in compile_format(format, calls=True).spellings:
        for text in {*spelling.strong_closers, spelling.last_closer, *spelling.calls.also_closes}:
            whole, _ = spelling.closers.find(text, 0)
            assert {spelling.closers.find(text[:cut], 0)[0] for cut in range(len(text))} <= {None, whole}, text
