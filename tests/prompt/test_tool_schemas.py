"""Schemas of tools through templates that walk them, and errors that name the tool."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.errors import PromptError
from paraserve.prompt.probes import References
from paraserve.prompt.tool_declarations import declare_tools
from paraserve.prompt.tool_schemas import described, has_references, inlined, split_types, without_nulls
from tests.prompt.own_templates import PLAIN
from tests.prompt.real_templates import real_prompts
from tests.prompt.requests import asked
from tests.test_security import deep_behind_references

ASK = [{"role": "user", "content": "hi"}]
PERIOD = {"type": "object", "properties": {"kind": {"type": "string", "enum": ["week", "month"]}}}
REFERENCE = {"$ref": "#/$defs/Period"}


def tool(parameters: Any, name: str = "sales") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def with_parameter(parameter: Any, **keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"period": parameter}, "required": ["period"], **keywords}


@pytest.mark.parametrize(
    "parameter",
    [
        REFERENCE,
        {**REFERENCE, "description": "which"},
        {"anyOf": [REFERENCE, {"type": "null"}], "default": None},
        {"allOf": [REFERENCE]},
        {"type": "array", "items": REFERENCE},
        {"type": "object", "properties": {"deep": REFERENCE}},
    ],
)
@pytest.mark.parametrize("where", ["$defs", "definitions"])
def test_the_fields_behind_a_reference_are_in_the_prompt_of_every_template_with_tools(shared_assets, parameter, where):
    parameter = json.loads(json.dumps(parameter).replace("$defs", where))
    schema = with_parameter(parameter, **{where: {"Period": PERIOD}})
    for path, prompt in real_prompts(shared_assets).items():
        if prompt.capabilities["default"].tools:
            text = prompt.prepare(asked(ASK, [tool(schema)])).text
            assert all(word in text for word in ("kind", "week", "month")), path.stem


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": None, "required": None},
        {"type": "object", "properties": {"aaa": {"type": "string"}}, "required": None},
        {"type": "object", "properties": {"aaa": {"type": ["string", "null"], "description": "d"}}},
        {"type": "object", "properties": {"aaa": {"type": "array", "items": {"type": ["string", "integer"]}}}},
        {
            "type": "object",
            "properties": {"aaa": {"type": "object", "properties": {"b": {"type": ["null", "number"]}}}},
        },
        {"type": "object", "properties": {"aaa": {"description": "no type"}, "bbb": True}},
    ],
)
def test_a_schema_that_leaves_things_out_is_served_by_every_template_with_tools(shared_assets, parameters):
    for path, prompt in real_prompts(shared_assets).items():
        if prompt.capabilities["default"].tools:
            text = prompt.prepare(asked(ASK, [tool(parameters)])).text
            assert "sales" in text, path.stem
            assert "None" not in text.replace("NoneType", ""), path.stem
            assert ("aaa" in text) == ("aaa" in json.dumps(parameters)), path.stem


def test_a_schema_that_the_template_shows_goes_through_as_it_was_sent(make_prompt):
    schema = with_parameter({"anyOf": [REFERENCE, {"type": "null"}], "default": None}, **{"$defs": {"Period": PERIOD}})
    prepared = make_prompt(PLAIN).prepare(asked(ASK, [tool(schema)]))
    assert json.dumps(schema) in prepared.text
    assert prepared.normalizations == ()


def test_recursion_is_bounded():
    tree = {"type": "object", "description": "a tree", "properties": {"left": {"$ref": "#/$defs/T"}}}
    whole = inlined({"$ref": "#/$defs/T", "$defs": {"T": tree}})
    assert whole["properties"]["left"] == {"type": "object", "description": "a tree"}
    itself = inlined({"type": "object", "properties": {"again": {"$ref": "#"}}})
    assert not has_references(itself)
    doubling = {
        f"d{n}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{n + 1}"} for k in "ab"}} for n in range(40)
    }
    assert len(json.dumps(inlined({"$ref": "#/$defs/d0", "$defs": doubling}))) < 50_000


def test_a_reference_to_nothing_here_stays():
    for schema in ({"$ref": "https://x.test/a.json"}, {"$ref": "#/$defs/none"}, {"$ref": 5}):
        assert inlined(schema) == schema


def test_a_parameter_that_only_looks_like_a_keyword_is_a_parameter():
    schema = with_parameter(REFERENCE, **{"$defs": {"Period": PERIOD}})
    schema["properties"]["$ref"] = {"type": "string"}
    schema["properties"]["required"] = {"type": ["string", "null"]}
    assert inlined(schema)["properties"]["$ref"] == {"type": "string"}
    assert without_nulls({"properties": {"type": {"default": None}}}) == {"properties": {"type": {"default": None}}}
    assert "type" in split_types(schema)["properties"]["required"]["anyOf"][0]
    assert described(schema)["properties"]["$ref"] == {"type": "string"}


@given(
    st.recursive(
        st.fixed_dictionaries({"type": st.sampled_from(["string", "null", "integer"])}),
        lambda inner: st.one_of(
            st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
            st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(["a", "$ref", "type"]), inner)}),
            st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        ),
    )
)
def test_what_needs_no_change_is_the_same_object(schema):
    assert without_nulls(schema) is schema
    assert split_types(schema) is schema
    assert not has_references(schema)


def test_an_error_that_a_tool_causes_names_it(make_prompt):
    source = PLAIN + "{% for t in tools or [] %}{{ t.function.parameters.properties.x.type + '' }}{% endfor %}"
    right = {"type": "object", "properties": {"x": {"type": "string"}, "probekey": {"type": "string"}}}
    prompt = make_prompt(source)
    for place, tools in enumerate(([tool(5)], [tool(right), tool({"properties": {"x": {"type": 5}}}, "other")])):
        with pytest.raises(PromptError) as caught:
            prompt.prepare(asked(ASK, tools))
        assert caught.value.param == f"tools[{place}].function.parameters"


@pytest.mark.parametrize("references", ["inlined", "described"])
@pytest.mark.parametrize("steps", [1, 20], ids=["shallow", "too deep once its definitions are in place"])
def test_a_schema_that_is_too_deep_to_be_looked_through_goes_through_as_it_stands(
    references: References, steps: int
) -> None:
    tool, notes = deep_behind_references(levels=80, steps=steps), dict[str, None]()
    (shown,) = declare_tools([tool], TemplateCapabilities(references=references), notes)
    assert (shown == tool) == (steps == 20)
    assert (notes == {}) == (steps == 20)
