"""Laws of the items of a response: cuts change nothing, and a stream adds up to what the whole response says."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from paraserve.api.decoders.response_tools import ClientTool
from paraserve.api.encoders.custom_input import CustomInput
from paraserve.api.encoders.response_items import ItemForm, tokens_of
from paraserve.api.encoders.responses import ResponseForm, ResponsesFold, ResponsesStream
from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.generation.events import ChoiceEnd, FinishReason, GeneratedToken, ReplyDelta, ReplyEvent, Usage
from paraserve.protocol.responses import ResponseObject
from tests.api.responses_kit import accumulated, events, without_ids

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def pieces(text: str, cuts: list[int]) -> list[str]:
    ends = [*sorted({cut % len(text) for cut in cuts} - {0}), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@st.composite
def replies(draw: st.DrawFn) -> tuple[list[list[FormatEvent]], list[list[FormatEvent]], FinishReason]:
    """The same reply, cut twice, and how it ended."""
    both: tuple[list[FormatEvent], list[FormatEvent]] = ([], [])
    calls = 0
    kinds = draw(st.lists(st.sampled_from(["reasoning", "content", "call", "custom"]), max_size=5))
    cut_last = draw(st.booleans())
    for place, kind in enumerate(kinds):
        text = draw(TEXTS)
        named = {"input": text} if kind == "custom" else {"a": text}
        arguments = json.dumps(named, ensure_ascii=draw(st.booleans()))
        last = place == len(kinds) - 1
        for reply in both:
            cuts = draw(st.lists(st.integers(0, 60), max_size=4))
            if kind in ("reasoning", "content"):
                delta = ReasoningDelta if kind == "reasoning" else ContentDelta
                reply += [delta(piece) for piece in pieces(text, cuts)]
                continue
            reply.append(ToolCallStart(calls, f"functions.f:{calls}", "patch" if kind == "custom" else "f"))
            shown = arguments[: len(arguments) // 2] if last and cut_last else arguments
            reply += [ToolCallDelta(calls, piece) for piece in pieces(shown, cuts)]
            if not (last and cut_last):
                reply.append(ToolCallEnd(calls))
        calls += kind in ("call", "custom")
    steps = [[[event] for event in reply] for reply in both]
    if draw(st.booleans()):  # everything in one step
        steps[1] = [both[1]]
    return steps[0], steps[1], "length" if cut_last else "stop"


def form() -> ResponseForm:
    tools = {"patch": ClientTool("patch", custom=True), "f": ClientTool("bare", "space")}
    items = ItemForm(suffix="0", token_bytes=lambda _: b"", tools=tools, seal=str.upper, summaries=True)
    return ResponseForm(ResponseObject(id="resp_0", created_at=0, model="toy"), items)


def of(steps: list[list[FormatEvent]], reason: FinishReason) -> list[ReplyEvent]:
    deltas = [ReplyDelta(0, step, (), 0, 0) for step in steps]
    return [*deltas, ChoiceEnd(0, reason, None), Usage(1, 2, 1, None)]


@given(replies())
def test_a_reply_is_the_same_whole_streamed_and_however_it_was_cut(
    reply: tuple[list[list[FormatEvent]], list[list[FormatEvent]], FinishReason],
) -> None:
    first, second, reason = reply
    stream, fold = ResponsesStream(form()), ResponsesFold(form())
    body = stream.begin() + b"".join(map(stream.encode, of(first, reason))) + stream.end()
    for event in of(second, reason):
        fold.take(event)
    whole: dict[str, Any] = msgspec.json.decode(fold.response())
    streamed = accumulated(events(body.decode()))
    assert without_ids(streamed) == without_ids(whole)
    assert [item["id"] for item in streamed["output"]] == [item["id"] for item in whole["output"]]
    assert [item["status"] for item in whole["output"][:-1]] == ["completed"] * (len(whole["output"]) - 1)


@given(st.text(), st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_a_custom_input_is_what_the_arguments_hold(text: str, cuts: list[int], ascii_only: bool) -> None:
    text = text.encode("utf-8", "replace").decode()
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    reader = CustomInput()
    shown = "".join(map(reader.feed, pieces(arguments, cuts)))
    assert shown + reader.end() == text


def test_a_custom_input_under_another_name_is_found_at_the_end() -> None:
    for arguments, text in [
        ('{"patch": "x"}', "x"),
        ('{"note": 1, "input": "x"}', "x"),
        ("{}", ""),
        ('{"a": "x", "b": "y"}', '{"a": "x", "b": "y"}'),
        ("[" * 100_000, "[" * 100_000),
        (r'{"input": "\ud83d"}', "\ufffd"),
        (r'{"input": "\ud83d\ude00", "more": 1}', "\U0001f600"),
    ]:
        reader = CustomInput()
        assert reader.feed(arguments) + reader.end() == text


def test_tokens_belong_to_the_text_that_they_spell() -> None:
    def token(text: str) -> GeneratedToken:
        return GeneratedToken(0, text, 0.0, ())

    for text, before, shown, behind in [
        ("ab", [], ["a", "b"], []),
        ("ab", ["</think>", "\n\n"], ["a", "b"], ["<tool_call>"]),
        ("ab", ["</think>"], ["\n\nab"], []),
        ("é", ["x"], ["", "é"], []),
        ("ab", [], ["a", "b<"], []),
        ("ab", [], ["ab"], ["cd"]),
    ]:
        found = tokens_of(text, [token(piece) for piece in [*before, *shown, *behind]])
        assert [[piece.text for piece in part] for part in found] == [shown, behind]
