"""SGLang's adapter in front of a prefill/decode router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass

import pytest

from paraserve.engines.base import EngineRequest, RoutingHints
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from tests.engines.contract import Chunks, collect, ids_of
from tests.engines.remote_faults import PROMPT, Remote, ask, failure, long
from tests.fakes.pd_router import FakePDRouter
from tests.fakes.sequences import VOCAB
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_fake import FakeSGLang
from tests.waiting import PATIENCE, until


@dataclass
class Pair:
    engine: SGLangEngine
    router: FakePDRouter
    prefill: FakeSGLang
    decode: FakeSGLang

    async def failure_at_once(self, request: EngineRequest) -> tuple[int, str]:
        """Of a reply of which one side would say nothing for ever."""
        async with asyncio.timeout(PATIENCE):
            ids, error = await failure(Remote(self.engine, self.decode, str), request)
        assert ids == []
        return error.status, error.message

    async def idle(self) -> None:
        await until(lambda: not self.prefill.model.running and not self.decode.model.running)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    prefill, decode = FakeSGLang(prefill=True), FakeSGLang(incremental=True)
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(fake)) for fake in (prefill, decode)]
        router = FakePDRouter(*urls)
        url = await stack.enter_async_context(serving(router))
        engine = SGLangEngine(url, ModelFacts(VOCAB))
        await engine.start()
        stack.push_async_callback(engine.stop)
        yield Pair(engine, router, prefill, decode)


async def test_reply_is_the_decode_sides(pair: Pair) -> None:
    assert ids_of(await collect(pair.engine, ask())) == pair.decode.model.reply_ids(PROMPT)[:12]
    assert len(pair.prefill.requests) == len(pair.decode.requests) == 1


async def test_cached_tokens_are_the_prefill_sides(pair: Pair) -> None:
    """The decode side counts what it took over as cached: a hit of 100 % that nobody had."""
    pair.prefill.model.behaviour.cached_tokens = 32
    pair.decode.model.behaviour.cached_tokens = 100
    chunks = await collect(pair.engine, ask(list(range(100, 200))))
    assert {(chunk.prompt_tokens, chunk.cached_tokens) for chunk in chunks} == {(100, 32)}


async def test_routers_bootstrap_fields_are_its_own_and_the_clients_are_the_clients(pair: Pair) -> None:
    await collect(pair.engine, ask())
    hints = RoutingHints(bootstrap_host="h", bootstrap_port=1, bootstrap_room=7, headers={"x-smg-routing-key": "k"})
    await collect(pair.engine, ask(routing=hints))
    first, second = pair.decode.requests
    assert (first["bootstrap_host"], first["bootstrap_room"]) == ("10.0.0.1", pair.router.room)
    assert (second["bootstrap_host"], second["bootstrap_port"], second["bootstrap_room"]) == ("h", 1, 7)
    assert pair.prefill.headers[1]["x-smg-routing-key"] == pair.decode.headers[1]["x-smg-routing-key"] == "k"


@pytest.mark.parametrize(("status", "ours"), [(400, 400), (500, 502), (503, 503)])
async def test_prefill_error_reaches_the_client_at_once_and_the_decode_side_is_freed(
    pair: Pair, status: int, ours: int
) -> None:
    """The decode side would wait for ever."""
    pair.prefill.model.behaviour.status = status
    pair.prefill.model.behaviour.message = "The input is longer than the model's context length (4096 tokens)."
    pair.decode.model.behaviour.silent_after = 0
    told, message = await pair.failure_at_once(ask())
    assert told == ours
    assert ("4096" in message) == (status == 400)
    await pair.idle()


async def test_decode_side_that_refuses_is_a_502_and_the_prefill_side_is_freed(pair: Pair) -> None:
    """The prefill side would keep its part for a decode side that never asks for it."""
    pair.router.decode_url = f"http://127.0.0.1:{free_port()}"
    pair.prefill.model.behaviour.silent_after = 0
    told, _ = await pair.failure_at_once(ask())
    assert told == 502
    await pair.idle()


async def test_leaving_aborts_both_sides(pair: Pair) -> None:
    request = long()
    async with aclosing(Chunks(pair.engine, request)) as chunks:
        await anext(chunks)
    await pair.idle()
    assert request.request_id in pair.prefill.aborts
    assert request.request_id in pair.decode.aborts
