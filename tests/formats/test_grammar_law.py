"""The law of the grammars: what one admits parses to calls, or to content, that the schema admits.

Texts are drawn at random from the compiled grammars. `PARASERVE_GRAMMAR_SAMPLES` sets how many for each case (for
longer runs by hand).
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import jsonschema
import pytest
from formats_kit import Folded, parse
from grammar_kit import GET, OPEN_MAPS, SEARCH, TOOLS, TREE, WEATHER, Vocabulary, arguments_schema
from grammar_kit import vocabulary as vocabulary_of

from paraserve.formats.families import FORMATS
from paraserve.formats.grammar import GrammarError, response_format_constraint, tool_call_constraint
from paraserve.formats.spec import Elements, Format
from paraserve.formats.types import ReplyStart, ToolSpec

SAMPLES = int(os.environ.get("PARASERVE_GRAMMAR_SAMPLES", "2"))
WITH_CALLS = [format for format in FORMATS if format.calls]
families = pytest.mark.parametrize("format", WITH_CALLS, ids=lambda format: format.name)
vocabularies = pytest.mark.parametrize("marker_tokens", [False, True], ids=["markers as text", "markers as tokens"])
STRICT = tuple(ToolSpec(tool.name, tool.parameters, strict=True) for tool in (WEATHER, SEARCH))


def starts(format: Format) -> list[ReplyStart]:
    return [start for start in ReplyStart if format.reasoning or start is not ReplyStart.REASONING]


def check_calls(folded: Folded, tools: tuple[ToolSpec, ...]) -> None:
    declared = {tool.name: tool for tool in tools}
    for call in folded.calls:
        assert call.ended
        jsonschema.validate(json.loads(call.arguments), arguments_schema(declared[call.name]))


def draw(format: Format, grammar: str, vocabulary: Vocabulary, chooser: random.Random) -> list[str]:
    texts = [vocabulary.sample(grammar, chooser) for _ in range(SAMPLES)]
    return [text for text in texts if text is not None]


@families
@vocabularies
@pytest.mark.parametrize("tools", [TOOLS, OPEN_MAPS], ids=["closed", "open"])
def test_required_gives_calls_that_fit_their_schemas_and_nothing_else(
    format: Format, marker_tokens: bool, tools: tuple[ToolSpec, ...]
):
    if isinstance(format.calls[0].arguments, Elements) and tools is OPEN_MAPS:
        with pytest.raises(GrammarError) as refused:
            tool_call_constraint(format, tools, "required", target="lark")
        assert refused.value.keyword == "additionalProperties"
        return
    vocabulary, chooser = vocabulary_of(format, marker_tokens), random.Random(1)
    for start in starts(format):
        grammar = tool_call_constraint(format, tools, "required", target="lark", start=start, tokens=vocabulary.markers)
        assert grammar is not None
        for text in draw(format, grammar, vocabulary, chooser):
            folded, parser = parse(format, text, tools=tools, start=start)
            assert folded.calls, text
            assert not folded.content.strip(), text
            assert not parser.broken_calls, text
            check_calls(folded, tools)


@families
@vocabularies
def test_a_named_tool_without_parallel_calls_gives_exactly_one_call_of_it(format: Format, marker_tokens: bool):
    vocabulary, chooser = vocabulary_of(format, marker_tokens), random.Random(2)
    for start in starts(format):
        grammar = tool_call_constraint(
            format, TOOLS, "tree", target="lark", start=start, parallel=False, tokens=vocabulary.markers
        )
        assert grammar is not None
        for text in draw(format, grammar, vocabulary, chooser):
            folded, _ = parse(format, text, tools=TOOLS, start=start)
            assert [call.name for call in folded.calls] == ["tree"], text
            check_calls(folded, (TREE,))


@families
@vocabularies
def test_strict_auto_gives_text_in_which_every_call_is_whole(format: Format, marker_tokens: bool):
    tools = (*STRICT, GET)
    vocabulary, chooser = vocabulary_of(format, marker_tokens), random.Random(3)
    for start in starts(format):
        grammar = tool_call_constraint(format, tools, "auto", target="lark", start=start, tokens=vocabulary.markers)
        assert grammar is not None
        for text in draw(format, grammar, vocabulary, chooser):
            folded, parser = parse(format, text, tools=tools, start=start)
            assert not parser.broken_calls, text
            check_calls(folded, tools)


SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]},
    {"type": "array", "items": {"enum": ["a", "<tool_call>", 'q"']}, "minItems": 1, "maxItems": 3},
    {"type": "object", "properties": {"html": {"type": "string"}, "n": {"type": "string", "pattern": "^\\d+$"}}},
    TREE.parameters,
    None,
]


@families
@vocabularies
def test_a_json_reply_is_content_of_its_schema(format: Format, marker_tokens: bool):
    vocabulary, chooser = vocabulary_of(format, marker_tokens), random.Random(4)
    for schema in SCHEMAS:
        for start in starts(format):
            grammar = response_format_constraint(format, schema, target="lark", start=start, tokens=vocabulary.markers)
            for text in draw(format, grammar, vocabulary, chooser):
                folded, _ = parse(format, text, tools=(), start=start)
                jsonschema.validate(json.loads(folded.content), schema or {"type": "object"})


@families
def test_a_json_reply_beside_tools_is_calls_or_content_of_its_schema(format: Format):
    vocabulary, chooser = vocabulary_of(format, True), random.Random(5)
    tools, schema = (*STRICT, GET), SCHEMAS[0]
    for start in starts(format):
        grammar = response_format_constraint(
            format, schema, target="lark", tools=tools, start=start, tokens=vocabulary.markers
        )
        for text in draw(format, grammar, vocabulary, chooser):
            folded, parser = parse(format, text, tools=tools, start=start)
            assert not parser.broken_calls, text
            check_calls(folded, tools)
            if folded.calls:
                assert not folded.content.strip(), text
            else:
                jsonschema.validate(json.loads(folded.content), schema)
