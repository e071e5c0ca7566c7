"""What grammars take and what they refuse, against replies that the description itself writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.registry import get_format
from paraserve.formats.spec import PLAIN, Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import GrammarError, response_format_constraint, tool_call_constraint
from tests.formats.formats_kit import WITH_CALLS, each
from tests.formats.render import Call, render
from tests.grammar.grammar_kit import PING, SEARCH, WEATHER, Vocabulary
from tests.grammar.grammar_kit import vocabulary as vocabulary_of

TOOLS = (WEATHER, SEARCH, PING)
SCHEMA = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}


def call(format: Format, name: str, arguments: dict[str, Any]) -> Call:
    return Call(name, arguments, id="" if format.ids == "counted" else "abcDEF123")


def weather(format: Format, units: str = "metric") -> Call:
    opts = {"units": units, "days": [1, 2], "tag": 'a "q" <b> é'}
    return call(format, "get_weather", {"city": " 北京 ", "opts": opts, "note": "  lead\ntrail \n"})


def search(format: Format, limit: int = 3) -> Call:
    arguments = {"query": "x < y && z", "limit": limit, "exact": True, "ratio": 1.0, "kind": "x y", "mode": None}
    return call(format, "search_docs", arguments)


def one_call_a_reply(format: Format) -> bool:
    return format.calls[0].close in format.stop_tokens


def written(format: Format, *calls: Call, start: ReplyStart = ReplyStart.HEADER, content: str = "") -> str:
    """The reply as the grammar sees it: an end token is the engine's."""
    reasoning = "Two things.\nBoth, 北京 first." if format.reasoning and start is not ReplyStart.CONTENT else None
    text = render(format, reasoning=reasoning, content=content, calls=calls, start=start)
    return text.removesuffix(format.calls[0].close) if one_call_a_reply(format) and calls else text


def grammar_for(format: Format, vocabulary: Vocabulary, choice: str, **options: Any) -> str:
    options.setdefault("tools", TOOLS)
    tools = options.pop("tools")
    grammar = tool_call_constraint(format, tools, choice, target="lark", tokens=vocabulary.markers, **options)
    assert grammar is not None
    return grammar


@each(WITH_CALLS)
@pytest.mark.parametrize("marker_tokens", [False, True], ids=["markers as text", "markers as tokens"])
@pytest.mark.parametrize("start", list(ReplyStart), ids=lambda start: start.value)
def test_calls_in_the_family_s_own_spelling_are_accepted(format: Format, marker_tokens: bool, start: ReplyStart):
    if start is ReplyStart.REASONING and not format.reasoning:
        start = ReplyStart.HEADER
    vocabulary = vocabulary_of(format, marker_tokens)
    grammar = grammar_for(format, vocabulary, "required", start=start)
    assert vocabulary.accepts(grammar, written(format, weather(format), start=start))
    assert vocabulary.accepts(grammar, written(format, call(format, "ping", {}), start=start))
    if not one_call_a_reply(format):
        assert vocabulary.accepts(grammar, written(format, weather(format), search(format), start=start))


@each(WITH_CALLS)
def test_values_outside_the_schema_are_refused(format: Format):
    vocabulary = vocabulary_of(format, True)
    grammar = grammar_for(format, vocabulary, "required")
    assert vocabulary.accepts(grammar, written(format, search(format)))
    assert not vocabulary.accepts(grammar, written(format, search(format, limit=11)))
    assert not vocabulary.accepts(grammar, written(format, weather(format, units="nautical")))
    assert not vocabulary.accepts(grammar, written(format, call(format, "search_docs", {"query": "x"})))
    assert not vocabulary.accepts(grammar, written(format, call(format, "search_docs", {"query": "X", "limit": 3})))
    assert not vocabulary.accepts(grammar, written(format, call(format, "ping", {"x": 1})))


