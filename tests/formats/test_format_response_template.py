"""A checkpoint's declared response template is read into a description, or refused as a whole."""

from typing import Any

import pytest

from paraserve.formats.declared.response_template import UnsupportedTemplateError, compile_response_template
from paraserve.formats.output import checkpoint_format
from paraserve.formats.spec import JsonEnvelope, Keywords, Parameters, QuotedObject
from tests.formats.formats_kit import parse_invariant

FUNCTION = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINKING = {"open": "<think>", "close": "</think>", "content": "text"}


def template(**fields: Any) -> dict[str, Any]:
    return {"version": 1, "start_anchor": "<|im_start|>assistant\n", "fields": {"content": {}, **fields}}


def test_json_calls_between_literals() -> None:
    format = compile_response_template(
        template(
            reasoning_content=THINKING,
            tool_calls={
                "open": "<tool_call>",
                "close": "</tool_call>",
                "content": "json",
                "repeats": True,
                "transform": FUNCTION,
            },
        )
    )
    assert format.calls[0].arguments == JsonEnvelope(("name",), ("arguments",))
    text = (
        "<think>\nhm\n</think>\n\nHi\n"
        '<tool_call>\n{"name": "save_note", "arguments": {"title": "x"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>'
    )
    folded = parse_invariant(format, text)
    assert (folded.reasoning, folded.content) == ("hm", "Hi")
    assert folded.plain_calls == [("save_note", {"title": "x"}), ("list_shelves", {})]


def test_tags_with_a_name_in_the_opening_pattern() -> None:
    format = compile_response_template(
        template(
            tool_calls={
                "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>\s*",
                "close_pattern": r"</function>\s*</tool_call>",
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>]+)>\n?(?P<value>.*?)\n?</parameter>"},
                "repeats": True,
                "transform": NAMED,
            }
        )
    )
    assert format.calls[0].arguments == Parameters("<parameter={key}>\n", "\n</parameter>\n")
    text = (
        "Hi\n<tool_call>\n<function=save_note>\n<parameter=title>\n x\n\n</parameter>\n"
        "<parameter=stars>\n3\n</parameter>\n</function>\n</tool_call>"
    )
    folded = parse_invariant(format, text)
    assert folded.content == "Hi"
    assert folded.plain_calls == [("save_note", {"title": " x\n", "stars": 3})]


def test_counted_ids_json_lists_python_lists_and_quoted_objects() -> None:
    counted = {
        "open_pattern": r"<\|call\|>functions\.(?P<name>[\w.-]+):\d+<\|args\|>",
        "close": "<|end|>",
        "content": "json",
        "transform": NAMED,
    }
    listed = {
        "open": "[CALLS]",
        "close": "[END]",
        "content": "json",
        "transform_each": True,
        "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
    }
    python = {"open": "<|start|>", "close": "<|end|>", "content": "python-call-list"}
    quoted = {
        "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
        "close": "<tool_call|>",
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [["<q>", "<q>"]]},
        "transform": NAMED,
    }
    cases = [
        (counted, '<|call|>functions.save_note:0<|args|>{"title": "x"}<|end|>'),
        (listed, '[CALLS][{"name": "save_note", "arguments": {"title": "x"}}][END]'),
        (python, '<|start|>[save_note(title="x")]<|end|>'),
        (quoted, "<|tool_call>call:save_note{title:<q>x<q>}<tool_call|>"),
    ]
    for field, text in cases:
        format = compile_response_template(template(tool_calls=field))
        folded = parse_invariant(format, text)
        assert folded.plain_calls == [("save_note", {"title": "x"})], text
        assert folded.content == ""
    assert isinstance(compile_response_template(template(tool_calls=python)).calls[0].arguments, Keywords)
    assert compile_response_template(template(tool_calls=quoted)).calls[0].arguments == QuotedObject("<q>")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mood": {"open": "<m>", "close": "</m>"}}, "mood"),
        ({"thinking": {"open_pattern": "<(think|reason)>", "close": "</think>"}}, "more than literals"),
        ({"thinking": {"open": "<think>"}}, "closing literal"),
        ({"tool_calls": {"open": "<c>", "content": "kv-lines", "transform": NAMED}}, "opening pattern"),
        ({"tool_calls": {"open": "<c>", "content": "json"}}, "name and arguments"),
        ({"tool_calls": {"open_pattern": "<c (?P<name>\\w+)>", "content": "kv-lines", "transform": NAMED}}, "kv-lines"),
    ],
)
def test_what_cannot_be_expressed_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedTemplateError, match=message):
        compile_response_template(template(**fields))


def test_the_shortest_transform_is_an_envelope() -> None:
    calls = {"open": "<c>", "close": "</c>", "content": "json", "transform": {"function": "{content}"}, "repeats": True}
    format = compile_response_template(template(tool_calls=calls))
    folded = parse_invariant(format, '<c>{"name": "save_note", "arguments": {"title": "x"}}</c>')
    assert folded.plain_calls == [("save_note", {"title": "x"})]


def test_content_between_literals_is_a_frame() -> None:
    format = compile_response_template(template(content={"open": "<a>", "close": "</a>"}, thinking=THINKING))
    assert (format.content_open, format.content_close) == ("<a>", "</a>")
    folded = parse_invariant(format, "<think>hm</think><a>Hi</a>")
    assert (folded.reasoning, folded.content) == ("hm", "Hi")
    ended = compile_response_template(template(content={"close": "<|im_end|>"}))
    assert ended.stop_tokens == ("<|im_end|>",)


def test_one_of_several_delimiters_is_never_taken_for_all() -> None:
    with pytest.raises(UnsupportedTemplateError, match="only one text"):
        compile_response_template(template(thinking={"open": ["<a>", "<b>"], "close": "</a>"}))


def test_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedTemplateError):
        compile_response_template({"version": 2, "fields": {"content": {}}})


def test_a_declared_format_serves_where_the_template_is_unknown() -> None:
    declared = template(
        tool_calls={"open": "<c>", "close": "</c>", "content": "json", "transform": FUNCTION}, thinking=THINKING
    )
    unknown = checkpoint_format("{{ m.content }}", (), declared)
    assert unknown is not None
    assert unknown.calls[0].open == "<c>"
    known = checkpoint_format("<tool_call>{{ c | tojson }}</tool_call>", (), declared)
    assert known is not None
    assert known.name == "hermes"
    assert checkpoint_format("{{ m.content }}", (), {"version": 2}) is None
