"""Which schemas are read, how narrowly, and how a refusal says what it refuses."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import GrammarError, response_format_constraint, tool_call_constraint
from tests.grammar.grammar_kit import PING, Vocabulary

BY_NAME = {format.name: format for format in FORMATS}
HERMES = BY_NAME["hermes"]
VOCABULARY = Vocabulary(HERMES, marker_tokens=True)


def grammar_of(schema: Any, **options: Any) -> str:
    return response_format_constraint(HERMES, schema, target="lark", tokens=VOCABULARY.markers, **options)


def admits(schema: Any, value: Any) -> bool:
    written = value if isinstance(value, str) and value[:1] in '{["' else json.dumps(value, ensure_ascii=False)
    return VOCABULARY.accepts(grammar_of(schema), written)


def in_tool(schema: Any, **options: Any) -> str | None:
    tools = [PING, ToolSpec("f", {"type": "object", "properties": {"x": schema}})]
    return tool_call_constraint(HERMES, tools, "required", target=options.pop("target", "lark"), **options)


REFUSED = [
    ("not", {"type": "string", "not": {"const": "a"}}, ""),
    ("if", {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, ""),
    ("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, ""),
    ("contains", {"type": "array", "contains": {"type": "integer"}}, ""),
    ("patternProperties", {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, ""),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}, ""),
    ("minProperties", {"type": "object", "minProperties": 3}, ""),
    ("maxProperties", {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1}, ""),
    ("multipleOf", {"type": "integer", "multipleOf": 7}, ""),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "number"}]}, ""),
    ("pattern", {"type": "string", "pattern": "^(?=a)b"}, ""),
    ("pattern", {"type": "array", "items": {"type": "string", "pattern": r"(a)\1"}}, ".items"),
    ("$ref", {"$ref": "#/$defs/missing"}, ""),
    ("$ref", {"$ref": "https://example.com/schema.json"}, ""),
    ("type", {"type": "text"}, ""),
    ("minLength", {"type": "string", "minLength": -1}, ""),
    ("anyOf", {"anyOf": []}, ""),
    ("uniqueItems", {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": True}]}, ".anyOf[1]"),
]


@pytest.mark.parametrize(
    ("keyword", "schema", "place"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("target", ["lark", "structural_tag"])
def test_a_keyword_that_cannot_be_kept_is_named_with_its_place(keyword: str, schema: Any, place: str, target: str):
    with pytest.raises(GrammarError) as refused:
        in_tool(schema, target=target)
    assert refused.value.keyword == keyword
    assert refused.value.path == f"tools[1].function.parameters.properties.x{place}"
    assert refused.value.path in str(refused.value)


@pytest.mark.parametrize("keyword", ["not", "uniqueItems", "patternProperties", "minProperties", "oneOf", "multipleOf"])
def test_lenient_drops_the_keyword_and_keeps_the_rest(keyword: str):
    schema = next(schema for name, schema, _ in REFUSED if name == keyword)
    grammar = in_tool(schema, lenient=True)
    assert grammar is not None
    VOCABULARY.matcher(grammar)


def test_a_schema_in_a_response_format_is_refused_with_its_place():
    with pytest.raises(GrammarError) as refused:
        grammar_of({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert refused.value.path == "response_format.properties.a"


def test_a_recursive_reference_with_keywords_beside_it_is_refused():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n", "minProperties": 1}}}
    with pytest.raises(GrammarError) as refused:
        in_tool({"$ref": "#/properties/x/$defs/n", "$defs": {"n": node}})
    assert refused.value.keyword == "$ref"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 12}, [3, 9, 12], [2, 13, "3", 3.5]),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1.5}, [0.1, 1.5, 1], [0, 1.51, -1]),
        ({"type": "number", "multipleOf": 0.01}, [1.25, 3, -0.5], [1.255]),
        ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 30}, [7, 28], [1, 35]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "北京市", '"\n'], ["a", "abcd"]),
        ({"type": "string", "pattern": "^a.*z$"}, ["az", 'a"z', "a\\z"], ["b", "azb"]),
        ({"type": "string", "pattern": "b|c"}, ["abc", "xcx"], ["a", ""]),
        ({"type": "string", "format": "date"}, ["2024-02-28"], ["2024-13-01", "x"]),
        ({"type": "string", "format": "int32"}, ["anything"], [1]),
        ({"enum": ["a", 1, None, True, {"k": [1]}]}, ["a", 1, None, True, {"k": [1]}], ["b", 2, False]),
        ({"const": {"a": "x"}}, [{"a": "x"}], [{"a": "y"}, {}]),
        ({"type": ["string", "null"]}, ["x", None], [1]),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1, [1, 2]], ["1", ["a"]]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}}, [[1], [1, None]], [["a"]]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, [3, 5], [2, 6]),
        ({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1}, [{}, {"a": 1}],
         [{"a": "1"}, {"a": 1, "b": 2}]),
        ({"type": "object"}, [{}, {"a": [1, {"b": None}]}], [1, []]),
        (True, [1, "x", None, [{}]], []),
    ],
)  # fmt: skip
def test_keywords_are_kept(schema: Any, good: list[Any], bad: list[Any]):
    for value in good:
        jsonschema.validate(value, schema)
        assert admits(schema, json.dumps(value, ensure_ascii=False)) or admits(schema, value), value
    for value in bad:
        written = json.dumps(value, ensure_ascii=False)
        assert not VOCABULARY.accepts(grammar_of(schema), written), value


def test_an_object_that_lists_its_properties_is_closed_unless_it_says_otherwise():
    listed = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert admits(listed, '{"a": 1}')
    assert not admits(listed, '{"a": 1, "b": 2}')
    assert admits({**listed, "additionalProperties": True}, '{"a": 1, "b": 2}')
    assert not admits({**listed, "additionalProperties": True}, '{"a": "x", "b": 2}')


def test_properties_come_in_the_schema_s_order_and_optional_ones_may_be_left_out():
    schema = {"type": "object", "properties": {n: {"type": "integer"} for n in "abc"}, "required": ["b"]}
    for written in ('{"b": 1}', '{"a": 1, "b": 2}', '{"b": 1, "c": 2}', '{"a": 1, "b": 2, "c": 3}', '{"a":1,"b":2}'):
        assert admits(schema, written), written
    for written in ('{"a": 1}', '{"b": 1, "a": 2}', "{}", '{"b": 1,}', '{"b": 1} '):
        assert not admits(schema, written), written


def test_layout_is_bounded_so_that_no_reply_is_endless_whitespace():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert admits(schema, '{\n  "a": 1\n}')
    assert not admits(schema, '{   "a": 1}')
    assert not admits(schema, '{\n\n"a": 1}')


def test_a_value_between_tags_never_holds_the_tag_that_ends_it():
    coder = BY_NAME["qwen35"]
    vocabulary = Vocabulary(coder, marker_tokens=False)
    tool = ToolSpec("f", {"type": "object", "properties": {"x": {"type": "object", "properties": {"s": {}}}}})
    grammar = tool_call_constraint(coder, [tool], "f", target="lark", start=ReplyStart.CONTENT, parallel=False)
    assert grammar is not None

    def reply(text: str) -> str:
        value = json.dumps({"s": text})
        return f"<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"

    assert vocabulary.accepts(grammar, reply("a < b, <i>, </p>"))
    assert not vocabulary.accepts(grammar, reply("a</parameter>"))


def test_an_untyped_value_that_may_be_a_string_is_written_as_one():
    glm = BY_NAME["glm47"]
    vocabulary = Vocabulary(glm, marker_tokens=True)
    either = {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "integer"}]}
    tool = ToolSpec("f", {"type": "object", "properties": {"x": either}})
    grammar = tool_call_constraint(glm, [tool], "f", target="lark", start=ReplyStart.CONTENT, tokens=vocabulary.markers)
    assert grammar is not None
    reply = "<tool_call>f<arg_key>x</arg_key><arg_value>{}</arg_value></tool_call>"
    assert vocabulary.accepts(grammar, reply.format("a"))
    assert not vocabulary.accepts(grammar, reply.format("7"))


def test_a_pattern_and_a_length_together_are_refused_only_where_the_syntax_has_no_intersection():
    schema = {"type": "string", "pattern": "a.*b", "maxLength": 5}
    assert in_tool(schema, target="lark") is not None
    with pytest.raises(GrammarError) as refused:
        in_tool(schema, target="structural_tag")
    assert refused.value.keyword == "pattern"
    assert in_tool({"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, target="structural_tag") is not None


def test_a_schema_or_pattern_of_hostile_depth_is_refused_and_not_a_crash():
    deep: Any = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"x": deep}}
    patterns = [{"type": "string", "pattern": "(" * 400 + "a" + ")" * 400}, {"type": "string", "pattern": "a" * 5000}]
    for schema in (deep, patterns[0]):
        with pytest.raises(GrammarError):
            in_tool(schema)
    assert in_tool(patterns[1]) is not None
    long_key = {"type": "object", "properties": {"k" * 3000: {"type": "integer"}}, "additionalProperties": True}
    assert in_tool(long_key) is not None


def test_bounds_beyond_what_can_be_spelled_are_drawn_in_or_refused():
    widest = {"type": "number", "maximum": 1.7976931348623157e308, "exclusiveMinimum": 5e-324}
    assert admits(widest, 12.5)
    assert not admits(widest, 0)
    safe = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}
    assert admits(safe, 9007199254740991)
    assert not admits(safe, 9007199254740992)
    with pytest.raises(GrammarError):
        in_tool({"type": "number", "minimum": 1e300})


def random_schema(chooser: random.Random, depth: int = 0) -> Any:
    simple = ["string", "integer", "number", "boolean", "null", "enum"]
    kind = chooser.choice(simple if depth > 2 else [*simple, "array", "object", "object", "anyOf", "types", "any"])
    match kind:
        case "string":
            extra = [
                {},
                {"minLength": 1, "maxLength": 4},
                {"pattern": "^[a-z]+$"},
                {"pattern": 'x"y'},
                {"format": "uuid"},
            ]
            return {"type": "string", **chooser.choice(extra)}
        case "integer" | "number":
            extra = [{}, {"minimum": -5, "maximum": 100}, {"exclusiveMaximum": 8}, {"minimum": 1}]
            return {"type": kind, **chooser.choice(extra)}
        case "enum":
            return {"enum": chooser.sample(["a", "b c", '"q"', "é\n", 1, 2.5, True, None, [1, "x"], {"k": 1}], 3)}
        case "array":
            bounds = chooser.choice([{}, {"minItems": 1, "maxItems": 3}, {"maxItems": 2}])
            return {"type": "array", "items": random_schema(chooser, depth + 1), **bounds}
        case "object":
            names = chooser.sample(["a", "b", "long name", "k-1", "_x"], chooser.randint(0, 3))
            extra = chooser.choice([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}])
            properties = {name: random_schema(chooser, depth + 1) for name in names}
            return {"type": "object", "properties": properties, "required": names[::2], **extra}
        case "anyOf":
            return {"anyOf": [random_schema(chooser, depth + 1) for _ in range(2)]}
        case "types":
            return {"type": chooser.sample(["string", "integer", "null", "boolean", "array", "object"], 2)}
        case "any":
            return {}
        case _:
            return {"type": kind}


@pytest.mark.parametrize("seed", range(40))
def test_every_text_of_a_random_schema_s_grammar_is_valid_under_it(seed: int):
    chooser = random.Random(seed)
    schema = random_schema(chooser)
    grammar = grammar_of(schema)
    for _ in range(3):
        text = VOCABULARY.sample(grammar, chooser, most=600)
        if text is not None:
            jsonschema.validate(json.loads(text), schema)
