"""What every engine adapter promises, as tests that each adapter's own test file subclasses.

A subclass gives one fixture, ``case``, and inherits the tests. A test may only use what `EngineCase` tells it, so that
the same test runs against a scripted engine, against a fake of somebody's server, and against a real model.

    class TestMyAdapter(EngineContract):
        @pytest.fixture
        async def case(self) -> AsyncIterator[EngineCase]:
            ...
            yield EngineCase(engine=engine, prompts=[[1, 2], [3, 4]], running=fake.running)
            await engine.stop()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import get_args
from uuid import uuid4

import pytest

from paraserve.engines.base import (
    Constraint,
    ConstraintKind,
    Engine,
    EngineChunk,
    EngineError,
    EngineRequest,
    Sampling,
)
from tests.waiting import PATIENCE

GREEDY = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)


@dataclass
class EngineCase:
    """A started engine and what its adapter's contract tests need to know of it."""

    engine: Engine
    prompts: Sequence[Sequence[int]]
    """At least two prompts whose greedy replies (end tokens ignored) are 64 tokens or longer and differ."""
    running: Callable[[], Awaitable[int]]
    """How many sequences the program behind the adapter is working on or has queued."""
    slow_prompt: Sequence[int] | None = None
    """A prompt whose first token takes long enough for a test to close the iterator before it, where there is one."""
    capacity: int | None = None
    """Sequences that run at once; one more is queued. None where the engine does not queue."""
    bad_constraints: Sequence[Constraint] = ()
    """Constraints of declared kinds that the engine must refuse with a 4xx."""
    concurrency: int = 100
    greedy: Sampling = GREEDY
    longest: int = 64
    """Tokens that a greedy reply to any of `prompts` surely has."""
    abort_seconds: float = PATIENCE
    """Seconds in which what was left is ended, on a machine that is busy. That nothing goes on to its end is counted
    where aborts are (`remote_faults.py`)."""
    seconds: float = PATIENCE
    """Longest that one test's work may take."""


class Chunks:
    """A generation as an iterator over what is pushed, and a `Sink` that minds the contract. Asked for at once; closing
    it aborts it. ``pushed`` and ``ends`` are what it was given so far, taken or not."""

    def __init__(self, engine: Engine, request: EngineRequest) -> None:
        self.pushed: list[EngineChunk] = []
        self.ends: list[Exception | None] = []
        self.breaches: list[str] = []
        """Of the contract."""
        self._taken = 0
        self._closed = False
        self._more = asyncio.Event()
        self._calling = True
        self.generation = engine.submit(request, self)
        self._calling = False

    def take(self, chunk: EngineChunk) -> None:
        self._mind()
        self._more.set()
        if self.finished:
            self.breaches.append("a chunk behind the finish")
        self.pushed.append(chunk)
        if chunk.finish is not None:
            asyncio.get_running_loop().call_soon(self._mind_end)

    def end(self, error: Exception | None) -> None:
        self._mind()
        self._more.set()
        if error is None and not self.finished:
            self.breaches.append("an end without a reason")
        self.ends.append(error)

    @property
    def finished(self) -> bool:
        return bool(self.pushed) and self.pushed[-1].finish is not None

    def pause(self) -> None:
        self._calling = True
        self.generation.pause()
        self._calling = False

    def resume(self) -> None:
        self._calling = True
        self.generation.resume()
        self._calling = False

    def _mind(self) -> None:
        if self._calling:
            self.breaches.append("pushed from within a call")
        if self._closed:
            self.breaches.append("pushed behind an abort")
        if self.ends:
            self.breaches.append("pushed behind the end")

    def _mind_end(self) -> None:
        if not self.ends and not self._closed:
            self.breaches.append("no end in the turn of the finish")

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> EngineChunk:
        while self._taken == len(self.pushed) and not self.ends and not self._closed:
            self._more.clear()
            await self._more.wait()
        assert not self.breaches
        if self._taken < len(self.pushed):
            self._taken += 1
            return self.pushed[self._taken - 1]
        if self.ends and self.ends[0] is not None:
            raise self.ends[0]
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Abort it, and once more."""
        self._closed = True
        for _ in range(2):
            self.generation.abort()


class ClosedByItself(Chunks):
    """Aborts with its first chunk, while that is pushed."""

    def take(self, chunk: EngineChunk) -> None:
        super().take(chunk)
        self.close()


async def collect(engine: Engine, request: EngineRequest) -> list[EngineChunk]:
    async with aclosing(Chunks(engine, request)) as chunks:
        return [chunk async for chunk in chunks]


def ids_of(chunks: Sequence[EngineChunk]) -> list[int]:
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


async def idle(case: EngineCase) -> bool:
    """Whether the engine has nothing to do any more, within the case's seconds."""
    deadline = time.monotonic() + case.abort_seconds
    while time.monotonic() < deadline:
        if await case.running() == 0:
            return True
        await asyncio.sleep(0.02)
    return await case.running() == 0


