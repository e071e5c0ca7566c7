"""The engine contract, and what the adapter keeps from the core, before a real vLLM without its HTTP server:
``pytest scripts/vllm_wire_contract.py``.

``PARASERVE_WIRE_ADDRESS`` is what ``vllm_wire_engine.py`` has written, ``PARASERVE_GREEDY`` is as in
``real_contract.py``. ``scripts/e2e-wire.sh`` makes all of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from real_contract import EOS, REPLIES, VOCAB, RealEngineContract, case_of

from paraserve.engines.base import EngineError, RoutingHints, Sampling
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.vllm.wire import VLLMWireEngine
from tests.engines.contract import Chunks, EngineCase, collect, idle, ids_of
from tests.engines.remote_faults import ask
from tests.engines.wire_rules import deadly_to_vllm

ADDRESS = msgspec.json.decode(Path(os.environ["PARASERVE_WIRE_ADDRESS"]).read_bytes(), type=EngineAddress)
FACTS = ModelFacts(VOCAB, eos_token_ids=frozenset({EOS}))
assert ADDRESS.wire is not None
CONTEXT: int = ADDRESS.wire.facts["ready"]["max_model_len"]
ADAPTERS: list[str] = list(ADDRESS.wire.facts["loras"])


@pytest.fixture
async def case() -> AsyncIterator[EngineCase]:
    engine = VLLMWireEngine(ADDRESS, FACTS)
    await engine.start()

    async def running() -> int:
        return int(await engine.call("has_work"))

    yield case_of(engine, running)
    await engine.stop()


class TestRealVLLMWire(RealEngineContract):
    pass


async def test_what_the_core_would_not_survive_is_not_sent(case: EngineCase) -> None:
    for request, param in deadly_to_vllm(VOCAB, CONTEXT):
        with pytest.raises(EngineError) as caught:
            await collect(case.engine, request)
        assert (caught.value.status, caught.value.param) == (400, param)
    assert (await case.engine.health()).ok
    longest = ask([5] * (CONTEXT - 1), 1)
    assert len(ids_of(await collect(case.engine, longest))) == 1


async def test_extreme_values_that_are_allowed_are_survived(case: EngineCase) -> None:
    for sampling in (
        Sampling(3, temperature=2.0, top_p=1e-6, top_k=1, min_p=1.0, seed=-(2**63)),
        Sampling(3, 1e-9, presence_penalty=2.0, frequency_penalty=-2.0, repetition_penalty=1e-3, seed=2**63 - 1),
        Sampling(3, 0.001, top_k=2**31 - 1, min_tokens=3, seed=-1, logit_bias={VOCAB - 1: 100.0, 0: -100.0}),
        Sampling(3, temperature=1.0, stop_token_ids=tuple(range(100, 300))),
        Sampling(3, temperature=1.0, seed=0, repetition_penalty=1e6),
    ):  # fmt: skip
        assert 1 <= len(ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=sampling)))) <= 3
    assert (await case.engine.health()).ok


async def test_a_seed_repeats_a_reply(case: EngineCase) -> None:
    replies = [
        ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=Sampling(12, 1.5, seed=seed))))
        for seed in (7, 7, 8)
    ]
    assert replies[0] == replies[1] != replies[2]


async def test_end_tokens_are_held_back_for_min_tokens_and_written_over_when_ignored(case: EngineCase) -> None:
    for reply in (reply for reply in REPLIES if reply["ids"][-1] == EOS):
        length = len(reply["ids"])
        held = ask(reply["prompt"], sampling=Sampling(length + 8, 0.0, min_tokens=length + 4))
        ignored = ask(reply["prompt"], sampling=Sampling(length + 8, 0.0, ignore_eos=True))
        assert len(ids_of(await collect(case.engine, held))) >= length + 4
        assert len(ids_of(await collect(case.engine, ignored))) == length + 8


@pytest.mark.parametrize("top", [0, 1, 20])
async def test_scores_are_those_of_the_engine(case: EngineCase, top: int) -> None:
    (chunk,) = await collect(case.engine, ask(REPLIES[0]["prompt"], 1, logprobs=top))
    (entry,) = chunk.logprobs or ()
    assert len(entry.top) == top
    assert entry.token_id == chunk.token_ids[0]
    if top:
        assert entry.top[0] == (entry.token_id, entry.logprob)


async def test_two_front_ends_run_beside_each_other_and_one_that_was_killed_leaves_nothing(case: EngineCase) -> None:
    other = VLLMWireEngine(ADDRESS.of_worker(1), FACTS)
    await other.start()
    replies = await asyncio.gather(
        *(
            collect(engine, ask(reply["prompt"], 12))
            for reply, engine in zip(REPLIES, (case.engine, other), strict=False)
        )
    )
    for reply, got in zip(REPLIES, replies, strict=False):
        assert ids_of(got) == reply["ids"][:12]
    chunks = Chunks(other, ask(REPLIES[0]["prompt"], sampling=Sampling(2000, 0.0, ignore_eos=True)))
    await anext(chunks)
    other.runs.clear()
    await other.stop()
    assert await case.running()
    again = VLLMWireEngine(ADDRESS.of_worker(1), FACTS)
    await again.start()
    assert await idle(case)
    await again.stop()


@pytest.mark.skipif(not ADAPTERS, reason="the engine was started without adapters")
async def test_an_adapter_is_asked_for_by_its_name(case: EngineCase) -> None:
    plain, adapted, again = [
        ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], 8, routing=RoutingHints(lora=name))))
        for name in (None, ADAPTERS[0], None)
    ]
    assert plain == again != adapted


async def test_leaving_many_at_once_leaves_nothing(case: EngineCase) -> None:
    async def left(at: int) -> None:
        sampling = Sampling(1000, 0.0, ignore_eos=True)
        async with aclosing(Chunks(case.engine, ask([5 + at], sampling=sampling))) as chunks:
            await anext(chunks)

    await asyncio.gather(*(left(at) for at in range(40)))
    assert await idle(case)
