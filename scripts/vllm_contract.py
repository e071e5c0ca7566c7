"""The engine contract, and vLLM's own facts, against a real vLLM server: ``pytest scripts/vllm_contract.py``.

``PARASERVE_VLLM_URL`` says where it listens, ``PARASERVE_GREEDY`` is as in ``real_contract.py``.
``scripts/e2e-vllm.sh`` makes all of it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from uuid import uuid4

import pytest
from real_contract import EOS, REPLIES, VOCAB, RealEngineContract, case_of

from paraserve.engines.base import EngineError, EngineRequest, RoutingHints, Sampling
from paraserve.engines.http.generation import EventDecoder
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.vllm.engine import VLLMEngine
from paraserve.generation.plan import engine_name
from tests.engines.contract import Chunks, EngineCase, collect, idle
from tests.engines.remote_faults import ask
from tests.engines.vllm_rules import Served, VLLMRules
from tests.fakes.vllm_checks import Limits

URL = os.environ["PARASERVE_VLLM_URL"]


@pytest.fixture
async def case() -> AsyncIterator[EngineCase]:
    engine = VLLMEngine(URL, ModelFacts(VOCAB, eos_token_ids=frozenset({EOS})))
    await engine.start()

    async def running() -> int:
        told = (await engine.http.get("/metrics")).body.decode()
        found = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([0-9.e+]+)$", told, re.MULTILINE)
        assert found
        return int(sum(map(float, found)))

    yield case_of(engine, running)
    await engine.stop()


class TestRealVLLM(RealEngineContract):
    pass


class TestRealVLLMRules(VLLMRules):
    @pytest.fixture
    async def server(self, case: EngineCase) -> Served:
        engine = case.engine
        assert isinstance(engine, VLLMEngine)
        return Served(engine.http, Limits(vocab=VOCAB, max_model_len=engine.info.context_length))


class Watched(VLLMEngine):
    """Keeps the decoders, which know the names that vLLM gave."""

    def __init__(self) -> None:
        super().__init__(URL, ModelFacts(VOCAB, eos_token_ids=frozenset({EOS})))
        self.decoders: list[EventDecoder] = []

    def decoder(self, request: EngineRequest) -> EventDecoder:
        self.decoders.append(super().decoder(request))
        return self.decoders[-1]


async def test_abort_finds_one_of_two_generations_whose_clients_share_an_id(case: EngineCase) -> None:
    """By the name that vLLM gives, which has its prefix, ours and the client's id. No other one does anything, though
    it is answered 200."""
    engine = Watched()
    await engine.start()
    hints = RoutingHints(headers={"x-request-id": "job_7"})
    sampling = Sampling(1500, temperature=0.0, ignore_eos=True)
    names = [engine_name(f"chatcmpl-{uuid4().hex}", 0, "job_7") for _ in range(2)]
    requests = [EngineRequest(name, REPLIES[0]["prompt"], sampling, routing=hints) for name in names]
    async with aclosing(Chunks(engine, requests[0])) as stays, aclosing(Chunks(engine, requests[1])) as leaves:
        await asyncio.gather(anext(stays), anext(leaves))
        assert [decoder.name for decoder in engine.decoders] == [f"generate-tokens-{name}" for name in names]
        await engine.http.post(engine.abort_path, {"request_ids": [*names, "job_7", "generate-tokens-job_7"]})
        await asyncio.gather(anext(stays), anext(leaves))
        assert await case.running() == 2
        await engine.http.post(engine.abort_path, engine.abort_body(engine.name(requests[1])))
        ends = [chunk.finish async for chunk in leaves if chunk.finish is not None]
        assert [end.reason for end in ends] == ["abort"]
        for _ in range(50):  # the metric lags behind
            await anext(stays)
            if await case.running() == 1:
                break
        assert await case.running() == 1
    assert await idle(case)
    await engine.stop()


async def test_unknown_model_is_the_clients_error(case: EngineCase) -> None:
    with pytest.raises(EngineError) as caught:
        await collect(case.engine, ask(REPLIES[0]["prompt"], routing=RoutingHints(lora="nobody")))
    assert (caught.value.status, caught.value.param) == (404, "model")
