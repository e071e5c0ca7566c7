"""What is enforced, in which form, and what is refused instead of dropped."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from paraserve.engines.base import Constraint, ConstraintKind, EngineInfo
from paraserve.formats.registry import get_format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.generation.constraint import CACHED_GRAMMARS, AskedGrammar, ConstraintBuilder, InThread, Wanted
from paraserve.grammar import GrammarError
from paraserve.protocol.errors import RequestError
from paraserve.protocol.sampling import ResponseFormat
from tests.waiting import PATIENCE

SCHEMA = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}
WEATHER = ToolSpec("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}})
GRAMMARS: list[ConstraintKind] = ["structural_tag", "lark", "ebnf"]
ALL_STARTS = list(ReplyStart)


def response_format(schema: Any = None) -> ResponseFormat:
    body: dict[str, Any] = {"type": "json_object"}
    if schema is not None:
        body = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    return msgspec.convert(body, ResponseFormat)


def builder(*kinds: ConstraintKind, format: str = "qwen3", lenient: bool = False, **info: Any) -> ConstraintBuilder:
    facts = EngineInfo(context_length=100, vocab_size=10, constraints=frozenset(kinds), **info)
    return ConstraintBuilder(get_format(format), facts, {}, lenient=lenient)


async def build(made: ConstraintBuilder, wanted: Wanted, in_thread: InThread = asyncio.to_thread) -> Constraint | None:
    asked = made.asked(wanted)
    return await made.written(asked, in_thread) if isinstance(asked, AskedGrammar) else asked


async def built(*kinds: ConstraintKind, format: str = "qwen3", info: Any = None, **wanted: Any) -> Constraint | None:
    return await build(builder(*kinds, format=format, **(info or {})), Wanted(**wanted))


async def refused(*kinds: ConstraintKind, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await built(*kinds, **fields)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("wanted", [{}, {"tools": [WEATHER], "choice": "auto"}, {"tools": [], "choice": "none"}])
async def test_nothing_is_enforced_where_nothing_was_asked(wanted: dict[str, Any]) -> None:
    assert await built(*GRAMMARS, **wanted) is None
    text = msgspec.convert({"type": "text"}, ResponseFormat)
    assert await built(*GRAMMARS, response_format=text, **wanted) is None


@pytest.mark.parametrize("kind", GRAMMARS)
@pytest.mark.parametrize("start", ALL_STARTS)
@pytest.mark.parametrize(
    "wanted",
    [
        {"response_format": response_format(SCHEMA)},
        {"response_format": response_format()},
        {"tools": [WEATHER], "choice": "required"},
        {"tools": [WEATHER], "choice": "get_weather"},
        {"tools": [ToolSpec("f", {}, strict=True)], "choice": "auto"},
    ],
)
async def test_a_grammar_describes_the_reasoning_itself_whenever_there_may_be_any(
    kind: ConstraintKind, start: ReplyStart, wanted: dict[str, Any]
) -> None:
    for deferring in (False, True):
        constraint = await built(kind, start=start, info={"defers_constraints": deferring}, **wanted)
        assert constraint is not None
        assert constraint.kind == kind
        assert constraint.covers_reasoning == (start is not ReplyStart.CONTENT)
        assert ("</think>" in constraint.value) >= (start is ReplyStart.REASONING)


@pytest.mark.parametrize("kind", GRAMMARS)
async def test_a_schema_and_tools_are_both_allowed_for(kind: ConstraintKind) -> None:
    wanted = {"response_format": response_format(SCHEMA), "tools": [WEATHER], "choice": "auto"}
    constraint = await built(kind, start=ReplyStart.CONTENT, **wanted)
    assert constraint is not None
    assert "get_weather" in constraint.value
    assert "temp" in constraint.value


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({"tools": [WEATHER], "choice": "required"}, "tool_choice"),
        ({"tools": [ToolSpec("f", {}, strict=True)], "choice": "auto"}, "tools"),
        ({"response_format": response_format(SCHEMA), "tools": [WEATHER], "choice": "auto"}, "response_format"),
        ({"regex": "a"}, "regex"),
        ({"ebnf": "root ::= 'a'"}, "ebnf"),
    ],
)
async def test_an_engine_without_grammars_refuses_what_it_would_drop(wanted: dict[str, Any], param: str) -> None:
    error = await refused("json_schema", "json_object", start=ReplyStart.CONTENT, **wanted)
    assert (error.param, error.code) == (param, "unsupported_parameter")


async def test_an_engine_without_grammars_is_given_schemas_in_its_own_kind() -> None:
    schema = await built("json_schema", response_format=response_format(SCHEMA), start=ReplyStart.CONTENT)
    assert schema is not None
    assert (schema.kind, json.loads(schema.value)) == ("json_schema", SCHEMA)
    anything = await built("json_object", response_format=response_format(), start=ReplyStart.CONTENT)
    assert anything == Constraint("json_object", "", param="response_format")


@pytest.mark.parametrize("field", ["regex", "ebnf"])
async def test_a_clients_own_pattern_never_meets_the_reasoning(field: ConstraintKind) -> None:
    """It applies when the reasoning is over, or where the engine waits for an end that is sure to come."""
    assert await built(field, start=ReplyStart.CONTENT, **{field: "x"}) == Constraint(field, "x", param=field)
    assert await built(field, format="hermes", **{field: "x"}) == Constraint(field, "x", param=field)
    waiting = {"defers_constraints": True}
    assert await built(field, start=ReplyStart.REASONING, info=waiting, **{field: "x"}) is not None
    for start, info in ((ReplyStart.REASONING, {}), (ReplyStart.HEADER, {}), (ReplyStart.HEADER, waiting)):
        assert (await refused(field, start=start, info=info, **{field: "x"})).param == field


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({"response_format": response_format({"type": "object", "properties": {"a": {"not": {}}}})}, "response_format"),
        ({"response_format": response_format({"$ref": "#/$defs/gone"})}, "response_format"),
        (
            {
                "tools": [ToolSpec("f", {"type": "object", "properties": {"a": {"not": {}}}}, strict=True)],
                "choice": "auto",
            },
            "tools[0].function.parameters.properties.a",
        ),
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_named(wanted: dict[str, Any], param: str) -> None:
    error = await refused("lark", **wanted)
    assert (error.param, error.code) == (param, "unsupported_schema")


async def test_the_operator_may_have_such_keywords_dropped() -> None:
    loose = Wanted(response_format=response_format({"type": "object", "properties": {"a": {"not": {}}}}))
    assert await build(builder("lark", lenient=True), loose) is not None


async def test_a_format_without_calls_cannot_be_forced_to_make_one() -> None:
    error = await refused("lark", format="plain", tools=[WEATHER], choice="required")
    assert "no tool calls" in error.message


async def test_the_same_tools_are_written_once_and_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = builder("lark")
    written: list[Wanted] = []
    write = made._write
    monkeypatch.setattr(made, "_write", lambda wanted, target: written.append(wanted) or write(wanted, target))
    for _ in range(3):
        await build(made, Wanted(tools=[WEATHER], choice="required"))
    assert len(written) == 1
    for number in range(CACHED_GRAMMARS + 5):
        await build(made, Wanted(tools=[ToolSpec(f"f{number}")], choice="required"))
    assert len(made._cache) == CACHED_GRAMMARS


@pytest.mark.parametrize("field", ["regex", "ebnf"])
@pytest.mark.parametrize(
    ("tool", "choice"),
    [
        (WEATHER, "required"),
        (WEATHER, "get_weather"),
        (ToolSpec(WEATHER.name, WEATHER.parameters, True), "auto"),
    ],
)
async def test_an_expression_beside_a_call_that_must_be_made_is_refused(
    field: str, tool: ToolSpec, choice: str
) -> None:
    fields = {"start": ReplyStart.CONTENT, "tools": [tool]}
    error = await refused(*GRAMMARS, "regex", choice=choice, **{field: "a"}, **fields)
    assert error.param == field


@pytest.mark.parametrize("field", ["regex", "ebnf"])
async def test_an_expression_beside_tools_that_may_be_called_is_what_the_reply_matches(field: str) -> None:
    made = await built(*GRAMMARS, "regex", choice="auto", start=ReplyStart.CONTENT, tools=[WEATHER], **{field: "a"})
    assert made is not None
    assert (made.kind, made.value) == (field, "a")


LONG = {"type": "object", "properties": {f"p{number}": {"type": "string", "format": "date"} for number in range(50)}}


@pytest.mark.parametrize("kind", GRAMMARS)
async def test_a_grammar_that_takes_too_long_is_refused(kind: ConstraintKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paraserve.grammar.limits.WRITING_SECONDS", 0.0)
    error = await refused(kind, response_format=response_format(LONG))
    assert (error.code, error.param) == ("unsupported_schema", "response_format")
    assert "longer than" in error.message
    error = await refused(kind, tools=[ToolSpec("f", LONG)], choice="required")
    assert error.param == "tool_choice"


async def test_writing_ends_when_nobody_waits_for_it_and_leaves_no_trace() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(write: Callable[[], str | None]) -> str | None:
        begun.set()
        assert go_on.wait(PATIENCE)
        try:
            return write()
        except GrammarError:
            ended.set()
            raise

    async def in_thread(write: Callable[[], str | None]) -> str | None:
        return await asyncio.to_thread(slow, write)

    made, wanted = builder("lark"), Wanted(response_format=response_format(LONG))
    left = asyncio.ensure_future(build(made, wanted, in_thread))
    await asyncio.to_thread(begun.wait, PATIENCE)
    left.cancel()
    await asyncio.wait({left})
    go_on.set()
    assert await asyncio.to_thread(ended.wait, PATIENCE)
    assert await build(made, wanted) is not None
