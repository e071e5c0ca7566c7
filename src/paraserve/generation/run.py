"""One request against the engine: every choice at once, their reply events handed on as they come.

Owns the lifetime of the generations: when the run ends, for whatever reason, every engine generation of the request
is over: ended, or aborted. If one choice fails the request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

from paraserve.engines.base import (
    Engine,
    EngineChunk,
    EngineError,
    EngineRequest,
    Generation,
    Sink,
    TokenLogprob,
    joined,
)
from paraserve.generation.choice import Choice
from paraserve.generation.events import GeneratedToken, PromptScored, ReplyEvent, Usage
from paraserve.generation.thinking_budget import ThinkingBudget
from paraserve.generation.timings import Timings
from paraserve.protocol.error_codes import ErrorCode

Take = Callable[[Sequence[ReplyEvent]], Awaitable[object] | None]
"""Takes reply events that are there together. What it returns, if anything, is awaited before it is given more: a
reader that falls behind."""

MOST_HELD = 64
"""Chunks that wait one by one for such a reader; more are made one."""


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One choice, the engine request that feeds it, and how that goes."""

    request: EngineRequest
    choice: Choice
    budget: ThinkingBudget | None = None
    """Where reasoning may take only so many tokens."""
    timings: Timings = field(default_factory=Timings)

    def submit(self, engine: Engine, sink: Sink) -> Generation:
        if self.budget is None:
            return engine.submit(self.request, sink)
        return self.budget.submit(engine, self.request, sink)


async def run_reply(engine: Engine, runs: Sequence[EngineRun], take: Take, *, prompts: int = 1) -> None:
    """Hand ``take`` the reply events of all choices, those together that are there together; `Usage` last.

    Between the engine's read and the socket there are plain calls only: this coroutine is resumed when a reader falls
    behind, and at the end.

    Args:
        prompts: how many different prompts the runs share; runs of one prompt stand together.

    Raises:
        EngineError: the engine refused or failed.
    """
    if len(runs) == 1:
        last = await _generate(engine, runs[0], take)
    else:
        await _generate_all(engine, runs, take)
        last = []
    await _hand(take, [*last, usage_of(runs, prompts)])


async def _hand(take: Take, events: Sequence[ReplyEvent]) -> None:
    if (behind := take(events)) is not None:
        await behind


async def _generate(engine: Engine, run: EngineRun, take: Take) -> list[ReplyEvent]:
    """Run one choice. Returns its last events, which are still to be handed on."""
    pushed = _PushedChoice(run, take)
    run.timings.ask()
    pushed.generation = run.submit(engine, pushed)
    try:
        return await pushed.last_events()
    except EngineError as error:
        run.timings.failure = error
        raise
    finally:
        run.timings.end()
        pushed.close()


