"""The engine contract, and SGLang's own rules, against a real SGLang: ``pytest scripts/sglang_contract.py``.

``PARASERVE_SGLANG_URL`` says where it listens, ``PARASERVE_SGLANG_CONTEXT`` how long the model's context is, and
``PARASERVE_GREEDY`` is as in ``real_contract.py``. ``scripts/e2e-sglang.sh`` makes all of it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from real_contract import EOS, REPLIES, VOCAB, RealEngineContract, case_of

from paraserve.engines.base import EngineError, Sampling
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from tests.engines.contract import EngineCase, collect, ids_of
from tests.engines.remote_faults import ask
from tests.engines.sglang_rules import Served, SGLangRules

URL = os.environ["PARASERVE_SGLANG_URL"]
CONTEXT = int(os.environ["PARASERVE_SGLANG_CONTEXT"])


@asynccontextmanager
async def connected() -> AsyncIterator[SGLangEngine]:
    engine = SGLangEngine(URL, ModelFacts(VOCAB, context_length=CONTEXT, eos_token_ids=frozenset({EOS})))
    await engine.start()
    yield engine
    await engine.stop()


class TestRealSGLang(RealEngineContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[EngineCase]:
        async with connected() as engine:

            async def running() -> int:
                loads = (await engine.http.get("/v1/loads")).json()["loads"]
                return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)

            yield replace(case_of(engine, running), abort_seconds=5.0)

    async def test_what_fits_by_our_count_is_served_whole_and_one_more_refused(self, case: EngineCase) -> None:
        context, longest = case.engine.info.context_length, case.engine.info.max_prompt_tokens
        assert longest is not None
        for prompt in (context - 40, min(longest, context - 1)):
            chunks = await collect(
                case.engine, self.request(case, [5] * prompt, sampling={"max_tokens": context - prompt})
            )
            assert len(ids_of(chunks)) == context - prompt
            with pytest.raises(EngineError, match="context"):
                await collect(
                    case.engine, self.request(case, [5] * prompt, sampling={"max_tokens": context - prompt + 1})
                )

    async def test_seed_is_claimed_only_where_it_repeats(self, case: EngineCase) -> None:
        sampling = Sampling(12, temperature=1.0, seed=7)
        replies = [ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=sampling))) for _ in range(2)]
        assert (replies[0] == replies[1]) is case.engine.info.seeds


class TestRealSGLangRules(SGLangRules):
    @pytest.fixture
    async def server(self) -> AsyncIterator[Served]:
        async with connected() as engine:
            yield Served(engine.http, (await engine.http.get("/server_info")).json(), CONTEXT)
