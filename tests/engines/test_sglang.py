"""SGLang's adapter against a fake of SGLang's server, both kinds of stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paraserve.engines.base import (
    Constraint,
    EngineStartError,
    Finish,
    MediaItem,
    RoutingHints,
    Sampling,
)
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine, limits
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import PROMPT, TIMEOUTS, Remote, RemoteFaults, ask, failure
from tests.fakes.sequences import LONG, SLOW, VOCAB
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_checks import Arguments
from tests.fakes.sglang_fake import FakeSGLang
from tests.waiting import until

FACTS = ModelFacts(vocab_size=VOCAB, eos_token_ids=frozenset({2}))


@asynccontextmanager
async def connected(fake: FakeSGLang, **options: Any) -> AsyncIterator[SGLangEngine]:
    async with serving(fake) as url:
        engine = SGLangEngine(url, FACTS, timeouts=TIMEOUTS, **options)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


@pytest.fixture(params=[False, True], ids=["cumulative", "incremental"])
async def fake(request: pytest.FixtureRequest) -> FakeSGLang:
    return FakeSGLang(incremental=request.param)


class TestSGLangContract(EngineContract):
    @pytest.fixture
    async def case(self, fake: FakeSGLang) -> AsyncIterator[EngineCase]:
        async def running() -> int:
            return len(fake.model.running)

        fake.model.capacity = 32
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


class TestSGLangFaults(RemoteFaults):
    @pytest.fixture
    async def remote(self, fake: FakeSGLang) -> AsyncIterator[Remote]:
        async with connected(fake) as engine:
            yield Remote(engine, fake, lambda name: name)


async def test_every_sampling_value_is_sent() -> None:
    fake = FakeSGLang()
    sampling = Sampling(
        9, 0.25, 0.5, 11, 0.125, 0.5, 0.75, 1.25, seed=7, stop_token_ids=(3,), logit_bias={4: -1.0}, ignore_eos=True,
        min_tokens=2,
    )  # fmt: skip
    async with connected(fake) as engine:
        await collect(engine, ask(sampling=sampling))
        await collect(engine, ask(sampling=Sampling(3)))
    first, second = (body["sampling_params"] for body in fake.requests)
    assert first == {
        "max_new_tokens": 9, "min_new_tokens": 2, "temperature": 0.25, "top_p": 0.5, "top_k": 11, "min_p": 0.125,
        "presence_penalty": 0.5, "frequency_penalty": 0.75, "repetition_penalty": 1.25, "stop_token_ids": [3],
        "ignore_eos": True, "n": 1, "sampling_seed": 7, "logit_bias": {"4": -1.0}, "skip_special_tokens": False,
        "spaces_between_special_tokens": False, "no_stop_trim": True,
    }  # fmt: skip
    assert (second["top_k"], second["temperature"], second["top_p"], second["min_p"]) == (-1, 1.0, 1.0, 0.0)
    assert "sampling_seed" not in second


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (Constraint("json_schema", '{"type":"array"}'), "json_schema", '{"type":"array"}'),
        (Constraint("json_object"), "json_schema", '{"type": "object"}'),
        (Constraint("regex", "a+"), "regex", "a+"),
        (Constraint("ebnf", 'root ::= "a"'), "ebnf", 'root ::= "a"'),
        (Constraint("lark", 'start: "a"'), "ebnf", 'start: "a"'),
        (Constraint("structural_tag", '{"format":{}}'), "structural_tag", '{"format":{}}'),
    ],
)
async def test_each_kind_of_constraint_has_its_field(constraint: Constraint, field: str, value: str) -> None:
    fake = FakeSGLang(arguments=Arguments(grammar_backend="llguidance" if constraint.kind == "lark" else "xgrammar"))
    async with connected(fake) as engine:
        await collect(engine, ask(constraint=constraint))
    sent = fake.requests[0]["sampling_params"]
    assert {name: sent[name] for name in ("json_schema", "regex", "ebnf", "structural_tag") if name in sent} == {
        field: value
    }


@pytest.mark.parametrize(
    ("constraint", "in_reasoning", "required"),
    [
        (None, False, False),
        (None, True, True),
        (Constraint("json_object"), False, False),
        (Constraint("json_object"), True, True),
        (Constraint("structural_tag", "{}", covers_reasoning=True), True, False),
        (Constraint("structural_tag", "{}", covers_reasoning=True), False, False),
    ],
    ids=["thinking off", "thinking on", "json from the first token", "json after thinking", "tag with thinking", "tag"],
)
async def test_reasoning_flag_follows_the_thinking_state_and_the_grammar(
    constraint: Constraint | None, in_reasoning: bool, required: bool
) -> None:
    fake = FakeSGLang(reasoning_parser="some")
    async with connected(fake) as engine:
        assert engine.info.defers_constraints
        await collect(engine, ask(constraint=constraint, in_reasoning=in_reasoning))
    assert fake.requests[0]["require_reasoning"] is required


async def test_routing_hints_are_passed_on_and_none_is_invented() -> None:
    fake = FakeSGLang()
    hints = RoutingHints(3, "adapter", 5, "10.0.0.1", 8998, (1 << 62) + 1, "salt")
    names: tuple[str, ...] = (
        "priority",
        "lora_path",
        "routed_dp_rank",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
    )
    names += ("cache_salt",)
    async with connected(fake) as engine:
        await collect(engine, ask(routing=hints))
        await collect(engine, ask())
    assert [fake.requests[0][name] for name in names] == [3, "adapter", 5, "10.0.0.1", 8998, (1 << 62) + 1, "salt"]
    assert not set(names) & fake.requests[1].keys()


async def test_media_goes_by_kind_and_an_unknown_kind_is_refused() -> None:
    fake = FakeSGLang()
    async with connected(fake) as engine:
        media = [MediaItem("image", "u1"), MediaItem("video", "u2"), MediaItem("image", "u3")]
        await collect(engine, ask(media=media))
        with pytest.raises(Exception, match="audio"):
            await collect(engine, ask(media=[MediaItem("audio", "u")]))
    assert fake.requests[0]["image_data"] == ["u1", "u3"]
    assert fake.requests[0]["video_data"] == ["u2"]
    assert len(fake.requests) == 1


@pytest.mark.parametrize("top", [0, 2])
async def test_prompt_logprobs_come_once_in_the_first_chunk(fake: FakeSGLang, top: int) -> None:
    async with connected(fake) as engine:
        chunks = await collect(engine, ask(prompt_logprobs=True, logprobs=top))
    assert [chunk.prompt_logprobs is not None for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    first, *others = chunks[0].prompt_logprobs or ()
    assert first is None
    assert [entry.token_id for entry in others if entry] == PROMPT[1:]
    assert {len(entry.top) for entry in others if entry} == {top}


async def test_given_up_sequence_is_an_error_with_its_status(fake: FakeSGLang) -> None:
    how = fake.model.behaviour
    how.abort_after, how.message = 2, "KV transfer failed at /opt/secret/place"
    async with connected(fake) as engine:
        for status, ours in ((500, 502), (503, 503), (400, 400)):
            how.error_status = status
            ids, error = await failure(Remote(engine, fake, str))
            assert len(ids) == 2
            assert error.status == ours
            assert "secret" not in error.message


async def test_rust_front_ends_word_for_an_abort_is_no_mistake_of_the_client(fake: FakeSGLang) -> None:
    fake.rust = True
    async with connected(fake) as engine:
        request = ask([LONG, 1], 400)
        running = asyncio.ensure_future(failure(Remote(engine, fake, str), request))
        await until(lambda: request.request_id in fake.model.running)
        fake.model.abort(request.request_id)
        _, error = await running
    assert (error.status, error.code) == (502, "engine_aborted")


async def test_sequence_that_somebody_else_aborted_ends_as_abort(fake: FakeSGLang) -> None:
    async with connected(fake) as engine:
        request = ask(max_tokens=400)
        chunks = Chunks(engine, request)
        await anext(chunks)
        fake.model.abort(request.request_id)
        ends = [chunk.finish async for chunk in chunks if chunk.finish]
    assert [end.reason for end in ends] == ["abort"]


@pytest.mark.parametrize("modern", [True, False])
async def test_facts_come_from_the_new_and_the_old_endpoints(modern: bool) -> None:
    async with connected(FakeSGLang(modern=modern)) as engine:
        info = engine.info
    assert (info.context_length, info.vocab_size, info.version) == (4094, VOCAB, "0.5.23")
    assert info.media == {"image", "video"}
    assert not info.defers_constraints


@pytest.mark.parametrize(
    ("backend", "kinds"),
    [
        ("none", set()),
        ("outlines", {"json_schema", "json_object", "regex"}),
        ("xgrammar", {"json_schema", "json_object", "regex", "ebnf", "structural_tag"}),
        ("llguidance", {"json_schema", "json_object", "regex", "lark"}),
    ],
)
async def test_constraints_follow_the_servers_grammar_backend(backend: str, kinds: set[str]) -> None:
    async with connected(FakeSGLang(arguments=Arguments(grammar_backend=backend))) as engine:
        assert engine.info.constraints == kinds


async def test_server_without_a_tokenizer_has_no_constraints_and_no_min_tokens() -> None:
    """It still names its grammar backend."""
    fake = FakeSGLang(arguments=Arguments(skip_tokenizer_init=True))
    async with connected(fake) as engine:
        assert engine.info.constraints == set()
        fake.requests.clear()
        _, error = await failure(Remote(engine, fake, str), ask(sampling=Sampling(12, min_tokens=2)))
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "min_tokens")
        assert fake.requests == []


@pytest.mark.parametrize("deterministic", [False, True])
async def test_seeds_are_claimed_where_the_server_reads_them_and_said_to_be_none_elsewhere(
    deterministic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "paraserve")
    async with connected(FakeSGLang(arguments=Arguments(deterministic=deterministic))) as engine:
        assert engine.info.seeds is deterministic
        assert ("--enable-deterministic-inference" in caplog.text) is not deterministic
        sampling = Sampling(12, temperature=1.0, seed=7)
        first, second = [ids_of(await collect(engine, ask(sampling=sampling))) for _ in range(2)]
        assert (first == second) is deterministic


BIASED = Sampling(max_tokens=12, temperature=0.0, logit_bias={5: -100.0})
TAG = Constraint("structural_tag", '{"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}')


async def test_behind_a_router_that_leaves_fields_out_only_what_comes_through_is_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """sglang-router forwards neither structural tags nor logit_bias nor require_reasoning."""
    async with connected(FakeSGLang(behind_lossy_router=True, reasoning_parser="qwen3")) as engine:
        assert engine.info.constraints == {"json_schema", "json_object", "regex", "ebnf"}
        assert (engine.info.logit_bias, engine.info.defers_constraints) == (False, False)
        assert "leaves out fields" in caplog.text
    async with connected(
        FakeSGLang(arguments=Arguments(grammar_backend="outlines"), behind_lossy_router=True)
    ) as engine:
        assert engine.info.constraints == {"json_schema", "json_object", "regex"}
    caplog.clear()
    async with connected(FakeSGLang(reasoning_parser="qwen3")) as engine:
        assert TAG.kind in engine.info.constraints
        assert (engine.info.logit_bias, engine.info.defers_constraints) == (True, True)
        assert not caplog.records


@pytest.mark.parametrize("status", [200, 429, 500, 503])
async def test_a_trial_that_tells_nothing_is_taken_for_a_router_that_leaves_fields_out(status: int) -> None:
    fake = FakeSGLang(behind_lossy_router=True)
    fake.model.behaviour.status = status
    async with connected(fake) as engine:
        assert not engine.info.logit_bias


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"sampling": BIASED}, "logit_bias"),
        ({"routing": RoutingHints(cache_salt="s")}, "cache_salt"),
        ({"constraint": TAG}, "response_format"),
        ({"constraint": Constraint("regex", "a", param="regex"), "in_reasoning": True}, "regex"),
    ],
)
async def test_what_would_get_lost_on_the_way_is_refused(changes: dict[str, Any], param: str) -> None:
    fake = FakeSGLang(behind_lossy_router=True, reasoning_parser="qwen3")
    async with connected(fake) as engine:
        fake.requests.clear()
        _, error = await failure(Remote(engine, fake, str), ask(**changes))
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", param)
        assert fake.requests == []


PLACES = [Arguments(context_length=512), Arguments(max_total_tokens=300)] + [
    Arguments(context_length=512, max_total_tokens=pool, page_size=page)
    for page in (16, 64)
    for pool in (400, 560, 2048)
]


@pytest.mark.parametrize("arguments", PLACES, ids=str)
async def test_what_fits_by_our_count_is_served_whole_and_what_does_not_is_refused(arguments: Arguments) -> None:
    """Records 49 and 67 for the last places of the context, which SGLang cuts short without a word."""
    fake = FakeSGLang(arguments=arguments)
    async with connected(fake) as engine:
        context, longest = engine.info.context_length, engine.info.max_prompt_tokens
        assert longest == arguments.max_req_input_len - 1
        for prompt in {1, context - 40, context - 1, min(longest, context - 1)} - {
            n for n in (context - 1,) if n > longest
        }:
            chunks = await collect(engine, ask([5] * prompt, context - prompt))
            assert len(ids_of(chunks)) == context - prompt
        fake.requests.clear()
        for prompt, reply, param in ((longest + 1, 1, "prompt"), (1, context, "max_tokens"), (context, 1, None)):
            _, error = await failure(Remote(engine, fake, str), ask([5] * prompt, reply))
            assert (error.status, error.code) == (400, "context_length_exceeded")
            assert param in (None, error.param)
        assert fake.requests == []


async def test_limits_without_the_servers_word_are_those_of_the_checkpoint() -> None:
    assert limits({}, 4096) == (4094, 4089)
    assert limits({"max_req_input_len": 994}, 2048) == (998, 993)
    assert limits({"max_req_input_len": 8186}, 2000) == (2000, 8185)
    with pytest.raises(EngineStartError, match="--model-path"):
        limits({}, None)


@pytest.mark.parametrize("tokens_per_event", [(1,), (3,), (50,)])
@pytest.mark.parametrize("logprobs", [None, 2])
async def test_stop_id_ends_the_reply_though_end_tokens_are_ignored(
    fake: FakeSGLang, tokens_per_event: tuple[int, ...], logprobs: int | None
) -> None:
    """SGLang looks for no stop ids then, so the rest is aborted here."""
    fake.model.behaviour.tokens_per_event = tokens_per_event
    free = fake.model.reply_ids([LONG, 1])
    stop = free[4]
    whole = tokens_per_event == (50,)
    sampling = Sampling(40 if whole else 3000, temperature=0.0, ignore_eos=True, stop_token_ids=(stop,))
    async with connected(fake) as engine:
        request = ask([LONG, 1], sampling=sampling, logprobs=logprobs)
        chunks = await collect(engine, request)
        assert ids_of(chunks) == free[: free.index(stop) + 1]
        assert chunks[-1].finish == Finish("stop", stop)
        assert logprobs is None or [entry.token_id for c in chunks for entry in c.logprobs or ()] == ids_of(chunks)
        assert await Remote(engine, fake, str).aborted([] if whole else [request.request_id])


async def test_start_says_where_nothing_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EngineStartError, match=url):
        await SGLangEngine(url, FACTS).start()


async def test_start_says_that_it_is_no_sglang() -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async with serving(other) as url:
        with pytest.raises(EngineStartError, match="is this an SGLang server"):
            await SGLangEngine(url, FACTS).start()


async def test_health_follows_the_engine() -> None:
    fake = FakeSGLang()
    async with connected(fake) as engine:
        assert (await engine.health()).ok
        fake.healthy = False
        assert not (await engine.health()).ok


async def test_api_key_is_sent_to_the_engine() -> None:
    fake = FakeSGLang()
    async with connected(fake, api_key="sk-x") as engine:
        await collect(engine, ask())
    assert fake.headers[0]["authorization"] == "Bearer sk-x"


async def test_hundred_replies_at_once_do_not_mix(fake: FakeSGLang) -> None:
    async with connected(fake) as engine:
        replies = await asyncio.gather(*(collect(engine, ask([index + 1, 3])) for index in range(100)))
    assert [ids_of(reply) for reply in replies] == [fake.model.reply_ids([index + 1, 3])[:12] for index in range(100)]
