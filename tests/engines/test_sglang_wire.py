"""SGLang's adapter by the messages of its schedulers, against a fake one, and SGLang without its HTTP server."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paraserve.engines.base import Constraint, EngineError, EngineRequest, EngineStartError, RoutingHints, Sampling
from paraserve.engines.build import engine_of_ours
from paraserve.engines.child import EngineAddress, WireAddress
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.headless import HeadlessSGLang, schedulers_program
from paraserve.engines.sglang.wire import SGLangWireEngine
from paraserve.settings import ServerSettings
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import PROMPT, ask, long
from tests.engines.wire_rules import deadly, played_case
from tests.fakes import sglang_scheduler
from tests.fakes.sequences import EOS, LONG, VOCAB, FakeModel
from tests.fakes.sglang_scheduler import FakeScheduler
from tests.waiting import PATIENCE, until

CONTEXT = 4094
"""Of the fake: four above what it refuses."""
FACTS = ModelFacts(vocab_size=VOCAB, eos_token_ids=frozenset({EOS}))


@dataclass
class Wired:
    engine: SGLangWireEngine
    fake: FakeScheduler
    directory: str

    @property
    def model(self) -> FakeModel:
        return self.fake.model

    async def failure(self, request: EngineRequest | None = None) -> tuple[list[int], EngineError]:
        ids: list[int] = []
        try:
            async with aclosing(Chunks(self.engine, request or ask())) as chunks:
                async for chunk in chunks:
                    ids += chunk.token_ids
        except EngineError as error:
            return ids, error
        raise AssertionError("the reply did not fail")


@asynccontextmanager
async def wired(fake: FakeScheduler, directory: Path, *, idle: float = PATIENCE, **facts: Any) -> AsyncIterator[Wired]:
    address = EngineAddress(wire=WireAddress(str(directory), facts=fake.told(**facts)))
    engine = SGLangWireEngine(address, FACTS, timeouts=HTTPTimeouts(idle=idle, call=PATIENCE))
    fake.dial(str(directory))
    try:
        await engine.start()
        yield Wired(engine, fake, str(directory))
    finally:
        await engine.stop()
        fake.die()


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wired]:
    async with wired(FakeScheduler(), tmp_path) as made:
        yield made


class TestSGLangWireContract(EngineContract):
    @pytest.fixture
    async def case(self, tmp_path: Path) -> AsyncIterator[EngineCase]:
        fake = FakeScheduler()
        fake.model.capacity = 32

        async def running() -> int:
            return len(fake.model.running)

        async with wired(fake, tmp_path) as made:
            yield played_case(made.engine, running)


async def test_every_sampling_value_is_sent_as_sglang_normalizes_it(wire: Wired) -> None:
    sampling = Sampling(
        9, 0.25, 0.5, 11, 0.125, 0.5, 0.75, 1.25, seed=7, stop_token_ids=(3,), logit_bias={4: -1.0}, min_tokens=2
    )
    await collect(wire.engine, ask(sampling=sampling))
    await collect(wire.engine, ask(sampling=Sampling(4, temperature=0.0)))
    await collect(wire.engine, ask(sampling=Sampling(4)))
    first, greedy, free = (asked.sampling_params for asked in wire.fake.requests)
    sent = msgspec.structs.asdict(first)
    assert {name: value for name, value in sent.items() if value is not None} == {
        "max_new_tokens": 9, "min_new_tokens": 2, "temperature": 0.25, "top_p": 0.5, "top_k": 11, "min_p": 0.125,
        "presence_penalty": 0.5, "frequency_penalty": 0.75, "repetition_penalty": 1.25, "sampling_seed": 7, "n": 1,
        "ignore_eos": False, "logit_bias": {"4": -1.0}, "stop_token_ids": {3}, "skip_special_tokens": False,
        "spaces_between_special_tokens": False, "no_stop_trim": True, "stop_strs": [], "stop_regex_strs": [],
        "stop_str_max_len": 0, "is_normalized": True,
    }  # fmt: skip
    assert (greedy.temperature, greedy.top_k, greedy.stop_token_ids) == (1.0, 1, None)
    assert (free.temperature, free.top_k) == (1.0, 1 << 30)


@pytest.mark.parametrize(
    ("constraint", "in_reasoning", "field", "waits"),
    [
        (Constraint("json_schema", '{"type":"array"}'), False, ("json_schema", '{"type":"array"}'), False),
        (Constraint("json_object"), True, ("json_schema", '{"type": "object"}'), True),
        (Constraint("regex", "a+"), False, ("regex", "a+"), False),
        (Constraint("ebnf", 'root ::= "a"'), False, ("ebnf", 'root ::= "a"'), False),
        (Constraint("structural_tag", "{}", covers_reasoning=True), True, ("structural_tag", "{}"), False),
    ],
)
async def test_a_constraint_has_its_field_and_the_thinking_state(
    tmp_path: Path, constraint: Constraint, in_reasoning: bool, field: tuple[str, str], waits: bool
) -> None:
    fake = FakeScheduler()
    async with wired(fake, tmp_path, reasoning_parser="some") as made:
        sampling = Sampling(12, ignore_eos=True)
        await collect(made.engine, ask(sampling=sampling, constraint=constraint, in_reasoning=in_reasoning))
    (asked,) = fake.requests
    assert getattr(asked.sampling_params, field[0]) == field[1]
    assert (asked.require_reasoning, asked.sampling_params.ignore_eos) == (waits, False)


async def test_priority_and_salt_are_passed_on_and_none_is_invented(wire: Wired) -> None:
    await collect(wire.engine, ask(routing=RoutingHints(3, cache_salt="salt")))
    await collect(wire.engine, ask())
    first, second = wire.fake.requests
    assert (first.priority, first.cache_salt, second.priority, second.cache_salt) == (3, "salt", None, None)
    assert {len(str(asked.rid)) for asked in wire.fake.requests} == {14}, "SGLang aborts by the beginning of a name"
    _, error = await wire.failure(ask(routing=RoutingHints(lora="nobody")))
    assert (error.status, error.code) == (404, "model_not_found")


@pytest.mark.parametrize(("request_", "param"), deadly(VOCAB, CONTEXT))
async def test_a_request_that_the_scheduler_would_not_check_is_not_sent(wire: Wired, request_: Any, param: str) -> None:
    ids, error = await wire.failure(request_)
    assert (ids, error.status, error.param) == ([], 400, param)
    assert wire.fake.requests == []
    assert (await wire.engine.health()).ok


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


async def test_a_stop_id_that_sglang_does_not_look_for_ends_the_reply_and_the_rest_is_aborted(wire: Wired) -> None:
    wire.model.behaviour.tokens_per_event = (3,)
    free = wire.model.reply_ids([LONG, 1])
    stop = free[4]
    request = ask([LONG, 1], sampling=Sampling(400, 0.0, ignore_eos=True, stop_token_ids=(stop,)), logprobs=1)
    chunks = await collect(wire.engine, request)
    assert ids_of(chunks) == free[: free.index(stop) + 1]
    assert len(chunks[-1].logprobs or ()) == len(chunks[-1].token_ids)
    await until(lambda: wire.fake.aborts and not wire.model.running)
    assert len(wire.fake.aborts) == 1


@pytest.mark.parametrize("sizes", [(1,), (2, 1, 4, 3)])
@pytest.mark.parametrize("top", [0, 3])
async def test_scores_are_those_of_the_tokens_and_of_the_prompt(wire: Wired, sizes: Any, top: int) -> None:
    wire.model.behaviour.tokens_per_event = sizes
    chunks = await collect(wire.engine, ask(max_tokens=20, logprobs=top, prompt_logprobs=True))
    entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    assert [entry.token_id for entry in entries] == ids_of(chunks) == wire.model.reply_ids(PROMPT)[:20]
    assert {len(entry.top) for entry in entries} == {top}
    none, *scored = chunks[0].prompt_logprobs or ()
    assert none is None
    assert [score and score.token_id for score in scored] == PROMPT[1:]
    assert {chunk.prompt_logprobs for chunk in chunks[1:]} == {None}


async def test_garbage_ends_every_run_and_is_never_text(wire: Wired) -> None:
    wire.model.behaviour.garbage_after = 3
    ids, error = await wire.failure()
    assert ids == wire.model.reply_ids(PROMPT)[: len(ids)]
    assert (error.status, error.code) == (502, "engine_error")


@pytest.mark.parametrize(("status", "ours"), [(400, 400), (429, 429), (500, 502), (503, 503)])
async def test_a_request_that_was_given_up_keeps_its_status(wire: Wired, status: int, ours: int) -> None:
    """Before it ran by a word of its own, later by its end."""
    behaviour = wire.model.behaviour
    behaviour.status, behaviour.message = status, "top_p is wrong at /opt/x/y.py"
    ids, error = await wire.failure()
    assert (ids, error.status) == ([], ours)
    assert "/opt" not in error.message
    behaviour.status, behaviour.error_after, behaviour.error_status = 200, 2, status
    ids, error = await wire.failure()
    assert (ids, error.status) == (wire.model.reply_ids(PROMPT)[:2], ours)
    assert wire.engine.runs == {}


async def test_a_constraint_that_does_not_compile_is_told_with_the_engines_reason(wire: Wired) -> None:
    _, error = await wire.failure(ask(constraint=Constraint("regex", "(", param="regex")))
    assert (error.status, error.code, error.param) == (400, "invalid_constraint", "regex")
    assert "unclosed" in error.message


async def test_silence_is_a_timeout_and_aborts(tmp_path: Path) -> None:
    fake = FakeScheduler()
    fake.model.behaviour.silent_after = 2
    async with wired(fake, tmp_path, idle=0.5) as made:
        ids, error = await made.failure()
        assert ids in [fake.model.reply_ids(PROMPT)[:count] for count in range(3)]
        assert (error.status, error.code) == (504, "engine_timeout")
        await until(lambda: fake.aborts)


async def test_death_of_the_scheduler_ends_every_run_at_once_and_the_next_one_is_found(wire: Wired) -> None:
    streams = [Chunks(wire.engine, long([LONG, at])) for at in range(32)]
    for stream in streams:
        await anext(stream)
    wire.fake.die()
    for stream in streams:
        with pytest.raises(EngineError) as caught:
            async for _ in stream:
                pass
        assert (caught.value.status, caught.value.code) == (502, "engine_disconnected")
    _, error = await wire.failure()
    assert (error.status, error.code) == (503, "engine_unreachable")
    assert not (await wire.engine.health()).ok
    wire.fake.dial(wire.directory, loaded=False)
    _, error = await wire.failure()
    assert (error.status, error.code) == (503, "engine_unreachable")
    wire.fake.loaded.set()
    await until(lambda: not wire.engine.away)
    await wire.engine._until_reachable()
    assert ids_of(await collect(wire.engine, ask())) == wire.model.reply_ids(PROMPT)[:12]


async def test_a_front_end_in_the_place_of_another_aborts_what_was_left(wire: Wired) -> None:
    chunks = Chunks(wire.engine, long())
    await anext(chunks)
    left = str(wire.fake.requests[-1].rid)
    wire.engine.runs.clear()  # it is killed: nobody aborts
    await wire.engine.stop()
    address = EngineAddress(wire=WireAddress(wire.directory, facts=wire.fake.told()))
    again = SGLangWireEngine(address, FACTS)
    await again.start()
    await until(lambda: left in wire.fake.aborts and not wire.model.running)
    assert ids_of(await collect(again, ask())) == wire.model.reply_ids(PROMPT)[:12]
    await again.stop()


# Its process.


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    find, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find("msgspec" if name == "sglang" else name))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.23" if name == "sglang" else version(name))
    path = tmp_path / "model"
    path.mkdir()
    return path


def settings(model: Path, wire: str, **changes: object) -> ServerSettings:
    return ServerSettings(engine="sglang", model_path=str(model), engine_wire=wire, **changes)


def test_auto_takes_the_wire_where_it_can_and_zmq_says_why_not(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(engine_of_ours(settings(model, "auto")), HeadlessSGLang)
    assert not isinstance(engine_of_ours(settings(model, "http")), HeadlessSGLang)
    assert not isinstance(engine_of_ours(settings(model, "auto", workers=2)), HeadlessSGLang)
    for flags, changes in ((["--dp-size", "2"], {}), ([], {"workers": 2}), (["--enable-lora"], {})):
        with pytest.raises(EngineStartError, match="--engine-wire http"):
            engine_of_ours(settings(model, "zmq", **changes), flags)
    (model / "processor_config.json").touch()
    with pytest.raises(EngineStartError, match="media"):
        engine_of_ours(settings(model, "zmq"))
    (model / "processor_config.json").unlink()
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.6.0")
    assert not isinstance(engine_of_ours(settings(model, "auto")), HeadlessSGLang)
    assert isinstance(engine_of_ours(settings(model, "zmq")), HeadlessSGLang)


@pytest.mark.heavy
async def test_it_is_started_used_killed_started_again_and_stopped(model: Path) -> None:
    program = schedulers_program(str(model))
    directory = program.command[2]
    program = replace(program, command=(sys.executable, sglang_scheduler.__file__, *program.command[2:]))
    server = HeadlessSGLang(program)
    try:
        engine = SGLangWireEngine(await server.start(), FACTS)
        await engine.start()
        assert ids_of(await collect(engine, ask())) == FakeModel().reply_ids(PROMPT)[:12]
        stream = Chunks(engine, long())
        await anext(stream)
        assert server._process is not None
        os.kill(server._process.pid, 9)
        with pytest.raises(EngineError, match="broke"):
            async for _ in stream:
                pass
        assert await server.ended() == "signal SIGKILL"
        await server.start()
        await until(lambda: not engine.away)
        await engine._until_reachable()
        assert ids_of(await collect(engine, ask())) == FakeModel().reply_ids(PROMPT)[:12]
        await engine.stop()
    finally:
        await server.stop()
    assert Path(directory).name not in await asyncio.to_thread(os.listdir, Path(directory).parent)