class _PushedChoice:
    """The sink of one choice: what is pushed is advanced and handed on by plain calls, within the push. What comes
    while the reader is behind is held, in order, and the engine asked to wait at the first of it."""

    def __init__(self, run: EngineRun, take: Take) -> None:
        self.generation: Generation
        self._run = run
        self._hand_on = take
        self._last: list[ReplyEvent] | None = None
        """Of a choice that has ended."""
        self._failure: Exception | None = None
        self._unfinished: Exception | None = None
        """What it is to fail with that the engine has ended, unless what is held ends the choice."""
        self._behind: Awaitable[object] | None = None
        self._held: list[EngineChunk] = []
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when there is something to wait for, or nothing any more."""

    def take(self, chunk: EngineChunk) -> None:
        if self._behind is not None:
            self._hold(chunk)
        elif self._last is None and self._failure is None:
            self._advance(chunk)

    def end(self, error: Exception | None) -> None:
        self._unfinished = error or EngineError(
            502, ErrorCode.ENGINE_ERROR, "The engine ended the reply without saying why."
        )
        self._wake()

    async def last_events(self) -> list[ReplyEvent]:
        """Raises what the reply failed with."""
        while True:
            await self._turn
            if self._behind is None:
                break
            self._turn = asyncio.get_running_loop().create_future()
            await self._behind
            self._catch_up()
        if self._last is not None:
            return self._last
        failure = self._failure or self._unfinished
        assert failure is not None
        raise failure

    def close(self) -> None:
        self.generation.abort()
        del self.generation  # which holds its sink: nothing waits for the collector of circles
        if isinstance(self._behind, Coroutine):
            self._behind.close()  # nobody waits for it any more

    def _advance(self, chunk: EngineChunk) -> None:
        run, choice, finish = self._run, self._run.choice, chunk.finish
        if finish is not None and finish.reason == "abort":
            chunk.finish = None  # the tokens before it are the reply's all the same
        events: list[ReplyEvent] = []
        try:
            run.timings.take(len(chunk.token_ids))
            if chunk.prompt_logprobs is not None:
                events.append(PromptScored(choice.index, _scored(run.request.token_ids, chunk.prompt_logprobs)))
            for part in _parts(chunk):
                events.append(choice.advance(part))
                if choice.end is not None:
                    break
            if choice.end is not None:
                self._last = [*events, choice.end]
            else:
                self._behind = self._hand_on(events)
                if finish is not None:
                    raise EngineError(502, ErrorCode.ENGINE_ABORTED, "The engine aborted the generation.")
        except Exception as error:  # noqa: BLE001 - raised where the run is awaited: others of this turn go on
            self._failure = error
        over = self._last is not None or self._failure is not None
        if over and finish is None:  # a stop string, or our own limit
            self.generation.abort()
        if over or self._behind is not None:
            self._wake()

    def _hold(self, chunk: EngineChunk) -> None:
        if not self._held:
            self.generation.pause()
        self._held.append(chunk)
        if len(self._held) == MOST_HELD:
            self._held = [joined(self._held)]

    def _catch_up(self) -> None:
        """The reader is ready for what is held."""
        self._behind = None
        held, self._held = self._held, []
        for chunk in held:
            self.take(chunk)
        if held and not self._held:
            self.generation.resume()
        if self._unfinished is not None:
            self._wake()

    def _wake(self) -> None:
        if not self._turn.done():
            self._turn.set_result(None)


async def _generate_all(engine: Engine, runs: Sequence[EngineRun], take: Take) -> None:
    """Run several choices at once. The first to fail ends the others."""

    async def run_one(run: EngineRun) -> None:
        await _hand(take, await _generate(engine, run, take))

    tasks = [asyncio.create_task(run_one(run)) for run in runs]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parts(chunk: EngineChunk) -> Sequence[EngineChunk]:
    """The chunk; of one with log probabilities its tokens, each of which gets an event of its own."""
    ids, scores = chunk.token_ids, chunk.logprobs
    if scores is None or len(ids) < 2:
        return (chunk,)
    parts = [EngineChunk([token_id], [score]) for token_id, score in zip(ids, scores, strict=True)]
    parts[0].prompt_tokens, parts[0].cached_tokens = chunk.prompt_tokens, chunk.cached_tokens
    parts[-1].finish = chunk.finish
    return parts


def _scored(token_ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]) -> list[GeneratedToken | None]:
    return [
        None if entry is None else GeneratedToken(token_id, "", entry.logprob, entry.top)
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]


def usage_of(runs: Sequence[EngineRun], prompts: int) -> Usage:
    """Token counts of a request's runs, so far or in the end. ``prompts`` as in `run_reply`."""
    if len(runs) == 1:  # as nearly always
        choice = runs[0].choice
        return Usage(_prompt_tokens(runs[0]), choice.completion_tokens, choice.reasoning_tokens, choice.cached_tokens)
    choices = [run.choice for run in runs]
    per_prompt = len(runs) // prompts
    shared = [runs[first : first + per_prompt] for first in range(0, len(runs), per_prompt)]
    cached = [count for group in shared if (count := _cached_tokens(group)) is not None]
    return Usage(
        prompt_tokens=sum(_prompt_tokens(group[0]) for group in shared),
        completion_tokens=sum(choice.completion_tokens for choice in choices),
        reasoning_tokens=sum(choice.reasoning_tokens for choice in choices),
        cached_tokens=sum(cached) if cached else None,
    )


def _prompt_tokens(run: EngineRun) -> int:
    """The engine's own count where it gave one: media take tokens that are not among the ids."""
    counted = run.choice.prompt_tokens
    return len(run.request.token_ids) if counted is None else counted


def _cached_tokens(runs: Sequence[EngineRun]) -> int | None:
    """Of a prompt that several choices share: what the first to run found, which is the least of them."""
    return min((run.choice.cached_tokens for run in runs if run.choice.cached_tokens is not None), default=None)
