"""No schema, however odd or large, costs more than its share: it becomes a grammar, or a refusal that names why."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paraserve.formats.families import FORMATS
from paraserve.formats.types import ToolSpec
from paraserve.grammar import GrammarError, GrammarTarget, response_format_constraint, tool_call_constraint
from tests.formats.formats_kit import steps_of
from tests.grammar.grammar_kit import Vocabulary
from tests.pairwise import pairwise

BY_NAME = {format.name: format for format in FORMATS}
HERMES = BY_NAME["hermes"]
SPELLED = [BY_NAME[name] for name in ("hermes", "glm45", "deepseek_v32", "pythonic", "minimax_m3", "gemma4")]
DEEP = [BY_NAME[name] for name in ("hermes", "glm45", "deepseek_v32", "pythonic", "gemma4")]
TARGETS: tuple[GrammarTarget, ...] = ("lark", "structural_tag")
WAYS = pairwise(SPELLED, (False, True), TARGETS, (False, True))
VOCABULARY = Vocabulary(HERMES, marker_tokens=True)
TEXT = {"type": "string"}
MOST_STEPS = 10_000_000
"""Function calls, of Python and of C, for one schema and one target."""


def only_refuses(schema: Any) -> None:
    """Every way of asking for it ends in a grammar or in a `GrammarError`."""
    within = ToolSpec("f", {"type": "object", "properties": {"x": schema}}, strict=True)
    itself = ToolSpec("g", schema, strict=True) if isinstance(schema, dict) else within
    for format, whole, target, lenient in WAYS:
        with suppress(GrammarError):
            tool_call_constraint(format, [itself if whole else within], "auto", target=target, lenient=lenient)
    for target, lenient in product(TARGETS, (False, True)):
        with suppress(GrammarError):
            response_format_constraint(HERMES, schema, target=target, lenient=lenient)


def nested(levels: int, wrap: Callable[[Any], Any], innermost: Any) -> Any:
    return reduce(lambda inner, _: wrap(inner), range(levels), innermost)


def doubling(levels: int, join: Callable[[Any, Any], Any]) -> Any:
    """Each definition names the next one twice."""
    ref = [{"$ref": f"#/$defs/d{level + 1}"} for level in range(levels)]
    defs: dict[str, Any] = {f"d{level}": join(ref[level], ref[level]) for level in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "string", "minLength": 1}}}


def pair(left: Any, right: Any) -> Any:
    return {"type": "array", "prefixItems": [left, right], "minItems": 2, "maxItems": 2}


CYCLE = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#"}, "x": {"type": "string"}}, "additionalProperties": False}
ENDLESS: dict[str, Any] = {
    "references in a circle": {"$ref": "#/$defs/a", **CYCLE},
    "a reference to itself": {"$ref": "#"},
    "alternatives in a circle": {"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}]},
    "a required property of its own kind": {**NODE, "required": ["next"]},
    "an item of its own kind": {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    "a first item of its own kind": {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    "a required key of its own kind": {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
    "endless alternatives": {
        "anyOf": [{**NODE, "required": ["next"]}, {"type": "array", "maxItems": 0, "minItems": 1}]
    },
}
LARGE: dict[str, Any] = {
    "deep arrays": nested(200, lambda inner: {"type": "array", "items": inner}, {"type": "string"}),
    "very deep arrays": nested(5000, lambda inner: {"type": "array", "items": inner}, {"type": "string"}),
    "very deep constant": {"const": nested(5000, lambda inner: [inner], 1)},
    "very deep alternatives": nested(3000, lambda inner: {"anyOf": [inner]}, {"type": "null"}),
    "very deep combinations": nested(3000, lambda inner: {"allOf": [inner, {"minLength": 1}]}, {"type": "string"}),
    "deep groups": {"type": "string", "pattern": "(" * 5000 + "a" + ")" * 5000},
    "repeats of repeats": {"type": "string", "pattern": "^a" + "{1,2}" * 3000 + "$"},
    "a long count": {"type": "string", "pattern": "^a{" + "9" * 6000 + "}$"},
    "a long pattern": {"type": "string", "pattern": "^" + "[a-z]?" * 100_000 + "$"},
    "doubling items": doubling(20, pair),
    "doubling properties": doubling(20, lambda a, b: {"type": "object", "properties": {"a": a, "b": b}}),
    "doubling alternatives": doubling(20, lambda a, b: {"anyOf": [pair(a, b), pair(b, a)]}),
    "doubling combinations": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    "a huge enumeration": {"enum": [f"value {index}" for index in range(100_000)]},
    "huge enumerations combined": {"allOf": [{"enum": list(range(50_000))}, {"enum": list(range(1, 50_001))}]},
    "large enumerations combined": {"allOf": [{"enum": list(range(12_000))}, {"enum": list(range(1, 12_001))}]},
    "many properties": {"type": "object", "properties": {f"k{index}": {} for index in range(100_000)}},
    "many required": {"type": "object", "required": [f"k{index}" for index in range(50_000)]},
    "many alternatives": {"anyOf": [{"type": "string", "minLength": index} for index in range(5000)]},
    "many exclusive ones": {"oneOf": [{"type": "string", "maxLength": index} for index in range(5000)]},
    "many exclusive constants": {"oneOf": [{"const": index} for index in range(5000)]},
    "many combined": {"allOf": [{"properties": {f"k{index}": {}}} for index in range(5000)]},
    "many first items": {"type": "array", "prefixItems": [{"type": "string"}] * 5000},
    "far bounds": {"type": "number", "minimum": -1e308, "maximum": 1e308},
    "fine bounds": {"type": "number", "minimum": 1e-300},
    "a long integer": {"type": "integer", "minimum": -(10**5000), "maximum": 10**5000},
    "a long step": {"type": "integer", "multipleOf": 10**5000},
    "an endless count": {"type": "string", "maxLength": float("inf")},
    "no count": {"type": "array", "minItems": float("nan")},
    "no number": {"enum": [float("nan"), float("inf")]},
    "much text": {"description": "x" * 2_000_000},
    "a long key": {"type": "object", "properties": {"k" * 100_000: {"type": "string"}}, "additionalProperties": {}},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_schema_whose_every_value_is_endless_is_refused(name: str) -> None:
    for target in TARGETS:
        with pytest.raises(GrammarError):
            response_format_constraint(HERMES, ENDLESS[name], target=target)


def test_an_endless_alternative_is_left_out_and_the_others_stay() -> None:
    """A model that began one could never end it."""
    schema = {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"type": "integer"}]}
    grammar = response_format_constraint(HERMES, schema, target="lark", tokens=VOCABULARY.markers)
    assert all(VOCABULARY.accepts(grammar, text) for text in ("1", "[1]", "[[2], 3]"))
    optional = {**NODE, "properties": {**NODE["properties"], "never": {"$ref": "#/$defs/n"}}}  # type: ignore[dict-item]
    optional["$defs"] = {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1}}
    grammar = response_format_constraint(HERMES, optional, target="lark", tokens=VOCABULARY.markers)
    assert VOCABULARY.accepts(grammar, '{"next": {"x": "a"}}')
    assert not VOCABULARY.accepts(grammar, '{"never": []}')


@pytest.mark.parametrize("name", [*ENDLESS, *LARGE])
def test_an_odd_schema_is_refused_and_nothing_else(name: str) -> None:
    only_refuses({**ENDLESS, **LARGE}[name])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [*ENDLESS, *LARGE])
def test_an_odd_schema_costs_a_bounded_number_of_steps(name: str, target: GrammarTarget) -> None:
    schema = {**ENDLESS, **LARGE}[name]

    def ask() -> None:
        with suppress(GrammarError):
            response_format_constraint(HERMES, schema, target=target)

    assert steps_of(ask) < MOST_STEPS


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (LARGE["very deep arrays"], "levels deep"),
        (LARGE["doubling items"], "too large"),
        (LARGE["many properties"], "too large"),
        (LARGE["many first items"], "prefixItems"),
        ({"type": "object", "properties": {f"k{index}": {} for index in range(401)}}, "400 optional properties"),
        (LARGE["huge enumerations combined"], "too large"),
    ],
)
def test_what_is_too_large_is_named(schema: Any, named: str) -> None:
    with pytest.raises(GrammarError, match=named):
        response_format_constraint(HERMES, schema, target="lark")


@pytest.mark.parametrize(
    ("levels", "wrap"),
    [
        (48, lambda inner: {"type": "array", "items": inner}),
        (48, lambda inner: {"type": "object", "properties": {"a": inner, "b": {}}, "required": ["b"]}),
        (48, lambda inner: {"type": "object", "properties": {"a": inner, "b": inner}} if inner is TEXT else
            {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": True}),
        (24, lambda inner: {"anyOf": [{"type": "array", "prefixItems": [inner, {"type": "null"}]}, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_depth_within_the_limit_is_written(levels: int, wrap: Callable[[Any], Any]) -> None:
    schema = nested(levels, wrap, TEXT)
    for target in TARGETS:
        assert response_format_constraint(HERMES, schema, target=target)
        for format in DEEP:
            tool = ToolSpec("f", {"properties": {"x": schema}})
            assert tool_call_constraint(format, [tool], "required", target=target)


def optionals(count: int, *, required: int = 0) -> dict[str, Any]:
    properties = {f"k{index}": {"type": "string", "minLength": 1} for index in range(count)}
    return {"type": "object", "properties": properties, "required": [f"k{index}" for index in range(required)]}


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_grammar_grows_with_the_number_of_optional_properties(target: GrammarTarget, open_: bool) -> None:
    def size(count: int) -> int:
        schema = {**optionals(count), "additionalProperties": open_}
        return len(response_format_constraint(HERMES, schema, target=target))

    step = size(200) - size(100)
    assert size(400) - size(300) < 1.3 * step
    assert size(400) < 120_000


@pytest.mark.parametrize(("count", "required", "open_"), [(3, 0, False), (4, 0, True), (4, 1, False), (4, 2, True)])
def test_optional_properties_in_their_order_and_nothing_else(count: int, required: int, open_: bool) -> None:
    schema = {**optionals(count), "additionalProperties": {"type": "integer"} if open_ else False}
    schema["required"] = [f"k{count - 1 - index}" for index in range(required)]
    grammar = response_format_constraint(HERMES, schema, target="lark", tokens=VOCABULARY.markers)
    for mask in range(2**count):
        keys = [index for index in range(count) if mask >> index & 1]
        for extra in ("", '"z": 1', '"z": 1, "y": 2'):
            members = [*(f'"k{index}": "v"' for index in keys), *([extra] if extra else [])]
            valid = all(count - 1 - index in keys for index in range(required)) and (open_ or not extra)
            assert VOCABULARY.accepts(grammar, "{" + ", ".join(members) + "}") == valid, members
        if len(keys) > 1:
            swapped = ", ".join(f'"k{index}": "v"' for index in reversed(keys))
            assert not VOCABULARY.accepts(grammar, "{" + swapped + "}")
    assert not VOCABULARY.accepts(grammar, '{, "k0": "v"}')
    assert not VOCABULARY.accepts(grammar, '{"k0": "v",}')


def test_many_optional_properties_compile_and_are_kept() -> None:
    grammar = response_format_constraint(HERMES, optionals(400), target="lark", tokens=VOCABULARY.markers)
    for written in ("{}", '{"k0": "v"}', '{"k0": "v", "k399": "v"}', '{"k150": "v", "k151": "v"}'):
        assert VOCABULARY.accepts(grammar, written)
    assert not VOCABULARY.accepts(grammar, '{"k2": "v", "k1": "v"}')
    assert not VOCABULARY.accepts(grammar, '{"k400": "v"}')


KEYWORDS = [
    *("type", "$ref", "allOf", "anyOf", "oneOf", "const", "enum", "properties", "required", "additionalProperties"),
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "minLength", "maxLength"),
    *("pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "propertyNames"),
    *("minProperties", "maxProperties", "patternProperties", "not", "dependentRequired", "$defs", "nullable"),
]
WORDS = st.sampled_from(
    ["string", "object", "array", "number", "integer", "null", "a", "", "#", "#/", "#/$defs/a", "#/anyOf/0",
     "#/properties/a", "#/x", "^a", "(", "[", "a{2", "\\", "$", "date", "</parameter>", "\x00", "🌤"]
)  # fmt: skip
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([1e308, -1e-300, 10**40, 0.5]), WORDS)


def odd(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schema = st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    named = st.dictionaries(st.sampled_from(["a", "b", "$ref", "<", ""]), inner, max_size=3)
    return st.one_of(schema, schema, st.lists(inner, max_size=3), named)


@given(st.recursive(SCALARS, odd, max_leaves=14))
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_whatever_stands_in_a_schema_it_is_refused_or_written(schema: Any) -> None:
    only_refuses(schema)
