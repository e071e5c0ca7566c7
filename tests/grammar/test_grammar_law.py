"""The law of the grammars: what one admits parses to calls, or to content, that the schema admits.

Texts are drawn at random from the compiled grammars. `PARASERVE_GRAMMAR_SAMPLES` sets how many for each case (for
longer runs by hand).
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from paraserve.formats.families import FORMATS
from paraserve.formats.spec import Elements, Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import GrammarError, response_format_constraint, tool_call_constraint
from tests.formats.formats_kit import WITH_CALLS, Folded, each, parse
from tests.grammar.grammar_kit import GET, OPEN_MAPS, PIECES, SEARCH, TOOLS, TREE, WEATHER, Vocabulary, arguments_schema
from tests.grammar.grammar_kit import vocabulary as vocabulary_of

SAMPLES = int(os.environ.get("PARASERVE_GRAMMAR_SAMPLES", "2"))
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


@each(WITH_CALLS)
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


@each(WITH_CALLS)
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


@each(WITH_CALLS)
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


@each(WITH_CALLS)
@vocabularies
def test_a_json_reply_is_content_of_its_schema(format: Format, marker_tokens: bool):
    vocabulary, chooser = vocabulary_of(format, marker_tokens), random.Random(4)
    for schema in SCHEMAS:
        for start in starts(format):
            grammar = response_format_constraint(format, schema, target="lark", start=start, tokens=vocabulary.markers)
            for text in draw(format, grammar, vocabulary, chooser):
                folded, _ = parse(format, text, tools=(), start=start)
                jsonschema.validate(json.loads(folded.content), schema or {"type": "object"})


@each(WITH_CALLS)
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


@pytest.mark.parametrize(
    ("name", "directory"), [("qwen3", "qwen3"), ("glm45", "glm-4.5"), ("deepseek_v31", "deepseek-v3.1")]
)
@pytest.mark.heavy
def test_the_law_holds_for_texts_drawn_from_a_real_vocabulary(shared_assets: Path, name: str, directory: str):
    path = str(shared_assets / "tokenizers" / directory / "tokenizer.json")
    tokenizer, vocabulary, chooser = Tokenizer.from_file(path), LLTokenizer(path), random.Random(6)
    added = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    enders = {number for text in PIECES if (number := tokenizer.token_to_id(text)) is not None} | set(added.values())
    format = next(format for format in FORMATS if format.name == name)
    grammar = tool_call_constraint(format, TOOLS, "required", target="lark", start=ReplyStart.CONTENT, tokens=added)
    assert grammar is not None
    finished = 0
    for _ in range(2 * SAMPLES):
        matcher, ids = LLMatcher(vocabulary, grammar, log_level=0), list[int]()
        while len(ids) < 400 and not matcher.is_stopped():
            mask = int.from_bytes(matcher.compute_bitmask(), "little")
            ending = [number for number in enders if mask >> number & 1]
            likely = ending if ending and chooser.random() < 0.3 + len(ids) / 100 else any_of(mask, chooser)
            ids.append(chooser.choice(likely))
            assert matcher.consume_token(ids[-1])
        if not matcher.is_stopped():
            continue
        finished += 1
        text = tokenizer.decode(ids, skip_special_tokens=False)
        folded, _ = parse(
            format, text.removesuffix(tokenizer.id_to_token(ids[-1])), tools=TOOLS, start=ReplyStart.CONTENT
        )
        assert folded.calls, text
        check_calls(folded, TOOLS)
    assert finished


def any_of(mask: int, chooser: random.Random) -> list[int]:
    """One random number of a bit set, found near a random place."""
    size = mask.bit_length()
    start = chooser.randrange(size)
    rest = mask >> start or mask
    first = (rest & -rest).bit_length() - 1
    return [first + (start if mask >> start else 0)]
