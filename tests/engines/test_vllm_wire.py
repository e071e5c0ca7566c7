"""vLLM's adapter by the messages of its core, against a fake core that dies of what the real one dies of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paraserve.engines.base import Constraint, EngineError, EngineRequest, RoutingHints, Sampling
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.vllm.headless import HeadlessVLLM, headless_program
from paraserve.engines.vllm.messages import SOURCES
from paraserve.engines.vllm.wire import VLLMWireEngine
from paraserve.engines.wire.layout import declared
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import PROMPT, ask, long
from tests.engines.wire_rules import deadly_to_vllm, played_case
from tests.fakes.sequences import EOS, LONG, VOCAB, FakeModel
from tests.fakes.vllm_core import PACKAGE, FakeCore
from tests.waiting import PATIENCE, until

FACTS = ModelFacts(vocab_size=VOCAB, eos_token_ids=frozenset({EOS}))


def layout_of(package: Path) -> dict[str, Any]:
    return {
        name: fields
        for file, names in SOURCES.items()
        for name, fields in declared((package / file).read_text(), names).items()
    }


@dataclass
class Wired:
    engine: VLLMWireEngine
    core: FakeCore
    head: HeadlessVLLM

    @property
    def model(self) -> FakeModel:
        return self.core.model

    async def failure(self, request: EngineRequest | None = None) -> tuple[list[int], EngineError]:
        ids: list[int] = []
        try:
            async with aclosing(Chunks(self.engine, request or ask())) as chunks:
                async for chunk in chunks:
                    ids += chunk.token_ids
        except EngineError as error:
            return ids, error
        raise AssertionError("the reply did not fail")


def a_head(core: FakeCore, clients: int = 2, **facts: Any) -> HeadlessVLLM:
    told = {"layout": layout_of(core.package), "loras": {"adapter": "/a"}, "vocab_size": None} | facts
    return HeadlessVLLM(headless_program("model", told), clients)


def an_engine(head: HeadlessVLLM, slot: int = 0, idle: float = PATIENCE, **options: Any) -> VLLMWireEngine:
    timeouts = HTTPTimeouts(idle=idle, call=PATIENCE)
    return VLLMWireEngine(head.address.of_worker(slot), FACTS, timeouts=timeouts, **options)


@asynccontextmanager
async def wired(core: FakeCore, *, facts: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Wired]:
    head = a_head(core, **facts or {})
    port = head.listen()
    engine = None
    try:
        await asyncio.gather(core.dial(port), head.ready())
        engine = an_engine(head, **options)
        await engine.start()
        yield Wired(engine, core, head)
    finally:
        if engine is not None:
            await engine.stop()
        core.die()
        await head.stop()


@pytest.fixture
async def wire() -> AsyncIterator[Wired]:
    async with wired(FakeCore()) as made:
        yield made


class TestVLLMWireContract(EngineContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[EngineCase]:
        core = FakeCore()
        core.model.capacity = 32

        async def running() -> int:
            return len(core.model.running)

        async with wired(core) as made:
            yield played_case(made.engine, running)


# What is sent.


async def test_every_sampling_value_is_sent_and_the_end_tokens_are_named(wire: Wired) -> None:
    sampling = Sampling(
        9, 0.25, 0.5, 11, 0.125, 0.5, 0.75, 1.25, seed=7, stop_token_ids=(3,), logit_bias={4: -1.0}, min_tokens=2
    )
    await collect(wire.engine, ask(sampling=sampling))
    (asked,) = wire.core.requests
    assert asked.sampling_params == {
        "max_tokens": 9, "min_tokens": 2, "temperature": 0.25, "top_p": 0.5, "top_k": 11, "min_p": 0.125,
        "presence_penalty": 0.5, "frequency_penalty": 0.75, "repetition_penalty": 1.25, "seed": 7, "ignore_eos": False,
        "n": 1, "detokenize": False, "logit_bias": {4: -1.0}, "stop_token_ids": [3], "_eos_token_id": EOS,
        "_all_stop_token_ids": [3, EOS],
    }  # fmt: skip
    assert (asked.prompt_token_ids, asked.client_index, asked.priority, asked.cache_salt) == (PROMPT, 1, 0, None)


@pytest.mark.parametrize(("ignored", "ends"), [(False, ([5, 11], 2)), (True, ([5], None))])
async def test_end_tokens_beyond_the_first_are_stop_ids_unless_they_are_ignored(ignored: bool, ends: Any) -> None:
    core = FakeCore()
    async with wired(core) as made:
        engine = VLLMWireEngine(made.head.address.of_worker(1), replace(FACTS, eos_token_ids=frozenset({2, 11})))
        await engine.start()
        await collect(engine, ask(sampling=Sampling(4, stop_token_ids=(5,), ignore_eos=ignored)))
        await engine.stop()
    params = core.requests[0].sampling_params
    assert (params["stop_token_ids"], params["_eos_token_id"]) == ends
    assert params["_all_stop_token_ids"] == [5, 2, 11]


@pytest.mark.parametrize(
    ("constraint", "in_reasoning", "outputs", "ended"),
    [
        (Constraint("json_schema", '{"type":"array"}'), False, {"json": '{"type":"array"}'}, True),
        (Constraint("json_object"), True, {"json_object": True}, False),
        (Constraint("regex", "a+"), False, {"regex": "a+"}, True),
        (Constraint("ebnf", 'root ::= "a"'), False, {"grammar": 'root ::= "a"'}, True),
        (Constraint("structural_tag", "{}", covers_reasoning=True), True, {"structural_tag": "{}"}, True),
    ],
)
async def test_a_constraint_has_its_field_its_backend_and_the_thinking_state(
    constraint: Constraint, in_reasoning: bool, outputs: dict[str, Any], ended: bool
) -> None:
    core = FakeCore()
    async with wired(core) as made:
        address = replace(made.head.address.of_worker(1), defers_constraints=True)
        engine = VLLMWireEngine(address, FACTS)
        await engine.start()
        sampling = Sampling(12, ignore_eos=True)
        await collect(engine, ask(sampling=sampling, constraint=constraint, in_reasoning=in_reasoning))
        await engine.stop()
    (asked,) = core.requests
    assert asked.sampling_params["structured_outputs"] == outputs | {"_backend": "xgrammar"}
    assert asked.reasoning_ended is ended
    assert not asked.sampling_params["ignore_eos"], "it would write on behind the end of the grammar"


async def test_routing_hints_are_passed_on_and_none_is_invented(wire: Wired) -> None:
    await collect(wire.engine, ask(routing=RoutingHints(3, "adapter", 0, cache_salt="salt")))
    await collect(wire.engine, ask())
    first, second = wire.core.requests
    assert (first.priority, first.lora_request, first.cache_salt) == (3, ["adapter", 1, "/a"], "salt")
    assert (second.priority, second.lora_request, second.cache_salt) == (0, None, None)


async def test_unknown_adapter_is_the_clients_404(wire: Wired) -> None:
    _, error = await wire.failure(ask(routing=RoutingHints(lora="nobody")))
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


async def test_names_are_short_and_never_shared(wire: Wired) -> None:
    request = ask()
    await asyncio.gather(*(collect(wire.engine, request) for _ in range(3)))
    names = [asked.request_id for asked in wire.core.requests]
    assert len(set(names)) == 3
    assert {len(name) for name in names} == {14}


# What the core would not survive.


@pytest.mark.parametrize(("request_", "param"), deadly_to_vllm(VOCAB, 4096))
async def test_a_request_that_the_core_would_not_survive_is_not_sent(wire: Wired, request_: Any, param: str) -> None:
    ids, error = await wire.failure(request_)
    assert (ids, error.status, error.param) == ([], 400, param)
    assert wire.core.requests == []
    assert (await wire.engine.health()).ok


async def test_ids_that_the_model_has_no_rows_for_are_not_sent() -> None:
    async with wired(FakeCore(vocab=500), facts={"vocab_size": 500}) as made:
        assert made.engine.info.vocab_size == 500
        _, error = await made.failure(ask([600]))
        assert error.param == "prompt"


# What comes.


async def test_counts_come_with_the_first_tokens(wire: Wired) -> None:
    wire.model.behaviour.cached_tokens = 2
    first, *others = await collect(wire.engine, ask())
    assert (first.prompt_tokens, first.cached_tokens) == (len(PROMPT), 2)
    assert {(chunk.prompt_tokens, chunk.cached_tokens) for chunk in others} == {(None, None)}


async def test_end_token_is_the_last_id_and_is_named(wire: Wired) -> None:
    wire.model.behaviour.eos_after = 5
    chunks = await collect(wire.engine, ask())
    assert ids_of(chunks) == [*wire.model.reply_ids(PROMPT)[:5], EOS]
    assert chunks[-1].finish is not None
    assert (chunks[-1].finish.reason, chunks[-1].finish.matched) == ("stop", EOS)


@pytest.mark.parametrize("sizes", [(1,), (2, 1, 4, 3), (30,)])
@pytest.mark.parametrize("top", [0, 3, 20])
async def test_scores_are_read_from_the_message_and_from_frames_of_their_own(wire: Wired, sizes: Any, top: int) -> None:
    wire.model.behaviour.tokens_per_event = sizes
    chunks = await collect(wire.engine, ask(max_tokens=30, logprobs=top))
    entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    assert [entry.token_id for entry in entries] == ids_of(chunks) == wire.model.reply_ids(PROMPT)[:30]
    assert {len(entry.top) for entry in entries} == {top}
    for entry in entries:
        likely = entry.token_id % 7
        assert entry.logprob == (-0.5 if likely else -30.0)
        assert [value for _, value in entry.top] == [-0.5 - rank for rank in range(top)]


async def test_a_field_that_a_release_inserts_moves_nothing(tmp_path: Path) -> None:
    for file in SOURCES:
        inserted = (
            (PACKAGE / file).read_text().replace("    prompt_token_ids:", "    newer: int = 7\n    prompt_token_ids:")
        )
        inserted = inserted.replace("    finish_reason:", "    newest: list[int] = []\n    finish_reason:")
        inserted = inserted.replace("    outputs:", "    other: str | None = None\n    outputs:")
        # A field with a default before one without is for msgspec to allow by keyword only.
        inserted = inserted.replace("    newer: int = 7\n", "").replace(
            "    cache_salt:", "    newer: int | None\n    cache_salt:"
        )
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(inserted)
    layout = layout_of(tmp_path)
    with pytest.raises(Exception, match="EngineCoreRequest needs newer"):
        an_engine(a_head(FakeCore(package=tmp_path)))
    layout["EngineCoreRequest"][7].append(None)
    core = FakeCore(package=tmp_path)
    async with wired(core, facts={"layout": layout}) as made:
        assert ids_of(await collect(made.engine, ask(logprobs=2))) == core.model.reply_ids(PROMPT)[:12]
    assert core.requests[0].cache_salt is None


async def test_garbage_ends_every_run_and_is_never_text(wire: Wired) -> None:
    wire.model.behaviour.garbage_after = 3
    ids, error = await wire.failure()
    assert ids == wire.model.reply_ids(PROMPT)[: len(ids)]
    assert (error.status, error.code) == (502, "engine_error")
    wire.model.behaviour.garbage_after = None
    await until(lambda: not wire.model.running)
    assert ids_of(await collect(wire.engine, ask())) == wire.model.reply_ids(PROMPT)[:12]


async def test_an_id_outside_of_the_vocabulary_is_the_engines_error_and_reaches_nobody(
    wire: Wired, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire.model, "reply_ids", lambda *_: [10, VOCAB, 11, 12])
    ids, error = await wire.failure(long())
    assert ids in ([], [10])
    assert (error.status, error.code) == (502, "engine_error")
    await until(lambda: not wire.model.running)


async def test_a_failure_is_the_constraints_fault_only_before_the_first_token(wire: Wired) -> None:
    wire.model.behaviour.error_after = 2
    ids, error = await wire.failure(ask(constraint=Constraint("regex", "a")))
    assert ids == wire.model.reply_ids(PROMPT)[:2]
    assert error.status == 502
    _, error = await wire.failure(ask(constraint=Constraint("regex", "(", param="regex")))
    assert (error.status, error.code, error.param) == (400, "invalid_constraint", "regex")


async def test_sequence_that_the_engine_aborted_ends_as_abort(wire: Wired) -> None:
    wire.model.behaviour.abort_after = 2
    chunks = await collect(wire.engine, ask())
    assert chunks[-1].finish is not None
    assert chunks[-1].finish.reason == "abort"


# Leaving, silence, death.


async def test_leaving_aborts_once_and_a_finished_reply_is_not_aborted(wire: Wired) -> None:
    await collect(wire.engine, ask())
    async with aclosing(Chunks(wire.engine, long())) as chunks:
        await anext(chunks)
    await until(lambda: wire.core.aborts)
    (name,) = wire.core.aborts
    assert name == wire.core.requests[1].request_id
    await until(lambda: not wire.model.running)


async def test_stop_lets_aborts_out_and_ends_who_waits() -> None:
    core = FakeCore()
    async with wired(core) as made:
        chunks = Chunks(made.engine, long())
        await anext(chunks)
        await made.engine.stop()
        await until(lambda: core.aborts)
        with pytest.raises(EngineError):
            async for _ in chunks:
                pass


async def test_silence_is_a_timeout_and_aborts() -> None:
    core = FakeCore()
    core.model.behaviour.silent_after = 2
    async with wired(core, idle=0.5) as made:
        ids, error = await made.failure()
        assert ids in [core.model.reply_ids(PROMPT)[:count] for count in range(3)]
        assert (error.status, error.code) == (504, "engine_timeout")
        await until(lambda: core.aborts)


async def test_a_core_that_does_not_answer_is_not_well() -> None:
    async with wired(FakeCore()) as made:
        assert (await made.engine.health()).ok
        made.core.probes, made.engine.timeouts = False, HTTPTimeouts(call=0.05)
        assert not (await made.engine.health()).ok


@pytest.mark.parametrize("how", ["killed", "died"])
async def test_death_of_the_core_ends_every_run_at_once_and_the_next_core_is_found(wire: Wired, how: str) -> None:
    streams = [Chunks(wire.engine, long([LONG, at])) for at in range(32)]
    for stream in streams:
        await anext(stream)
    if how == "killed":
        wire.core.die()
    else:
        await wire.core._say_dead()
    for stream in streams:
        with pytest.raises(EngineError) as caught:
            async for _ in stream:
                pass
        assert (caught.value.status, caught.value.code) == (502, "engine_disconnected")
    assert wire.engine.runs == {}
    _, error = await wire.failure()
    assert (error.status, error.code) == (503, "engine_unreachable")
    assert not (await wire.engine.health()).ok
    wire.core.die()
    wire.core.max_model_len = 2048
    port = wire.head.listen()
    await asyncio.gather(wire.core.dial(port), wire.head.ready())
    await until(lambda: not wire.engine.away)
    await wire.engine._until_reachable()
    assert ids_of(await collect(wire.engine, ask())) == wire.model.reply_ids(PROMPT)[:12]
    assert wire.engine.info.context_length == 2048


async def test_front_ends_do_not_mix_and_one_in_the_place_of_another_aborts_what_was_left(wire: Wired) -> None:
    other = an_engine(wire.head, 1)
    await other.start()
    replies = await asyncio.gather(*(collect(engine, ask([1 + at])) for at, engine in enumerate([wire.engine, other])))
    assert [ids_of(reply) for reply in replies] == [wire.model.reply_ids([1 + at])[:12] for at in range(2)]
    chunks = Chunks(other, long())
    await anext(chunks)
    left = wire.core.requests[-1].request_id
    other.runs.clear()  # it is killed: nobody aborts
    await other.stop()
    again = an_engine(wire.head, 1)
    await again.start()
    await until(lambda: left in wire.core.aborts)
    await until(lambda: not wire.model.running)
    assert ids_of(await collect(again, ask())) == wire.model.reply_ids(PROMPT)[:12]
    await again.stop()


async def test_the_sockets_are_no_other_users_and_are_gone_at_the_end() -> None:
    async with wired(FakeCore()) as made:
        assert made.head.address.wire is not None
        directory = made.head.address.wire.directory
        mode, names = await asyncio.to_thread(lambda: (os.stat(directory).st_mode, sorted(os.listdir(directory))))
        assert (mode & 0o777, names) == (0o700, ["input-0", "input-1", "output-0", "output-1"])
    assert directory not in map(str, Path(directory).parent.iterdir())


async def test_a_stranger_at_the_handshake_is_not_listened_to(wire: Wired) -> None:
    import zmq.asyncio

    context = zmq.asyncio.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.connect(f"tcp://127.0.0.1:{wire.head.listen()}")
    for knock in (b"", b"\xc1", msgspec.msgpack.encode([1]), msgspec.msgpack.encode({"status": "READY"})):
        await stranger.send(knock)
    await stranger.send(msgspec.msgpack.encode({"status": "HELLO"}))
    told = msgspec.msgpack.decode(await stranger.recv())
    assert all(os.path.dirname(place).startswith("ipc://") for place in told["addresses"]["inputs"])
    context.destroy(linger=0)
    assert ids_of(await collect(wire.engine, ask())) == wire.model.reply_ids(PROMPT)[:12]
