"""Forced calls in formats that a checkpoint declares: what the grammar admits, the declared regions read back."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from paraserve.formats.declared.response_template import read_response_template
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import GrammarError, GrammarTarget, tool_call_constraint
from tests.formats.declared_templates import DECLARED
from tests.formats.formats_kit import parse
from tests.grammar.grammar_kit import TOOLS, Vocabulary, arguments_schema

FORMATS = {name: read_response_template(declared) for name, (declared, _) in DECLARED.items()}
WRITTEN = ("harmony", "lists", "dialect", "python", "whole")
SAMPLES = 6
ANY = ToolSpec(
    "save_note", {"type": "object", "properties": {"body": {"type": "string"}}, "additionalProperties": False}
)


@pytest.mark.parametrize("marker_tokens", [False, True], ids=["markers as text", "markers as tokens"])
@pytest.mark.parametrize("name", WRITTEN)
def test_required_gives_calls_that_the_regions_read(name: str, marker_tokens: bool) -> None:
    format = FORMATS[name]
    vocabulary, chooser = Vocabulary(format, marker_tokens=marker_tokens), random.Random(5)
    declared = {tool.name: tool for tool in TOOLS}
    for start in (ReplyStart.REASONING, ReplyStart.CONTENT):
        grammar = tool_call_constraint(format, TOOLS, "required", target="lark", start=start, tokens=vocabulary.markers)
        assert grammar is not None
        texts = [vocabulary.sample(grammar, chooser) for _ in range(SAMPLES)]
        for text in filter(None, texts):
            folded, parser = parse(format, text, tools=TOOLS, start=start)
            assert folded.calls, text
            assert not folded.content.strip(), text
            assert not parser.broken_calls, text
            for call in folded.calls:
                jsonschema.validate(json.loads(call.arguments), arguments_schema(declared[call.name]))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_string_cannot_end_its_region(name: str) -> None:
    format = FORMATS[name]
    vocabulary = Vocabulary(format, marker_tokens=False)
    grammar = tool_call_constraint(format, [ANY], "required", target="lark", start=ReplyStart.CONTENT)
    assert grammar is not None
    assert format.declared is not None
    (calls,) = format.calls
    for end in format.declared.call_ends:
        for inner in ("x", f"a{end}b"):
            value = json.dumps(inner, ensure_ascii=False)
            call = {
                "lists": f'{{"tool_name": "save_note", "parameters": {{"body": {value}}}}}',
                "python": f"save_note(body={value})",
            }.get(name, calls.open.replace("{name}", "save_note") + f'{{"body": {value}}}' + calls.close)
            text = calls.section_open + call + calls.section_close
            assert vocabulary.accepts(grammar, text) == (inner == "x"), text


@pytest.mark.parametrize("target", ["lark", "structural_tag"])
@pytest.mark.parametrize(("name", "why"), [("lines", "'kv-lines'"), ("tags", "'xml-inline'")])
def test_what_cannot_be_written_is_refused_with_its_reason(name: str, why: str, target: GrammarTarget) -> None:
    with pytest.raises(GrammarError, match=why):
        tool_call_constraint(FORMATS[name], [ANY], "required", target=target)


def test_a_name_that_the_declaration_cannot_spell_is_refused() -> None:
    with pytest.raises(GrammarError, match="cannot spell the name 'a b'") as refused:
        tool_call_constraint(FORMATS["dialect"], [ToolSpec("a b", {})], "required", target="lark")
    assert refused.value.path == "tools[0].function.name"


@pytest.mark.parametrize("name", DECLARED)
def test_strict_calls_in_free_text_are_refused_and_lax_ones_need_nothing(name: str) -> None:
    with pytest.raises(GrammarError, match="free text"):
        tool_call_constraint(FORMATS[name], [ToolSpec("f", {}, strict=True)], "auto", target="lark")
    assert tool_call_constraint(FORMATS[name], [ANY], "auto", target="lark") is None