class EngineContract:
    """Inherit, and give the fixture ``case``."""

    def request(self, case: EngineCase, prompt: Sequence[int] | None = None, **changes: object) -> EngineRequest:
        sampling = replace(case.greedy, **changes.pop("sampling", {}))  # type: ignore[arg-type]
        return EngineRequest(
            request_id=uuid4().hex,
            token_ids=case.prompts[0] if prompt is None else prompt,
            sampling=sampling,
            **changes,  # type: ignore[arg-type]
        )

    async def test_chunks_hold_only_new_tokens(self, case: EngineCase) -> None:
        short = ids_of(await collect(case.engine, self.request(case, sampling={"max_tokens": 6})))
        long = ids_of(await collect(case.engine, self.request(case, sampling={"max_tokens": 24})))
        assert len(short) == 6
        assert len(long) == 24
        assert long[:6] == short

    async def test_the_finish_comes_once_and_last(self, case: EngineCase) -> None:
        chunks = await collect(case.engine, self.request(case))
        assert [chunk.finish is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1].finish is not None
        assert chunks[-1].finish.reason == "length"

    async def test_a_limit_of_one_token_gives_one_token(self, case: EngineCase) -> None:
        assert len(ids_of(await collect(case.engine, self.request(case, sampling={"max_tokens": 1})))) == 1

    async def test_logprobs_are_one_per_token_with_the_best_first(self, case: EngineCase) -> None:
        wanted = min(3, case.engine.info.max_logprobs)
        chunks = await collect(case.engine, self.request(case, logprobs=wanted))
        for chunk in chunks:
            entries = chunk.logprobs or ()
            assert [entry.token_id for entry in entries] == list(chunk.token_ids)
            for entry in entries:
                assert entry.logprob <= 0.0
                assert len(entry.top) == wanted
                assert [value for _, value in entry.top] == sorted((value for _, value in entry.top), reverse=True)
                assert dict(entry.top).get(entry.token_id, entry.logprob) == pytest.approx(entry.logprob, abs=1e-4)
        assert ids_of(chunks)

    async def test_zero_logprobs_gives_the_sampled_token_only(self, case: EngineCase) -> None:
        chunks = await collect(case.engine, self.request(case, logprobs=0))
        entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        assert [entry.token_id for entry in entries] == ids_of(chunks)
        assert all(len(entry.top) == 0 for entry in entries)

    async def test_logprobs_are_absent_unless_asked_for(self, case: EngineCase) -> None:
        assert all(not chunk.logprobs for chunk in await collect(case.engine, self.request(case)))

    async def test_a_stop_token_ends_the_reply_and_is_its_last_token(self, case: EngineCase) -> None:
        free = ids_of(await collect(case.engine, self.request(case)))
        stop = next(token_id for index, token_id in enumerate(free) if index >= 2 and token_id not in free[:index])
        chunks = await collect(case.engine, self.request(case, sampling={"stop_token_ids": (stop,)}))
        assert ids_of(chunks) == free[: free.index(stop) + 1]
        assert chunks[-1].finish is not None
        assert chunks[-1].finish.reason == "stop"
        assert chunks[-1].finish.matched == stop
        assert await idle(case)

    async def test_counts_of_the_prompt_are_reported(self, case: EngineCase) -> None:
        chunks = await collect(case.engine, self.request(case))
        counted = [chunk.prompt_tokens for chunk in chunks if chunk.prompt_tokens is not None]
        assert set(counted) == {len(case.prompts[0])}
        assert all(chunk.cached_tokens is None or 0 <= chunk.cached_tokens <= counted[0] for chunk in chunks)

    async def test_closing_in_mid_stream_aborts(self, case: EngineCase) -> None:
        request = self.request(case, sampling={"max_tokens": case.longest})
        async with aclosing(Chunks(case.engine, request)) as chunks:
            async for _ in chunks:
                break
        assert await idle(case)
        assert ids_of(await collect(case.engine, self.request(case)))

    async def test_closing_before_the_first_token_aborts(self, case: EngineCase) -> None:
        request = self.request(case, case.slow_prompt, sampling={"max_tokens": case.longest})
        await self._leave_when_it_runs(case, request)
        assert await idle(case)

    async def test_closing_while_queued_aborts(self, case: EngineCase) -> None:
        holders = [
            Chunks(case.engine, self.request(case, prompt, sampling={"max_tokens": case.longest}))
            for prompt in (list(case.prompts) * (case.capacity or 1))[: case.capacity or 1]
        ]
        try:
            await asyncio.gather(*(anext(holder) for holder in holders))
            await self._leave_when_it_runs(case, self.request(case, sampling={"max_tokens": case.longest}))
        finally:
            for holder in holders:
                await holder.aclose()
        assert await idle(case)

    async def _leave_when_it_runs(self, case: EngineCase, request: EngineRequest) -> None:
        """Or is queued, or is over already: which of it an engine says, and how fast it is, is its own."""
        before = await case.running()
        waiting = asyncio.ensure_future(collect(case.engine, request))
        for _ in range(20):
            await asyncio.sleep(0.01)
            if waiting.done() or await case.running() > before:
                break
        waiting.cancel()
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(outcome, (list, asyncio.CancelledError))

    async def test_the_end_comes_once_behind_the_finish(self, case: EngineCase) -> None:
        async with aclosing(Chunks(case.engine, self.request(case))) as chunks:
            async for _ in chunks:
                pass
            assert await idle(case)
            chunks.generation.abort()  # of what has ended: nothing
            assert (chunks.ends, chunks.breaches) == ([None], [])

    async def test_a_refusal_is_the_end_and_comes_in_a_later_turn(self, case: EngineCase) -> None:
        for request in self._refused(case):
            async with aclosing(Chunks(case.engine, request)) as chunks:
                assert chunks.ends == []
                with pytest.raises(EngineError):
                    await anext(chunks)
                assert (chunks.pushed, len(chunks.ends), chunks.breaches) == ([], 1, [])

    def _refused(self, case: EngineCase) -> list[EngineRequest]:
        undeclared = set(get_args(ConstraintKind)) - case.engine.info.constraints
        return [self.request(case, constraint=Constraint(kind, "{}")) for kind in sorted(undeclared)]

    async def test_nothing_is_pushed_behind_an_abort(self, case: EngineCase) -> None:
        chunks = Chunks(case.engine, self.request(case, sampling={"max_tokens": case.longest}))
        await anext(chunks)
        chunks.close()
        assert await idle(case)
        assert ids_of(await collect(case.engine, self.request(case)))
        assert (chunks.ends, chunks.breaches) == ([], [])

    async def test_a_sink_may_abort_while_it_takes(self, case: EngineCase) -> None:
        chunks = ClosedByItself(case.engine, self.request(case, sampling={"max_tokens": case.longest}))
        await anext(chunks)
        assert await idle(case)
        assert (len(chunks.pushed), chunks.ends, chunks.breaches) == (1, [], [])

    async def test_a_paused_reply_is_whole_and_in_order_when_it_goes_on(self, case: EngineCase) -> None:
        request = self.request(case, sampling={"max_tokens": case.longest})
        expected = ids_of(await collect(case.engine, request))
        async with aclosing(Chunks(case.engine, self.request(case, sampling={"max_tokens": case.longest}))) as chunks:
            await anext(chunks)
            for _ in range(3):
                chunks.pause()
                chunks.pause()
                await asyncio.sleep(0.02)
                chunks.resume()
                chunks.resume()
                await asyncio.sleep(0)
            async for _ in chunks:
                pass
            assert (ids_of(chunks.pushed), chunks.ends, chunks.breaches) == (expected, [None], [])
        assert await idle(case)

    async def test_a_reply_that_is_paused_before_it_begins_goes_on_all_the_same(self, case: EngineCase) -> None:
        expected = ids_of(await collect(case.engine, self.request(case)))
        async with aclosing(Chunks(case.engine, self.request(case))) as chunks:
            chunks.pause()
            await asyncio.sleep(0.05)
            chunks.resume()
            assert ids_of([chunk async for chunk in chunks]) == expected

    async def test_a_paused_reply_can_be_aborted(self, case: EngineCase) -> None:
        chunks = Chunks(case.engine, self.request(case, sampling={"max_tokens": case.longest}))
        await anext(chunks)
        chunks.pause()
        await asyncio.sleep(0)
        chunks.close()
        chunks.resume()
        assert await idle(case)
        assert (chunks.ends, chunks.breaches) == ([], [])

    async def test_concurrent_streams_do_not_mix(self, case: EngineCase) -> None:
        async with asyncio.timeout(case.seconds):
            alone = [ids_of(await collect(case.engine, self.request(case, prompt))) for prompt in case.prompts]
            assert len({tuple(ids) for ids in alone}) == len(alone)
            picks = [index % len(case.prompts) for index in range(case.concurrency)]
            replies = await asyncio.gather(
                *(collect(case.engine, self.request(case, case.prompts[pick])) for pick in picks)
            )
        assert [ids_of(reply) for reply in replies] == [alone[pick] for pick in picks]
        assert await idle(case)

    async def test_several_choices_of_one_prompt_run_at_once_and_are_each_whole(self, case: EngineCase) -> None:
        """What ``n`` becomes: the layer fans out."""
        alone = ids_of(await collect(case.engine, self.request(case)))
        choices = await asyncio.gather(*(collect(case.engine, self.request(case)) for _ in range(3)))
        assert [ids_of(choice) for choice in choices] == [alone] * 3
        assert await idle(case)

    async def test_a_constraint_of_an_undeclared_kind_is_refused(self, case: EngineCase) -> None:
        for request in self._refused(case):
            with pytest.raises(EngineError) as caught:
                await collect(case.engine, request)
            assert 400 <= caught.value.status < 500
        assert await idle(case)

    async def test_a_bad_constraint_is_the_clients_error(self, case: EngineCase) -> None:
        for constraint in case.bad_constraints:
            with pytest.raises(EngineError) as caught:
                await collect(case.engine, self.request(case, constraint=constraint))
            assert 400 <= caught.value.status < 500, constraint
        assert ids_of(await collect(case.engine, self.request(case)))

    async def test_the_engine_is_well_while_it_runs(self, case: EngineCase) -> None:
        assert (await case.engine.health()).ok
        assert case.engine.info.context_length > 0
        assert case.engine.info.vocab_size > max(max(prompt) for prompt in case.prompts)
