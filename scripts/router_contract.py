"""SGLang's adapter through the real sglang-router in front of scripted workers: ``pytest scripts/router_contract.py``.

The engine contract, what a router does to requests and replies, and the failures of either leg of a prefill/decode
pair, with the router's retries off and on. ``scripts/e2e-router.sh`` makes the router (``PARASERVE_ROUTER_PYTHON``).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
import pytest_asyncio
from real_router import CALM, Mode, Routed, router, started

from paraserve.engines.base import Constraint, MediaItem, RoutingHints, Sampling
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import PROMPT, Remote, ask, failure, long
from tests.fakes.sequences import SLOW, VOCAB, Behaviour
from tests.fakes.sglang_checks import SAMPLING_KEYS
from tests.fakes.sglang_fake import LOST, LOST_SAMPLING, FakeSGLang

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTICED = 2.0
"""Seconds after which SGLang itself ends a sequence whose client has left: routers have no aborts."""
FREED = NOTICED + 1.0
TOO_LONG = "The input is longer than the model's context length (4096 tokens)."


@dataclass
class Stage:
    routed: Routed
    engine: SGLangEngine
    at_start: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prefill(self) -> FakeSGLang:
        return self.routed.prefill

    @property
    def decode(self) -> FakeSGLang:
        return self.routed.decode

    def reset(self) -> None:
        for worker in self.routed.workers:
            worker.model.behaviour = Behaviour()
            for kept in (worker.requests, worker.headers, worker.aborts):
                kept.clear()

    async def running(self) -> int:
        return sum(len(worker.model.running) for worker in self.routed.workers)

    async def idle(self, within: float) -> bool:
        for _ in range(int(within / 0.02)):
            if not await self.running():
                return True
            await asyncio.sleep(0.02)
        return False

    async def failure_within_a_second(self) -> tuple[int, str]:
        """The status of a request that fails before its first token, and its message."""
        begun = time.monotonic()
        ids, error = await failure(Remote(self.engine, self.decode, str))
        seconds = time.monotonic() - begun
        print(f"{error.status} {error.code} {error.message!r} after {seconds:.2f} s")
        assert ids == []
        assert seconds < 1.0
        return error.status, error.message


@asynccontextmanager
async def staged(mode: Mode, flags: tuple[str, ...] = CALM) -> AsyncIterator[Stage]:
    split = mode == "prefill-decode"
    workers = [
        FakeSGLang(prefill=split, notices_leaving=NOTICED),
        FakeSGLang(incremental=split, notices_leaving=NOTICED),
    ]
    for worker in workers:
        worker.model.capacity = 32
    async with router(mode, workers, ("--policy", "round_robin", *flags)) as routed:
        engine = SGLangEngine(routed.url, ModelFacts(VOCAB, context_length=4096), timeouts=HTTPTimeouts(idle=8.0))
        await started(engine)
        stage = Stage(routed, engine, [body for worker in workers for body in worker.requests])
        stage.reset()
        yield stage
        await engine.stop()
        await stage.idle(FREED)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=get_args(Mode))
async def whole(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """One router for all tests that leave it as it was."""
    async with staged(request.param) as stage:
        yield stage


@pytest.fixture
async def stage(whole: Stage) -> Stage:
    await whole.idle(FREED)
    whole.reset()
    return whole


class TestContractThroughTheRouter(EngineContract):
    @pytest.fixture
    async def case(self, stage: Stage) -> EngineCase:
        return EngineCase(
            stage.engine,
            prompts=[[1, 2, 3], [4, 5, 6], [7, 8, 9]],
            running=stage.running,
            slow_prompt=[SLOW, 1],
            bad_constraints=[Constraint("json_schema", "{")],
            concurrency=32,
            abort_seconds=FREED,
        )


async def test_a_router_is_recognised_by_what_it_leaves_out(stage: Stage) -> None:
    """What would get lost is refused or said in another way (``tests/engines/test_sglang.py``)."""
    info = stage.engine.info
    assert info.constraints == {"json_schema", "json_object", "regex", "ebnf"}
    assert (info.logit_bias, info.defers_constraints) == (False, False)


async def test_all_that_the_adapter_counts_on_comes_through_and_what_gets_lost_is_known(stage: Stage) -> None:
    sampling = Sampling(12, 0.5, 0.5, 5, 0.25, 0.5, 0.25, 1.5, 123456789012, (4, 5), {7: -100.0}, True, 2)
    hints = RoutingHints(
        priority=3,
        lora="a",
        data_parallel_rank=1,
        bootstrap_host="h",
        bootstrap_port=1,
        bootstrap_room=7,
        headers={"x-smg-routing-key": "key", "x-request-id": "job-7", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"},
    )
    media = (MediaItem("image", "http://i"), MediaItem("video", "http://v"), MediaItem("audio", "http://a"))
    for kind in ("json_schema", "regex", "ebnf", "structural_tag"):
        stage.reset()
        request = ask(
            sampling=sampling,
            constraint=Constraint(kind, "{}"),
            logprobs=2,
            prompt_logprobs=True,
            in_reasoning=True,
            media=media,
            routing=hints,
        )
        sent = stage.engine.body(request) | {"cache_salt": "s", "max_thinking_tokens": 9, "x_custom": 1}
        others = {"custom_params": {"a": 1}, "stop_regex": "q", "stream_interval": 3}
        sent["sampling_params"] |= others
        assert sent["sampling_params"].keys() <= SAMPLING_KEYS
        reply = await stage.engine.http.stream("/generate", json.dumps(sent).encode(), hints.headers)
        await reply.body()
        received = [body for worker in stage.routed.workers for body in worker.requests]
        assert len(received) == (1 if stage.routed.mode == "regular" else 2)
        for body in received:
            assert sent.keys() - body.keys() == LOST & sent.keys()
            assert sent["sampling_params"].keys() - body["sampling_params"].keys() == (
                LOST_SAMPLING & sent["sampling_params"].keys()
            )
            changed = {name for name in body.keys() & sent.keys() - {"sampling_params"} if body[name] != sent[name]}
            assert all(name.startswith("bootstrap_") for name in changed), (
                "in prefill/decode mode they are the router's"
            )
            assert all(value == sent["sampling_params"][name] for name, value in body["sampling_params"].items())
        for headers in (headers for worker in stage.routed.workers for headers in worker.headers):
            assert {name: headers[name] for name in hints.headers} == hints.headers


async def test_a_worker_s_refusal_keeps_its_status(stage: Stage) -> None:
    for status, ours in ((400, 400), (500, 502), (503, 503)):
        stage.reset()
        for worker in stage.routed.workers:
            worker.model.behaviour = Behaviour(status=status, message=TOO_LONG)
        assert (await stage.failure_within_a_second())[0] == ours


@pytest.mark.parametrize(
    ("behaviour", "status", "codes"),
    [
        (Behaviour(error_after=2), 502, {"engine_error"}),
        (Behaviour(abort_after=0, error_status=400, message=TOO_LONG), 400, {"context_length_exceeded"}),
        (Behaviour(garbage_after=2), 502, {"engine_error"}),
        (Behaviour(end_after=2), 502, {"engine_disconnected"}),
        (Behaviour(cut_after=2), 502, {"engine_disconnected", "engine_error"}),
    ],
    ids=["error event", "abort with status", "garbage", "no finish", "connection cut"],
)
async def test_a_reply_that_fails_under_way_is_an_error(
    stage: Stage, behaviour: Behaviour, status: int, codes: set[str]
) -> None:
    """Never a short reply with status 200. The token before a cut may get lost in the router."""
    stage.decode.model.behaviour = behaviour
    if stage.routed.mode == "regular":
        stage.prefill.model.behaviour = behaviour
    ids, error = await failure(Remote(stage.engine, stage.decode, str))
    assert (error.status, error.code in codes) == (status, True), error.code
    assert ids == stage.decode.model.reply_ids(PROMPT)[: len(ids)]
    assert len(ids) <= 2


async def test_leaving_frees_the_workers_when_they_notice_it(stage: Stage) -> None:
    async with aclosing(Chunks(stage.engine, long())) as chunks:
        await anext(chunks)
    assert await stage.idle(FREED)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def legs() -> AsyncIterator[Stage]:
    async with staged("prefill-decode") as stage:
        yield stage


@pytest.fixture
async def pair(legs: Stage) -> Stage:
    await legs.idle(FREED)
    legs.reset()
    return legs


@pytest.mark.parametrize(("prefilled", "decoded", "told"), [(32, 100, None), (32, 32, 32), (0, 0, 0)])
async def test_cached_tokens_are_the_prefill_side_s_or_none(
    pair: Stage, prefilled: int, decoded: int, told: int
) -> None:
    """The router gives the decode side's reply alone. SGLang 0.5.23's decode server says what its
    prefill server found; an older one says that all is cached, which is left out."""
    pair.prefill.model.behaviour.cached_tokens = prefilled
    pair.decode.model.behaviour.cached_tokens = decoded
    for logprobs in (None, 2):
        chunks = await collect(pair.engine, ask(list(range(100, 200)), logprobs=logprobs))
        assert {(chunk.prompt_tokens, chunk.cached_tokens) for chunk in chunks} == {(100, told)}


async def test_both_legs_get_the_router_s_own_room(pair: Stage) -> None:
    await collect(pair.engine, ask())
    bodies = [*pair.prefill.requests, *pair.decode.requests]
    assert len(bodies) == 2
    assert len({body["bootstrap_room"] for body in bodies}) == 1
    assert None not in {body["bootstrap_room"] for body in bodies}


RETRIES: list[tuple[str, ...]] = [CALM, ("--disable-circuit-breaker",)]


@pytest.mark.parametrize("flags", RETRIES, ids=["no retries", "retries"])
class TestLegs:
    """A router of its own for each, because it remembers failures."""

    @pytest.mark.parametrize(("status", "ours"), [(400, 400), (500, 502), (503, 503)])
    @pytest.mark.parametrize("failing", ["prefill", "decode"])
    async def test_an_error_of_either_leg_is_the_client_s_within_a_second_and_the_other_is_freed(
        self, flags: tuple[str, ...], failing: str, status: int, ours: int
    ) -> None:
        """The other leg would say nothing for ever."""
        async with staged("prefill-decode", flags) as pair:
            bad, other = (pair.prefill, pair.decode) if failing == "prefill" else (pair.decode, pair.prefill)
            bad.model.behaviour = Behaviour(status=status, message=TOO_LONG)
            other.model.behaviour = Behaviour(silent_after=0)
            told, message = await pair.failure_within_a_second()
            assert told == ours
            assert ("context" in message) == (status == 400)
            assert await pair.idle(FREED)

    @pytest.mark.parametrize("failing", ["prefill", "decode"])
    async def test_a_leg_that_refuses_the_connection_is_a_502_within_a_second_and_the_other_is_freed(
        self, flags: tuple[str, ...], failing: str
    ) -> None:
        async with staged("prefill-decode", flags) as pair:
            bad, other = (pair.prefill, pair.decode) if failing == "prefill" else (pair.decode, pair.prefill)
            other.model.behaviour = Behaviour(silent_after=0)
            await pair.routed.take_away(bad)
            assert (await pair.failure_within_a_second())[0] == 502
            assert await pair.idle(FREED)
            other.model.behaviour = Behaviour()
            assert (await failure(Remote(pair.engine, other, str)))[1].status in (502, 503)


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(error_after=0), Behaviour(abort_after=0, error_status=400), Behaviour(cut_after=0)],
    ids=["error event", "abort with status", "connection cut"],
)
async def test_what_the_prefill_side_says_after_its_status_is_not_passed_on(pair: Stage, behaviour: Behaviour) -> None:
    """The router does not read it: a decode side that goes on waiting ends by its own timeout or by our idle one."""
    pair.prefill.model.behaviour = behaviour
    assert ids_of(await collect(pair.engine, ask())) == pair.decode.model.reply_ids(PROMPT)[:12]
    pair.decode.model.behaviour = Behaviour(silent_after=0)
    _, error = await failure(Remote(pair.engine, pair.decode, str))
    assert (error.status, error.code) == (504, "engine_timeout")
