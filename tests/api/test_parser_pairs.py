"""Every pair of a reasoning parser and a tool-call parser starts or is refused with a reason.

One that starts serves requests with tools and without: no pair may fail when a client comes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from paraserve.deployment import Deployment
from paraserve.formats.families import FORMATS
from paraserve.formats.registry import format_names, get_format
from paraserve.formats.spec import PLAIN, Format, compose
from paraserve.formats.types import ReplyStart
from paraserve.start_error import StartError
from tests.api.wire import chunks, folded, post, unfolded
from tests.formats.formats_kit import kind_of, parse
from tests.formats.render import Call, render_calls
from tests.toy import client, deployment, engine, reply

RUN = {"type": "function", "function": {"name": "list_shelves", "parameters": {"type": "object", "properties": {}}}}


def composed(reasoning: Format, tools: Format) -> Format | None:
    try:
        return compose(reasoning, tools)
    except ValueError:
        return None


def said(format: Format) -> str:
    """A thought, words and a call, as the two halves write them."""
    block, call = format.reasoning, Call("list_shelves", {}, "abcDEF123" if format.ids == "nine" else "")
    thought = f"{block.open}{block.open_after}hm{block.close_before}{block.close}{block.close_after}" if block else ""
    return f"{thought}Well.{render_calls(format, [call]) if format.calls and not format.channels else ''}"


def test_every_pair_is_one_format_or_is_refused_with_a_reason() -> None:
    names = {part: {name: get_format(name, part) for name in format_names(part)} for part in ("reasoning", "tools")}
    for (one, reasoning), (other, tools) in product(names["reasoning"].items(), names["tools"].items()):
        format = composed(reasoning, tools)
        assert format is None or (format.reasoning, format.calls) == (reasoning.reasoning, tools.calls), (one, other)
        assert format is not None or reasoning != tools, (one, other)


def test_a_pair_that_is_refused_is_named_with_its_flags() -> None:
    with pytest.raises(
        StartError, match=r"^--reasoning-parser, --tool-call-parser: format 'gpt_oss' cannot be combined"
    ):
        deployment(engine(), reasoning_parser="gpt_oss", tool_call_parser="hermes")


REASONING = {format.reasoning: format for format in reversed(FORMATS)}.values()
"""One of each way to reason; what else differs in a pair is its calls."""


@pytest.mark.heavy
@pytest.mark.parametrize("tools", FORMATS, ids=lambda format: format.name)
def test_what_every_pair_reads_does_not_depend_on_how_it_came(tools: Format) -> None:
    for reasoning in REASONING:
        if (format := composed(reasoning, tools)) is None:
            continue
        for start in ReplyStart:
            whole, parser = parse(format, said(format), start=start)
            cut, cut_parser = parse(format, list(said(format)), start=start)
            assert cut.comparable == whole.comparable != ("", "", []), format.name
            assert cut_parser.broken_calls == parser.broken_calls, format.name


def pairs() -> list[Any]:
    """A name of each kind for both; the machine takes the same way for all pairs of two kinds."""
    ways = {(format.reasoning is None, format.channels is None, not format.frame_markers): format for format in FORMATS}
    kinds = {kind_of(format): format for format in FORMATS}
    names = ([*(format.name for format in made.values()), "none"] for made in (ways, kinds))
    return [
        pytest.param(*pair, marks=() if turn % 6 == 0 else pytest.mark.heavy)
        for turn, pair in enumerate(product(*names))
    ]


def started(reasoning: str, tools: str, text: str) -> Deployment | None:
    try:
        return deployment(engine(reply(text)), reasoning_parser=reasoning, tool_call_parser=tools)
    except StartError:
        return None


@pytest.mark.parametrize(("reasoning", "tools"), pairs())
async def test_a_pair_that_starts_serves_requests_with_tools_and_without(reasoning: str, tools: str) -> None:
    format = composed(*(PLAIN if name == "none" else get_format(name) for name in (reasoning, tools)))
    served = started(reasoning, tools, said(format) if format else "")
    assert (served is None) == (format is None)
    if served is None:
        return
    async with client(served) as http:
        for fields in ({}, {"tools": [RUN]}, {"tools": [RUN], "tool_choice": "none"}):
            whole, streamed = [await post(http, stream=stream, **fields) for stream in (False, True)]
            assert whole.status_code == streamed.status_code, whole.text
            assert whole.status_code < 500, whole.text
            if whole.status_code == 200:
                (one,), (other,) = unfolded(whole.json()).values(), folded(chunks(streamed.text)).values()
                for choice in (one, other):
                    choice["tool_calls"] = [(call["name"], call["arguments"]) for call in choice["tool_calls"]]
                    choice.pop("logprobs", None)
                assert one == other
