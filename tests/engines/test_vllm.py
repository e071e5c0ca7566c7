"""vLLM's adapter against a fake of vLLM's token API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from paraserve.engines.base import Constraint, EngineStartError, MediaItem, RoutingHints, Sampling
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.vllm.engine import VLLMEngine
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import PROMPT, TIMEOUTS, Remote, RemoteFaults, ask, failure, long
from tests.fakes.sequences import SLOW, VOCAB
from tests.fakes.serving import serving
from tests.fakes.vllm_fake import FakeVLLM

FACTS = ModelFacts(vocab_size=VOCAB, eos_token_ids=frozenset({2}))


@asynccontextmanager
async def connected(fake: FakeVLLM, **options: Any) -> AsyncIterator[VLLMEngine]:
    async with serving(fake) as url:
        engine = VLLMEngine(url, FACTS, timeouts=TIMEOUTS, **options)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


def abort_name(request_id: str) -> str:
    return f"generate-tokens-{request_id}"


class TestVLLMContract(EngineContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[EngineCase]:
        fake = FakeVLLM()
        fake.model.capacity = 32

        async def running() -> int:
            return len(fake.model.running)

        async with connected(fake) as engine:
            yield EngineCase(
                engine,
                prompts=[[1, 2, 3], [4, 5, 6], [7, 8, 9]],
                running=running,
                slow_prompt=[SLOW, 1],
                capacity=32,
                bad_constraints=[Constraint("json_schema", "{"), Constraint("structural_tag", "no")],
                concurrency=32,
            )


class TestVLLMFaults(RemoteFaults):
    @pytest.fixture
    async def remote(self) -> AsyncIterator[Remote]:
        fake = FakeVLLM()
        async with connected(fake) as engine:
            yield Remote(engine, fake, abort_name)


async def test_every_sampling_value_is_sent() -> None:
    fake = FakeVLLM()
    sampling = Sampling(
        9, 0.25, 0.5, 11, 0.125, 0.5, 0.75, 1.25, seed=7, stop_token_ids=(3,), logit_bias={4: -1.0}, ignore_eos=True,
        min_tokens=2,
    )  # fmt: skip
    async with connected(fake) as engine:
        await collect(engine, ask(sampling=sampling))
        await collect(engine, ask(sampling=Sampling(3)))
    first, second = (body["sampling_params"] for body in fake.requests)
    assert first == {
        "max_tokens": 9, "min_tokens": 2, "temperature": 0.25, "top_p": 0.5, "top_k": 11, "min_p": 0.125,
        "presence_penalty": 0.5, "frequency_penalty": 0.75, "repetition_penalty": 1.25, "stop_token_ids": [3],
        "ignore_eos": True, "n": 1, "seed": 7, "logit_bias": {"4": -1.0}, "detokenize": False,
    }  # fmt: skip
    assert (second["top_k"], second["temperature"], second["top_p"], second["seed"]) == (0, 1.0, 1.0, None)


@pytest.mark.parametrize(
    ("constraint", "outputs"),
    [
        (Constraint("json_schema", '{"type":"array"}'), {"json": '{"type":"array"}'}),
        (Constraint("json_object"), {"json_object": True}),
        (Constraint("regex", "a+"), {"regex": "a+"}),
        (Constraint("ebnf", 'root ::= "a"'), {"grammar": 'root ::= "a"'}),
        (Constraint("structural_tag", '{"format":{}}'), {"structural_tag": '{"format":{}}'}),
    ],
)
async def test_each_kind_of_constraint_has_its_field(constraint: Constraint, outputs: dict[str, Any]) -> None:
    fake = FakeVLLM()
    async with connected(fake) as engine:
        await collect(engine, ask(constraint=constraint))
    assert fake.requests[0]["sampling_params"]["structured_outputs"] == outputs


@pytest.mark.parametrize(
    ("constraint", "in_reasoning", "ended"),
    [
        (None, True, None),
        (Constraint("json_object"), False, True),
        (Constraint("json_object"), True, False),
        (Constraint("structural_tag", "{}", covers_reasoning=True), True, True),
        (Constraint("structural_tag", "{}", covers_reasoning=True), False, True),
    ],
    ids=["no grammar", "json from the first token", "json after thinking", "tag with thinking", "tag"],
)
async def test_reasoning_ended_follows_the_thinking_state_and_the_grammar(
    constraint: Constraint | None, in_reasoning: bool, ended: bool | None
) -> None:
    fake = FakeVLLM()
    async with connected(fake, defers_constraints=True) as engine:
        await collect(engine, ask(constraint=constraint, in_reasoning=in_reasoning))
    assert fake.requests[0].get("reasoning_ended") is ended


async def test_routing_hints_are_passed_on_and_none_is_invented() -> None:
    fake = FakeVLLM(loras=("adapter",))
    async with connected(fake) as engine:
        await collect(engine, ask(routing=RoutingHints(3, "adapter", 5, cache_salt="salt")))
        await collect(engine, ask())
    first, second = fake.requests
    assert (first["priority"], first["model"], first["cache_salt"]) == (3, "adapter", "salt")
    assert fake.headers[0]["x-data-parallel-rank"] == "5"
    assert not {"priority", "model", "cache_salt"} & second.keys()
    assert "x-data-parallel-rank" not in fake.headers[1]


async def test_a_generation_that_a_proxy_renamed_is_aborted_by_the_name_that_it_got() -> None:
    fake = FakeVLLM(renames="of-the-proxy")
    async with connected(fake) as engine:
        async with aclosing(Chunks(engine, long())) as chunks:
            await anext(chunks)
        assert await Remote(engine, fake, lambda _: "generate-tokens-of-the-proxy").aborted(["any"])


async def test_unknown_adapter_is_the_clients_404() -> None:
    fake = FakeVLLM()
    async with connected(fake) as engine:
        _, error = await failure(Remote(engine, fake, abort_name), ask(routing=RoutingHints(lora="nobody")))
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


async def test_media_is_sent_as_content_parts_in_order() -> None:
    fake = FakeVLLM()
    async with connected(fake) as engine:
        await collect(engine, ask(media=[MediaItem("image", "u1"), MediaItem("audio", "u2")]))
    assert fake.requests[0]["content_parts"] == [{"type": "image_url", "url": "u1"}, {"type": "audio_url", "url": "u2"}]


async def test_counts_come_with_the_finish_and_the_last_tokens() -> None:
    fake = FakeVLLM()
    fake.model.behaviour.cached_tokens = 2
    async with connected(fake) as engine:
        *_, last = await collect(engine, ask())
    assert (last.prompt_tokens, last.cached_tokens) == (len(PROMPT), 2)
    assert last.token_ids
    assert last.finish is not None


async def test_whole_prompt_as_cached_is_a_decode_servers_number_and_not_reported() -> None:
    fake = FakeVLLM()
    fake.model.behaviour.cached_tokens = len(PROMPT)
    async with connected(fake) as engine:
        *_, last = await collect(engine, ask())
    assert (last.prompt_tokens, last.cached_tokens) == (len(PROMPT), None)


async def test_reply_that_breaks_between_finish_and_counts_is_whole() -> None:
    fake = FakeVLLM(usage=False)
    async with connected(fake) as engine:
        chunks = await collect(engine, ask())
    assert ids_of(chunks) == fake.model.reply_ids(PROMPT)[:12]
    assert chunks[-1].finish is not None
    assert chunks[-1].prompt_tokens is None
    assert fake.aborts == []


async def test_sequence_that_the_engine_aborted_ends_as_abort() -> None:
    fake = FakeVLLM()
    fake.model.behaviour.abort_after = 2
    async with connected(fake) as engine:
        chunks = await collect(engine, ask())
    assert chunks[-1].finish is not None
    assert chunks[-1].finish.reason == "abort"


async def test_facts_come_from_the_server() -> None:
    async with connected(FakeVLLM(), max_logprobs=5) as engine:
        info = engine.info
    assert (info.context_length, info.vocab_size, info.version) == (4096, VOCAB, "0.32.0")
    assert info.max_logprobs == 5
    assert info.constraints == {"json_schema", "json_object", "regex", "ebnf", "structural_tag"}


async def test_start_says_how_to_open_the_token_api() -> None:
    async with serving(FakeVLLM(scale_out=False)) as url:
        with pytest.raises(EngineStartError, match="--enable-scale-out"):
            await VLLMEngine(url, FACTS).start()


async def test_token_api_that_was_closed_later_is_the_servers_fault() -> None:
    fake = FakeVLLM()
    async with connected(fake) as engine:
        fake.scale_out = False
        _, error = await failure(Remote(engine, fake, abort_name))
    assert error.status == 502
    assert "--enable-scale-out" in error.message


async def test_health_follows_the_engine() -> None:
    fake = FakeVLLM()
    async with connected(fake) as engine:
        assert (await engine.health()).ok
        fake.healthy = False
        assert not (await engine.health()).ok
