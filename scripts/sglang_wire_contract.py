"""The engine contract, and what the adapter keeps from the schedulers, before a real SGLang without its HTTP server:
``pytest scripts/sglang_wire_contract.py``.

``PARASERVE_WIRE_ADDRESS`` is what ``sglang_wire_engine.py`` has written, ``PARASERVE_GREEDY`` is as in
``real_contract.py``. ``scripts/e2e-sglang.sh`` makes all of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from real_contract import EOS, REPLIES, VOCAB, RealEngineContract, case_of

from paraserve.engines.base import EngineError, Sampling
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.wire import HEALTH_CHECK, SGLangWireEngine
from tests.engines.contract import Chunks, EngineCase, collect, ids_of
from tests.engines.remote_faults import ask
from tests.engines.wire_rules import deadly

ADDRESS = msgspec.json.decode(Path(os.environ["PARASERVE_WIRE_ADDRESS"]).read_bytes(), type=EngineAddress)
FACTS = ModelFacts(VOCAB, eos_token_ids=frozenset({EOS}))


class Idle(SGLangWireEngine):
    """Knows whether the schedulers have nothing else to do: only then they make a probe's token, and answer it else
    without."""

    made = 0

    def _read(self, frames: list[bytes]) -> None:
        self.made += any(name.startswith(HEALTH_CHECK) for name in self._messages.read_batch(frames[0]).rids)
        super()._read(frames)


@pytest.fixture
async def case() -> AsyncIterator[EngineCase]:
    engine = Idle(ADDRESS, FACTS)
    await engine.start()

    async def running() -> int:
        before = engine.made
        await engine.probe()
        return int(engine.made == before)

    yield case_of(engine, running)
    await engine.stop()


class TestRealSGLangWire(RealEngineContract):
    pass


async def test_what_the_scheduler_would_not_check_is_not_sent(case: EngineCase) -> None:
    context, longest = case.engine.info.context_length, case.engine.info.max_prompt_tokens
    assert longest is not None
    for request, param in deadly(VOCAB, context):
        with pytest.raises(EngineError) as caught:
            await collect(case.engine, request)
        assert (caught.value.status, caught.value.param) == (400, param)
    assert (await case.engine.health()).ok
    assert len(ids_of(await collect(case.engine, ask([5] * min(longest, context - 1), 1)))) == 1


async def test_extreme_values_that_are_allowed_are_survived(case: EngineCase) -> None:
    for sampling in (
        Sampling(3, temperature=50.0, top_p=1e-6, top_k=1, min_p=1.0, seed=-(2**63)),
        Sampling(3, 1e-9, presence_penalty=2.0, frequency_penalty=-2.0, repetition_penalty=1e-3, seed=2**63 - 1),
        Sampling(3, 0.001, top_k=2**30, min_tokens=3, seed=-1, logit_bias={VOCAB - 1: 100.0, 0: -100.0}),
        Sampling(3, temperature=1.0, stop_token_ids=tuple(range(100, 300))),
        Sampling(3, temperature=1.0, repetition_penalty=2.0),
    ):
        assert 1 <= len(ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=sampling)))) <= 3
    assert (await case.engine.health()).ok


async def test_a_stop_id_is_found_where_end_tokens_are_ignored(case: EngineCase) -> None:
    free = ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=Sampling(12, 0.0, ignore_eos=True))))
    sampling = Sampling(12, 0.0, ignore_eos=True, stop_token_ids=(free[4],))
    chunks = await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=sampling))
    assert ids_of(chunks) == free[: free.index(free[4]) + 1]


@pytest.mark.parametrize("top", [0, 1, 20])
async def test_scores_are_those_of_the_engine_and_of_the_prompt(case: EngineCase, top: int) -> None:
    prompt = REPLIES[0]["prompt"]
    first, *_ = await collect(case.engine, ask(prompt, 2, logprobs=top, prompt_logprobs=True))
    entry, *_ = first.logprobs or ()
    assert len(entry.top) == top
    assert entry.token_id == first.token_ids[0]
    if top:
        best, value = entry.top[0]
        assert best == entry.token_id
        assert value == pytest.approx(entry.logprob, abs=1e-5)
    none, *scored = first.prompt_logprobs or ()
    assert none is None
    assert [score and score.token_id for score in scored] == prompt[1:]
    assert {len(score.top) for score in scored if score} == {top}


async def test_a_front_end_in_the_place_of_one_that_was_killed_leaves_nothing(case: EngineCase) -> None:
    engine = case.engine
    assert isinstance(engine, SGLangWireEngine)
    chunks = Chunks(engine, ask(REPLIES[0]["prompt"], sampling=Sampling(2000, 0.0, ignore_eos=True)))
    await anext(chunks)
    engine.runs.clear()
    await engine.stop()
    again = Idle(ADDRESS, FACTS)
    await again.start()
    for _ in range(200):
        before = again.made
        await again.probe()
        if again.made > before:
            break
        await asyncio.sleep(0.05)
    assert again.made
    await again.stop()
    await engine.start()