@each(WITH_CALLS)
def test_prose_no_call_and_a_cut_call_are_refused_under_required(format: Format):
    vocabulary = vocabulary_of(format, True)
    grammar = grammar_for(format, vocabulary, "required")
    whole = written(format, weather(format))
    assert not vocabulary.accepts(grammar, "I cannot do that.")
    assert not vocabulary.accepts(grammar, written(format, weather(format), content="Let me see."))
    assert not vocabulary.accepts(grammar, whole[: len(whole) * 3 // 4])
    assert not vocabulary.accepts(grammar, written(format, call(format, "no_such_tool", {})))


@each(WITH_CALLS)
def test_a_name_admits_that_tool_only(format: Format):
    vocabulary = vocabulary_of(format, True)
    grammar = grammar_for(format, vocabulary, "search_docs")
    assert vocabulary.accepts(grammar, written(format, search(format)))
    assert not vocabulary.accepts(grammar, written(format, weather(format)))


@each(WITH_CALLS)
def test_without_parallel_calls_there_is_exactly_one(format: Format):
    vocabulary = vocabulary_of(format, True)
    grammar = grammar_for(format, vocabulary, "required", parallel=False)
    assert vocabulary.accepts(grammar, written(format, search(format)))
    assert not vocabulary.accepts(grammar, written(format, search(format), weather(format)))


@each(WITH_CALLS)
def test_strict_auto_admits_prose_and_whole_calls_and_no_broken_one(format: Format):
    vocabulary = vocabulary_of(format, True)
    tools = (ToolSpec("search_docs", SEARCH.parameters, strict=True), PING)
    grammar = grammar_for(format, vocabulary, "auto", tools=tools)
    assert vocabulary.accepts(grammar, written(format, search(format)))
    assert not vocabulary.accepts(grammar, written(format, search(format, limit=11)))
    prose = render(format, content="Plain words, 2 < 3.", start=ReplyStart.HEADER)
    assert vocabulary.accepts(grammar, prose.removesuffix(format.content_close) if format.channels else prose)


@each(WITH_CALLS)
def test_auto_without_a_strict_tool_constrains_nothing(format: Format):
    assert tool_call_constraint(format, TOOLS, "auto", target="lark") is None
    assert tool_call_constraint(format, TOOLS, "none", target="structural_tag") is None


@each([f for f in WITH_CALLS if f.reasoning])
def test_reasoning_is_free_before_a_json_reply_and_gone_when_it_is_off(format: Format):
    assert format.reasoning is not None
    vocabulary = vocabulary_of(format, True)
    content = '{"temp": 1}'
    thought = render(format, reasoning="{ hm", content=content, start=ReplyStart.REASONING)
    plain = render(format, content=content, start=ReplyStart.CONTENT)

    def grammar(start: ReplyStart) -> str:
        return response_format_constraint(format, SCHEMA, target="lark", start=start, tokens=vocabulary.markers)

    assert vocabulary.accepts(grammar(ReplyStart.REASONING), thought)
    assert not vocabulary.accepts(grammar(ReplyStart.REASONING), plain)
    assert vocabulary.accepts(grammar(ReplyStart.CONTENT), plain)
    assert not vocabulary.accepts(grammar(ReplyStart.CONTENT), thought)


@each(WITH_CALLS)
def test_a_json_reply_keeps_the_tools_callable(format: Format):
    vocabulary = vocabulary_of(format, True)
    grammar = response_format_constraint(format, SCHEMA, target="lark", tools=TOOLS, tokens=vocabulary.markers)
    assert vocabulary.accepts(grammar, written(format, weather(format)))
    content = render(format, content='{"temp": 1}', start=ReplyStart.HEADER)
    assert vocabulary.accepts(grammar, content)
    assert not vocabulary.accepts(grammar, content.replace("1", '"warm"'))


def test_an_unknown_name_and_a_format_without_calls_are_refused_with_their_place():
    format = WITH_CALLS[0]
    with pytest.raises(GrammarError) as unknown:
        tool_call_constraint(format, TOOLS, "get_whether", target="lark")
    assert (unknown.value.keyword, unknown.value.path) == ("tool_choice", "tool_choice")
    with pytest.raises(GrammarError) as plain:
        tool_call_constraint(PLAIN, TOOLS, "required", target="lark")
    assert plain.value.path == "tools"


@each(WITH_CALLS)
def test_a_structural_tag_is_made_of_known_nodes_and_whole_grammars(format: Format):
    strict = tuple(ToolSpec(tool.name, tool.parameters, strict=True) for tool in TOOLS)
    for choice, start in (("required", ReplyStart.HEADER), ("auto", ReplyStart.CONTENT)):
        written_tag = tool_call_constraint(format, strict, choice, target="structural_tag", start=start)
        assert written_tag is not None
        tag = json.loads(written_tag)
        assert tag["type"] == "structural_tag"
        check_node(tag["format"])


def test_a_structural_tag_never_ends_a_range_at_the_surrogates():
    # xgrammar 0.2.7 has no way on from the first byte of a Hangul syllable in such a range.
    for format in WITH_CALLS:
        written_tag = tool_call_constraint(format, TOOLS, "required", target="structural_tag")
        assert written_tag is not None
        assert "\\ud7ff" not in written_tag


def check_node(node: dict[str, Any]) -> None:
    match node["type"]:
        case "const_string":
            assert node["value"]
        case "any_text":
            assert all(node["excludes"])
        case "sequence" | "or":
            assert node["elements"]
            for element in node["elements"]:
                check_node(element)
        case "optional" | "star" | "plus" | "repeat":
            check_node(node["content"])
        case "grammar":
            rules = dict(line.split(" ::= ", 1) for line in node["grammar"].split("\n"))
            assert "root" in rules
            assert all(rules.values())
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    ("name", "directory"),
    [("qwen3", "qwen3"), ("hermes", "qwen3"), ("glm45", "glm-4.5"), ("deepseek_v31", "deepseek-v3.1"),
     ("llama3_json", "llama-3.1"), ("qwen35", "qwen3"), ("gemma4", "llama-3.1")],
)  # fmt: skip
@pytest.mark.heavy
def test_real_vocabularies_spell_the_calls_that_the_grammar_wants(shared_assets: Any, name: str, directory: str):
    from llguidance import LLMatcher, LLTokenizer
    from tokenizers import Tokenizer

    path = str(shared_assets / "tokenizers" / directory / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    added = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    format = next(format for format in FORMATS if format.name == name)
    grammar = tool_call_constraint(format, TOOLS, "required", target="lark", tokens=added)
    matcher = LLMatcher(LLTokenizer(path), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = tokenizer.encode(written(format, weather(format), search(format)), add_special_tokens=False).ids
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert matcher.is_accepting()


@pytest.mark.parametrize("name", [f.name for f in WITH_CALLS if getattr(f.calls[0].arguments, "entities", ())])
def test_a_key_is_written_with_the_entities_of_its_family(name: str):
    format = get_format(name)
    tool = ToolSpec("set", {"type": "object", "properties": {'a&"b': {"type": "string"}}, "required": ['a&"b']})
    vocabulary = vocabulary_of(format, True)
    grammar = grammar_for(format, vocabulary, "required", tools=(tool,), start=ReplyStart.CONTENT)
    made = written(format, call(format, "set", {'a&"b': "&amp;"}), start=ReplyStart.CONTENT)
    assert 'key="a&amp;&quot;b"' in made
    assert vocabulary.accepts(grammar, made)
    assert not vocabulary.accepts(grammar, made.replace("a&amp;", "a&"))
