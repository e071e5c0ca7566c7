"""A schema, or a part of one, that no value satisfies: refused, or left out, and never an alternative of nothing."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paraserve.formats.families import FORMATS
from paraserve.formats.types import ToolSpec
from paraserve.grammar import GrammarError, GrammarTarget, response_format_constraint, tool_call_constraint
from paraserve.grammar.emptiness import has_no_string
from paraserve.grammar.regex import Alt, Both, Cat, Regex, Repeat, chars, write
from tests.grammar.grammar_kit import vocabulary

BY_NAME = {format.name: format for format in FORMATS}
HERMES = BY_NAME["hermes"]
TARGETS: tuple[GrammarTarget, ...] = ("lark", "ebnf", "structural_tag")

NOTHING: dict[str, Any] = {
    "no integer between": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    "no integer within": {"type": "integer", "minimum": 0.2, "maximum": 0.8},
    "no multiple of ten": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 10},
    "no multiple": {"type": "number", "minimum": 1, "maximum": 2, "multipleOf": 2.5},
    "no negative number": {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": -0.5},
    "bounds the wrong way": {"type": "number", "minimum": 5, "maximum": 3},
    "lengths the wrong way": {"type": "string", "minLength": 3, "maxLength": 2},
    "a pattern that is longer": {"type": "string", "pattern": "^[0-9]{4}$", "maxLength": 3},
    "a pattern of other lengths": {"type": "string", "pattern": "^(aa)+$", "minLength": 3, "maxLength": 3},
    "a format that is longer": {"type": "string", "format": "uuid", "maxLength": 10},
    "two patterns apart": {"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "^b"}]},
    "false": False,
    "types apart": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "constants apart": {"allOf": [{"const": 1}, {"const": 2}]},
    "enumerations apart": {"allOf": [{"enum": ["a"]}, {"enum": ["b"]}]},
    "an enumeration of another type": {"enum": ["a"], "type": "integer"},
    "alternatives of nothing": {"anyOf": [False, {"type": "integer", "minimum": 2, "maximum": 1}]},
    "an item that must be there": {"type": "array", "items": False, "minItems": 1},
    "a property that must be there": {"type": "object", "properties": {"a": False}, "required": ["a"]},
    "a key that must be there": {"type": "object", "additionalProperties": {}, "minProperties": 1, "maxProperties": 0},
    "a definition of nothing": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}, "c": False}, "required": ["c"]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        },
    },
}
nothings = pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)


def content(schema: Any, target: GrammarTarget = "lark") -> str:
    markers = vocabulary(HERMES, True).markers
    return response_format_constraint(HERMES, schema, target=target, tokens=markers)


def within(schema: Any) -> dict[str, Any]:
    """A schema moved into a part, with its definitions left at the root."""
    return {"$defs": schema.pop("$defs")} if isinstance(schema, dict) and "$defs" in schema else {}


@nothings
@pytest.mark.parametrize("target", TARGETS)
def test_a_schema_without_values_is_refused(nothing: Any, target: GrammarTarget) -> None:
    with pytest.raises(GrammarError, match="no value satisfies this schema"):
        content(nothing, target)
    tool = ToolSpec("f", {"type": "object", "properties": {"x": nothing}, "required": ["x"]})
    if "$defs" not in str(nothing):
        with pytest.raises(GrammarError, match="no value satisfies this schema"):
            tool_call_constraint(HERMES, [tool], "required", target=target)


@nothings
def test_a_part_without_values_is_left_out(nothing: Any) -> None:
    nothing = dict(nothing) if isinstance(nothing, dict) else nothing
    definitions = within(nothing)
    parts: list[tuple[Any, list[Any], list[Any]]] = [
        ({"anyOf": [nothing, {"const": "kept"}]}, ["kept"], [1, "a", "", {}]),
        ({"type": "array", "items": nothing}, [[]], [[1], ["a"], [None]]),
        ({"type": "array", "prefixItems": [{"type": "null"}, nothing]}, [[], [None]], [[None, 1], [None, "a"]]),
        ({"type": "object", "properties": {"x": nothing, "y": {"type": "null"}}}, [{}, {"y": None}], [{"x": 1}]),
        ({"type": "object", "properties": {"x": nothing}, "additionalProperties": True}, [{}], [{"x": 1}, {"x": "a"}]),
        ({"type": "object", "additionalProperties": nothing}, [{}], [{"x": 1}, {"x": "a"}]),
    ]
    for schema, good, bad in parts:
        for target in TARGETS:
            assert_no_alternative_is_empty(content(schema | definitions, target))
        grammar = content(schema | definitions)
        accepts = vocabulary(HERMES, True).accepts
        assert [value for value in good if not accepts(grammar, json.dumps(value))] == []
        assert [value for value in bad if accepts(grammar, json.dumps(value))] == []


def test_keys_that_no_name_satisfies_are_no_keys() -> None:
    accepts = vocabulary(HERMES, True).accepts
    for names in (False, {"type": "integer"}, {"maxLength": 2, "minLength": 3}):
        grammar = content({"type": "object", "propertyNames": names})
        assert accepts(grammar, "{}")
        assert not accepts(grammar, '{"a": 1}')


def test_an_array_is_no_longer_than_its_items_may_be() -> None:
    grammar = content({"type": "array", "prefixItems": [{"type": "null"}] * 2, "maxItems": 1})
    accepts = vocabulary(HERMES, True).accepts
    assert (accepts(grammar, "[null]"), accepts(grammar, "[null, null]")) == (True, False)


# --- the law -----------------------------------------------------------------------------------------------------


def ebnf_parts(grammar: str) -> list[str]:
    """The EBNF of a grammar, or of every node of a structural tag."""
    if not grammar.startswith("{"):
        return [grammar]
    parts, pending = [], [json.loads(grammar)]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            parts += [node["grammar"]] if node.get("type") == "grammar" else []
            assert node.get("elements") != []
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return parts


def assert_no_alternative_is_empty(grammar: str) -> None:
    if grammar.startswith("%llguidance"):
        vocabulary(HERMES, True).matcher(grammar)
        return
    for part in ebnf_parts(grammar):
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', part)
        bare = re.sub(r"\[(?:[^\]\\]|\\.)+\]", "[x]", bare)
        assert not re.search(r"\[\]|\(\s*\)|\(\s*\||\|\s*\)|\|\s*\||::=\s*(?:\n|$)", bare), part


def scalar(chooser: random.Random) -> Any:
    """Tight enough that every other one has no value."""
    kind = chooser.choice(["integer", "number", "string", "string", "other"])
    schema: dict[str, Any] = {"type": kind}
    if kind == "string":
        for keyword in ("minLength", "maxLength"):
            if chooser.random() < 0.5:
                schema[keyword] = chooser.randint(0, 4)
        patterns = ["^a$", "^(aa)+$", "b", "^[a-c]{2,3}$", "^\\d{4}$", "^x*$", "^(ab|cde)$", "^$"]
        schema |= {"pattern": chooser.choice(patterns)} if chooser.random() < 0.4 else {}
        return schema | ({"format": chooser.choice(["date", "uuid"])} if chooser.random() < 0.2 else {})
    if kind == "other":
        values = chooser.sample(["a", 1, None, True, [1], {"k": 1}], chooser.randint(1, 3))
        others: list[Any] = [False, {"enum": values}, {"enum": values, "type": "integer"}, {"type": "null"}, {}]
        return chooser.choice(others)
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if chooser.random() < 0.4:
            schema[keyword] = chooser.choice([0, 1, 2, 3, 9, 10, 11, -1, -3, 0.5, 1.5, 2.25])
    return schema | ({"multipleOf": chooser.choice([1, 10, 100, 0.5, 3, 7])} if chooser.random() < 0.25 else {})


def tight(chooser: random.Random, depth: int = 0) -> Any:
    if depth > 3 or chooser.random() < 0.3:
        return scalar(chooser)
    kind = chooser.choice(["array", "object", "object", "anyOf", "oneOf", "allOf", "$ref"])
    if kind == "$ref":
        return {"$ref": chooser.choice(["#", "#/$defs/a", "#/$defs/b"])}
    if kind.endswith("Of"):
        return {kind: [tight(chooser, depth + 1) for _ in range(chooser.randint(1, 3))]}
    schema: dict[str, Any] = {"type": kind}
    chances: dict[str, Any] = {
        "array": {
            "items": lambda: tight(chooser, depth + 1),
            "prefixItems": lambda: [tight(chooser, depth + 1) for _ in range(chooser.randint(1, 3))],
            "minItems": lambda: chooser.randint(0, 3),
            "maxItems": lambda: chooser.randint(0, 3),
        },
        "object": {
            "properties": lambda: {n: tight(chooser, depth + 1) for n in chooser.sample("abcd", 2)},
            "required": lambda: chooser.sample("abcde", chooser.randint(0, 2)),
            "additionalProperties": lambda: tight(chooser, depth + 1),
            "propertyNames": lambda: tight(chooser, depth + 1),
            "minProperties": lambda: chooser.randint(0, 2),
            "maxProperties": lambda: chooser.randint(0, 2),
        },
    }
    for keyword, make in chances[kind].items():
        if chooser.random() < (0.15 if keyword in ("propertyNames", "minProperties", "maxProperties") else 0.5):
            schema[keyword] = make()
    return schema


@pytest.mark.parametrize("seed", range(60))
def test_a_tight_schema_is_refused_or_written_without_an_empty_alternative(seed: int) -> None:
    chooser = random.Random(seed)
    definitions = {"$defs": {"a": tight(chooser, 1), "b": tight(chooser, 1)}}
    schema = tight(chooser)
    schema = schema | definitions if isinstance(schema, dict) else schema
    tool = ToolSpec("f", {"type": "object", "properties": {"x": schema}, **definitions})
    format = chooser.choice([HERMES, *(BY_NAME[name] for name in ("qwen35", "glm47", "pythonic", "gemma4"))])
    markers = vocabulary(format, True).markers
    for target, lenient in itertools.product(TARGETS, (False, True)):
        try:
            written = (
                tool_call_constraint(format, [tool], "required", target=target, tokens=markers, lenient=lenient),
                response_format_constraint(HERMES, schema, target=target, lenient=lenient),
            )
        except GrammarError:
            continue
        calls, reply = written
        assert calls is not None
        if target == "lark":
            vocabulary(format, True).matcher(calls)
            for _ in range(0 if lenient else 2):
                text = vocabulary(HERMES, True).sample(reply, chooser, most=400)
                if text is not None:
                    jsonschema.validate(json.loads(text), schema)
        else:
            assert_no_alternative_is_empty(calls)
        assert_no_alternative_is_empty(reply)


# --- languages ---------------------------------------------------------------------------------------------------

LETTERS = st.sampled_from([chars("a"), chars("b"), chars("ab"), chars("c")])
REPEATS = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3)])


def larger(inner: st.SearchStrategy[Regex]) -> st.SearchStrategy[Regex]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        several.map(Cat), several.map(Alt), st.tuples(inner, REPEATS).map(lambda pair: Repeat(pair[0], *pair[1]))
    )


@given(st.lists(st.recursive(LETTERS, larger, max_leaves=3), min_size=2, max_size=3))
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_languages_have_a_string_in_common_if_and_only_if_one_is_found(languages: list[Regex]) -> None:
    spelled = [re.compile(write(language, chr)) for language in languages]
    words = ("".join(word) for size in range(8) for word in itertools.product("abc", repeat=size))
    found = any(all(language.fullmatch(word) for language in spelled) for word in words)
    assert has_no_string(Both(tuple(languages))) != found
