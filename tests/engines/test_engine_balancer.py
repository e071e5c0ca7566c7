"""Several engines behind one contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest

from paraserve.engines.balancer import Backoff, BalancedEngine
from paraserve.engines.base import (
    Constraint,
    Engine,
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Finish,
    Generation,
    Sink,
)
from paraserve.engines.http.reading import Reading
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import ask
from tests.fakes.sequences import SLOW, FakeModel
from tests.fakes.serving import serving
from tests.fakes.sglang_fake import FakeSGLang
from tests.waiting import PATIENCE, until

INFO = EngineInfo(4096, 1000, constraints=frozenset({"regex", "json_schema"}), media=frozenset({"image"}))
QUICK = Backoff(0.02, 0.05)


@dataclass(eq=False)
class Node:
    """An engine of the tests: counts its requests, and fails as it is told."""

    info: EngineInfo = INFO
    fails_with: EngineError | None = None
    fails_after: int = 0
    starts: bool = True
    well: bool = True
    served: int = 0
    open: int = 0
    stopped: int = 0
    stranger: str = ""
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    model: FakeModel = field(default_factory=FakeModel)

    def __post_init__(self) -> None:
        self.gate.set()

    async def start(self) -> None:
        if not self.starts:
            raise EngineStartError("nobody listens")

    async def stop(self) -> None:
        self.stopped += 1

    async def health(self) -> EngineHealth:
        return EngineHealth(self.well, "" if self.well else "ill")

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        return NodeReading(self, request, sink)


class NodeReading(Reading):
    def __init__(self, node: Node, request: EngineRequest, sink: Sink) -> None:
        super().__init__(sink)
        self.node, self.request = node, request
        node.served += 1
        node.open += 1

    async def read(self) -> None:
        node, request = self.node, self.request
        ids = node.model.reply_ids(request.token_ids)[: request.sampling.max_tokens]
        for index, token in enumerate(ids):
            if node.fails_with is not None and index == node.fails_after:
                raise node.fails_with
            await node.gate.wait()
            self.push(EngineChunk([token], None, Finish("length") if index == len(ids) - 1 else None))

    def leave(self) -> None:
        self.node.open -= 1


def unreachable() -> EngineError:
    return EngineError(503, "engine_unreachable", "not there")


async def balanced(*nodes: Engine) -> BalancedEngine:
    engine = BalancedEngine(nodes, backoff=QUICK)
    await engine.start()
    return engine


async def test_request_goes_where_the_fewest_are_in_flight() -> None:
    nodes = [Node(), Node(), Node()]
    for node in nodes:
        node.gate.clear()
    engine = await balanced(*nodes)
    tasks = [asyncio.ensure_future(collect(engine, ask())) for _ in range(9)]
    await until(lambda: [node.open for node in nodes] == [3, 3, 3])
    nodes[1].gate.set()
    await until(lambda: not nodes[1].open)
    tasks += [asyncio.ensure_future(collect(engine, ask())) for _ in range(3)]
    await until(lambda: sum(node.served for node in nodes) == 12)
    assert [node.served for node in nodes] == [3, 6, 3]
    for node in nodes:
        node.gate.set()
    await asyncio.gather(*tasks)
    await engine.stop()


@pytest.mark.parametrize("code", ["engine_unreachable", "engine_overloaded"])
async def test_request_that_was_not_taken_goes_to_another_engine(code: str) -> None:
    nodes = [Node(fails_with=EngineError(503, code, "no")), Node()]
    engine = await balanced(*nodes)
    for _ in range(3):
        assert len(ids_of(await collect(engine, ask()))) == 12
    assert nodes[1].served == 3
    await engine.stop()


@pytest.mark.parametrize("code", ["engine_error", "engine_disconnected", "engine_timeout"])
async def test_request_that_an_engine_died_of_visits_no_other(code: str) -> None:
    nodes = [Node(fails_with=EngineError(502, code, "boom")), Node()]
    engine = await balanced(*nodes)
    with pytest.raises(EngineError, match="boom"):
        await collect(engine, ask())
    assert [node.served for node in nodes] == [1, 0]
    await engine.stop()


async def test_nothing_is_repeated_after_the_first_chunk() -> None:
    nodes = [Node(fails_with=unreachable(), fails_after=2), Node()]
    engine = await balanced(*nodes)
    chunks = Chunks(engine, ask())
    assert len([await anext(chunks), await anext(chunks)]) == 2
    with pytest.raises(EngineError):
        await anext(chunks)
    assert nodes[1].served == 0
    await engine.stop()


async def test_unreachable_engine_is_put_aside_and_probed_back() -> None:
    nodes = [Node(fails_with=unreachable(), well=False), Node()]
    engine = await balanced(*nodes)
    for _ in range(5):
        await collect(engine, ask())
    assert [node.served for node in nodes] == [1, 5]
    nodes[0].fails_with, nodes[0].well = None, True
    await until(lambda: not engine._members[0].aside)
    await collect(engine, ask())
    assert nodes[0].served == 2
    await engine.stop()


async def test_engine_that_fails_again_and_again_is_put_aside() -> None:
    nodes = [Node(fails_with=EngineError(502, "engine_error", "boom"), well=False), Node()]
    engine = await balanced(*nodes)
    outcomes = await asyncio.gather(*(collect(engine, ask()) for _ in range(20)), return_exceptions=True)
    for _ in range(5):
        outcomes.append(await collect(engine, ask()))
    served = nodes[0].served
    await collect(engine, ask())
    assert nodes[0].served == served
    assert sum(isinstance(outcome, EngineError) for outcome in outcomes) == served
    await engine.stop()


async def test_clients_mistakes_put_no_engine_aside() -> None:
    nodes = [Node(fails_with=EngineError(400, "invalid_value", "no")), Node()]
    engine = await balanced(*nodes)
    for _ in range(5):
        with pytest.raises(EngineError):
            await collect(engine, ask())
    assert nodes[0].served == 5
    await engine.stop()


async def test_all_aside_is_still_tried_and_then_told() -> None:
    nodes = [Node(fails_with=unreachable(), well=False) for _ in range(2)]
    engine = await balanced(*nodes)
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            await collect(engine, ask())
        assert caught.value.status == 503
    nodes[1].fails_with = None
    assert ids_of(await collect(engine, ask()))
    await engine.stop()


async def test_leaving_leaves_the_engine_and_frees_its_place() -> None:
    nodes = [Node(), Node()]
    engine = await balanced(*nodes)
    for _ in range(4):
        chunks = Chunks(engine, ask())
        await anext(chunks)
        await chunks.aclose()
    assert [node.open for node in nodes] == [0, 0]
    assert nodes[0].served == 4
    await engine.stop()


async def test_one_engine_is_enough_to_start_and_the_other_joins_later() -> None:
    late = Node(starts=False, info=replace(INFO, context_length=2048))
    engine = await balanced(late, Node())
    assert engine.info.context_length == 4096
    late.starts = True
    await until(lambda: engine.info.context_length == 2048)
    await collect(engine, ask())
    assert late.served == 1
    await engine.stop()


async def test_no_engine_is_a_start_error() -> None:
    with pytest.raises(EngineStartError, match="nobody listens"):
        await balanced(Node(starts=False), Node(starts=False))


async def test_engine_of_another_model_does_not_join() -> None:
    other = Node(info=replace(INFO, vocab_size=7))
    engine = await balanced(Node(), other)
    for _ in range(3):
        await collect(engine, ask())
    assert other.served == 0
    assert other.stopped
    await engine.stop()


async def test_info_is_what_every_engine_can_do() -> None:
    engine = await balanced(
        Node(info=replace(INFO, defers_constraints=True, prompt_logprobs=True, max_logprobs=5)),
        Node(info=replace(INFO, context_length=100, constraints=frozenset({"regex"}), media=frozenset())),
    )
    info = engine.info
    assert (info.context_length, info.max_logprobs, info.constraints) == (100, 5, {"regex"})
    assert (info.defers_constraints, info.prompt_logprobs, info.media) == (False, False, frozenset())
    await engine.stop()


async def test_health_is_good_while_one_engine_is_well() -> None:
    nodes = [Node(well=False), Node()]
    engine = await balanced(*nodes)
    assert (await engine.health()).ok
    await collect(engine, ask())
    assert nodes[0].served == 0
    nodes[1].well = False
    assert not (await engine.health()).ok
    assert not (await engine.health()).ok
    nodes[0].well = True
    await until(lambda: not engine._members[0].aside)
    assert (await engine.health()).ok
    await engine.stop()


class TestBalancedContract(EngineContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[EngineCase]:
        fakes = [FakeSGLang(), FakeSGLang(incremental=True)]

        async def running() -> int:
            return sum(len(fake.model.running) for fake in fakes)

        async with serving(fakes[0]) as one, serving(fakes[1]) as other:
            engine = await balanced(*(SGLangEngine(url, ModelFacts(1000)) for url in (one, other)))
            yield EngineCase(
                engine,
                prompts=[[1, 2, 3], [4, 5, 6], [7, 8, 9]],
                running=running,
                slow_prompt=[SLOW, 1],
                bad_constraints=[Constraint("json_schema", "{")],
                concurrency=32,
            )
            await engine.stop()


async def test_an_engine_that_freezes_is_put_aside_before_its_users_time_out() -> None:
    """Twice in a row it has made nothing and is not well; one that is slow and well is left alone."""
    frozen, slow, quick = nodes = [Node(), Node(), Node()]
    engine = BalancedEngine(nodes, backoff=Backoff(30, 30, look=0.02))
    await engine.start()
    for node in (frozen, slow):
        node.gate.clear()
    held = [asyncio.ensure_future(collect(engine, ask())) for _ in range(2)]
    await until(lambda: frozen.open and slow.open)
    frozen.well = False
    await until(lambda: engine._members[0].aside)
    before = frozen.served
    for _ in range(6):
        await asyncio.wait_for(collect(engine, ask()), PATIENCE)
    assert frozen.served == before
    assert not engine._members[1].aside
    assert quick.served >= 6
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await engine.stop()


async def test_an_engine_with_another_model_is_put_aside_and_the_request_goes_on() -> None:
    nodes = [Node(fails_with=EngineError(503, "engine_unhealthy", "another model"), well=False), Node()]
    engine = await balanced(*nodes)
    assert len(ids_of(await collect(engine, ask()))) == 12
    assert engine.stranger == ""
    for node in nodes:
        node.stranger = "another"
    assert engine.stranger == "another"
    await engine.stop()


async def test_a_shortage_of_ours_is_no_fault_of_an_engine() -> None:
    nodes = [Node(fails_with=EngineError(503, "overloaded", "no open files")), Node()]
    engine = await balanced(*nodes)
    for _ in range(5):
        with pytest.raises(EngineError):
            await collect(engine, ask())
    assert nodes[0].served == 5
    await engine.stop()
