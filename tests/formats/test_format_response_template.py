"""Of a declaration that a checkpoint ships, calls can be written where one spelling is read back by it."""

from typing import Any

import pytest

from paraserve.formats.declared.content import UnsupportedTemplateError
from paraserve.formats.declared.response_template import read_response_template
from paraserve.formats.output import checkpoint_format
from paraserve.formats.spec import Calls, JsonEnvelope, JsonObject, Keywords
from tests.formats.formats_kit import parse_invariant

FUNCTION = {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.arguments}"}}
NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINKING = {"open": "<think>", "close": "</think>", "content": "text"}
LISTED = {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}}


def template(**fields: Any) -> dict[str, Any]:
    return {"version": 1, "start_anchor": "<|im_start|>assistant\n", "fields": {"content": {}, **fields}}


CALLS: list[tuple[dict[str, Any], Calls, str]] = [
    (
        {"open": "<c>", "close_pattern": r"</c>\s*", "content": "json", "repeats": True, "transform": FUNCTION},
        Calls("<c>", JsonEnvelope(("name",), ("arguments",)), close="</c>"),
        '<c>\n{"name": "save_note", "arguments": {"title": "x"}}\n</c>\n',
    ),
    (
        {"open": "<c>", "close": "</c>", "content": "json", "transform": {"function": "{content}"}},
        Calls("<c>", JsonEnvelope(("name",), ("arguments",)), close="</c>"),
        '<c>{"name": "save_note", "arguments": {"title": "x"}}</c>',
    ),
    (
        {
            "open_pattern": r"<\|call\|>functions\.(?P<name>[\w.-]+):\d+\s+<\|args\|>",
            "close": ["<|end|>", "<|eot|>"],
            "content": "json",
            "transform": NAMED,
        },
        Calls("<|call|>functions.{name}:0 <|args|>", JsonObject(), close="<|end|>"),
        '<|call|>functions.save_note:0 <|args|>{"title": "x"}<|end|>',
    ),
    (
        {"open": "[CALLS]", "close": "[END]", "content": "json", "transform_each": True, "transform": LISTED},
        Calls(
            "",
            JsonEnvelope(("name",), ("arguments",)),
            section_open="[CALLS][",
            section_close="][END]",
            between=", ",
        ),
        '[CALLS][{"name": "save_note", "arguments": {"title": "x"}}][END]',
    ),
    (
        {"open": "<|start|>", "close": "<|end|>", "content": "python-call-list"},
        Calls("{name}(", Keywords(), close=")", section_open="<|start|>[", section_close="]<|end|>", between=", "),
        '<|start|>[save_note(title="x")]<|end|>',
    ),
]


@pytest.mark.parametrize(("field", "calls", "text"), CALLS)
def test_a_spelling_is_made_that_the_declaration_reads(field: dict[str, Any], calls: Calls, text: str) -> None:
    format = read_response_template(template(reasoning_content=THINKING, tool_calls=field))
    assert format.calls == (calls,)
    folded = parse_invariant(format, f"<think>\nhm\n</think>\n\nHi\n{text}")
    assert (folded.reasoning, folded.content) == ("hm", "Hi")
    assert folded.plain_calls == [("save_note", {"title": "x"})]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"open": "<c {name}>", "content": "json", "transform": FUNCTION}, "field of a description"),
        ({"open": "<c>", "close_pattern": "</(c|d)>", "content": "json", "transform": FUNCTION}, "closing pattern"),
        ({"open": "<c>", "content": "kv-lines", "transform": NAMED}, "kv-lines"),
        ({"open": "<c>", "content": "json"}, "name and arguments"),
        ({"open": "<c>", "content": "json", "transform": NAMED}, "must stand in the opening"),
    ],
)
def test_what_cannot_be_written_says_why(field: dict[str, Any], message: str) -> None:
    format = read_response_template(template(tool_calls=field))
    assert format.calls == ()
    assert format.declared is not None
    assert message in format.declared.unwritten


def test_what_ends_the_content_ends_the_reply() -> None:
    ended = read_response_template(template(content={"close_pattern": r"<\|im_end\|>|<eot>"}))
    assert ended.stop_tokens == ()
    ended = read_response_template(template(content={"close": "<|im_end|>"}))
    assert ended.stop_tokens == ("<|im_end|>",)


def test_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedTemplateError):
        read_response_template({"version": 2, "fields": {"content": {}}})


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
