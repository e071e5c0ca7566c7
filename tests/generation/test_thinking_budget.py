"""Reasoning ends where its budget does, however the engine's tokens came together."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.engines.base import Engine, EngineRequest, Generation, Sampling, Sink
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.generation.thinking_budget import ThinkingBudget
from tests.engines.contract import Chunks, ids_of
from tests.toy import END, TOKENIZER, engine, reply

CLOSE = TOKENIZER.encode("</think>")
CUTS: list[dict[str, Any]] = [{}, {"chunk_sizes": (3,)}, {"chunk_sizes": (1, 50)}, {"burst": 7}, {"burst": 1000}]


class Budgeted:
    """An engine as the run sees it through a budget."""

    def __init__(self, engine: Engine, tokens: int, opens: str) -> None:
        self.engine = engine
        self.budget = ThinkingBudget(
            tokens=tokens,
            open=opens,
            close="</think>",
            close_ids=CLOSE,
            constraint=None,
            token_bytes=TOKENIZER.token_bytes,
        )

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        return self.budget.submit(self.engine, request, sink)


async def said(scripted: ScriptedEngine, tokens: int, *, opens: str = "", max_tokens: int = 200) -> str:
    chunks = Chunks(Budgeted(scripted, tokens, opens), EngineRequest("r", [1], Sampling(max_tokens)))  # type: ignore[arg-type]
    ids = ids_of([chunk async for chunk in chunks])
    assert (chunks.ends, chunks.breaches) == ([None], [])
    assert scripted.running == 0
    return TOKENIZER.decode([token for token in ids if token != END])


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(
    ("first", "opens", "tokens", "expected"),
    [
        ("abcdefgh</think>never", "", 5, "abcde</think>Yes."),
        ("abcdefgh", "", 5, "abcde</think>Yes."),
        ("abc</think>Then this.", "", 5, "abc</think>Then this."),
        ("abcd</think>Then this.", "", 5, "abcd</think>Then this."),
        ("abcde", "", 5, "abcde"),
        ("<think>abcdefgh</think>never", "<think>", 5, "<think>abcd</think>Yes."),
        ("No thought at all, but words.", "<think>", 20, "No thought at all, but words."),
    ],
)
async def test_reasoning_is_cut_at_its_budget_and_only_there(
    cut: dict[str, Any], first: str, opens: str, tokens: int, expected: str
) -> None:
    scripted = engine(reply(first, **cut), reply("Yes.", **cut))
    if expected == "abcde":  # the last of the budget and the end come one behind the other, or together
        assert await said(scripted, tokens) in ("abcde", "abcde</think>Yes.")
    else:
        assert await said(scripted, tokens, opens=opens) == expected


async def test_where_no_room_is_left_behind_the_budget_nothing_is_cut() -> None:
    assert await said(engine(reply("abcdefgh"), reply("never")), 5, max_tokens=6) == "abcdef"


async def test_the_answer_goes_on_behind_what_was_said_within_what_is_left() -> None:
    scripted = engine(reply("abcdefgh"), reply("Yes."))
    await said(scripted, 5, max_tokens=20)
    first, second = scripted.requests
    assert second.token_ids == [*first.token_ids, *TOKENIZER.encode("abcde"), *CLOSE]
    assert second.sampling.max_tokens == 20 - 5 - len(CLOSE)
    assert scripted.aborted == [first.request_id]
