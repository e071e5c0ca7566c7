"""An engine that goes away and comes back: what runs fails, what comes meanwhile is told, and then it is as before."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from paraserve.engines.base import EngineError
from paraserve.engines.http import identity
from paraserve.engines.http.remote import ModelFacts, RemoteEngine
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.vllm.engine import VLLMEngine
from tests.engines.contract import Chunks, collect, ids_of
from tests.engines.remote_faults import PROMPT, ask, long
from tests.fakes.sequences import VOCAB
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_fake import FakeSGLang
from tests.fakes.vllm_fake import FakeVLLM
from tests.waiting import until

KINDS = [(SGLangEngine, FakeSGLang), (VLLMEngine, FakeVLLM)]


@pytest.mark.parametrize(("adapter", "fake"), KINDS, ids=["sglang", "vllm"])
async def test_after_an_engines_restart_requests_are_served_without_one_of_ours(adapter: Any, fake: Any) -> None:
    port = free_port()
    facts = ModelFacts(VOCAB, context_length=4096)
    engine: RemoteEngine = adapter(f"http://127.0.0.1:{port}", facts)
    first, second = fake(), fake()
    try:
        async with serving(first, port=port):
            await engine.start()
            before = ids_of(await collect(engine, ask()))
            running = await _begun(engine)
        with pytest.raises(EngineError) as broken:
            await anext_until_it_fails(running)
        assert broken.value.status == 502
        with pytest.raises(EngineError) as down:
            await collect(engine, ask())
        assert (down.value.status, down.value.code) == (503, "engine_unreachable")
        assert not (await engine.health()).ok
        async with serving(second, port=port):
            assert (await engine.health()).ok
            # Several at once: the pool may hold more than one connection to the engine that is no more.
            replies = await asyncio.gather(*(collect(engine, ask()) for _ in range(4)))
            assert [ids_of(reply) for reply in replies] == [before] * 4
            assert before == second.model.reply_ids(PROMPT)[:12]
    finally:
        await engine.stop()


@pytest.mark.parametrize("meanwhile", ["nothing", "requests"])
@pytest.mark.parametrize(("adapter", "fake"), KINDS, ids=["sglang", "vllm"])
async def test_no_reply_comes_from_another_model_behind_the_same_address(
    adapter: Any, fake: Any, meanwhile: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    engine: RemoteEngine = adapter(f"http://127.0.0.1:{port}", ModelFacts(VOCAB, context_length=4096))
    first, other, third = fake(), fake(model_path="/models/other"), fake()
    try:
        async with serving(first, port=port):
            await engine.start()
            right = ids_of(await collect(engine, ask()))
        if meanwhile == "requests":
            with pytest.raises(EngineError):
                await collect(engine, ask())
        async with serving(other, port=port):
            replies = await asyncio.gather(*(collect(engine, ask()) for _ in range(4)), return_exceptions=True)
            assert [(r.status, r.code) for r in replies if isinstance(r, EngineError)] == [
                (503, "engine_unhealthy")
            ] * 4
            assert engine.stranger == "/models/other"
            asked = len(other.requests)
            with pytest.raises(EngineError):
                await collect(engine, ask())
            assert len(other.requests) == asked, "what is known to be another model is asked nothing"
        assert "runs /models/other now, and this server was started for /models/fake" in caplog.text
        async with serving(third, port=port):
            assert ids_of(await collect(engine, ask())) == right
            assert engine.stranger == ""
    finally:
        await engine.stop()


@pytest.mark.parametrize(("adapter", "fake"), KINDS, ids=["sglang", "vllm"])
async def test_another_model_is_noticed_while_nobody_asks(
    adapter: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "LOOK_SECONDS", 0.02)
    server = fake()
    async with serving(server) as url:
        engine: RemoteEngine = adapter(url, ModelFacts(VOCAB, context_length=4096))
        await engine.start()
        server.model_path = "/models/other"
        await until(lambda: engine.stranger)
        await engine.stop()


async def _begun(engine: RemoteEngine) -> Any:
    chunks = Chunks(engine, long())
    await anext(chunks)
    return chunks


async def anext_until_it_fails(chunks: Any) -> None:
    async with aclosing(chunks):
        async for _ in chunks:
            pass
