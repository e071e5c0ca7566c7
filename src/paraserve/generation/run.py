"""One request against the engine: every choice at once, their reply events handed on as they come.

Owns the lifetime of the generations: when the run ends, for whatever reason, every engine generation of the request
has been closed. If one choice fails the request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from paraserve.engines.base import Engine, EngineChunk, EngineError, EngineRequest, TokenLogprob
from paraserve.generation.choice import Choice
from paraserve.generation.events import GeneratedToken, PromptScored, ReplyEvent, Usage
from paraserve.generation.ready import ReadyChunks
from paraserve.generation.thinking_budget import ThinkingBudget
from paraserve.generation.timings import Timings
from paraserve.protocol.error_codes import ErrorCode

Take = Callable[[Sequence[ReplyEvent]], Awaitable[None] | None]
"""Takes reply events that are there together. What it returns, if anything, is awaited before the engine is asked for
more: a reader that falls behind."""


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One choice, the engine request that feeds it, and how that goes."""

    request: EngineRequest
    choice: Choice
    budget: ThinkingBudget | None = None
    """Where reasoning may take only so many tokens."""
    timings: Timings = field(default_factory=Timings)

    def chunks(self, engine: Engine) -> AsyncIterator[EngineChunk]:
        return engine.generate(self.request) if self.budget is None else self.budget.generate(engine, self.request)


async def run_reply(engine: Engine, runs: Sequence[EngineRun], take: Take, *, prompts: int = 1) -> None:
    """Hand ``take`` the reply events of all choices, those together that are there together; `Usage` last.

    Events are pushed, not pulled: between the engine's iterator and the socket there is nothing that would have to be
    resumed for every token.

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
    choice, timings = run.choice, run.timings
    timings.ask()
    ready = ReadyChunks(run.chunks(engine))
    events: list[ReplyEvent] = []
    try:
        while chunks := await ready:
            events = []
            try:
                _advance(run, chunks, events)
            except EngineError:
                if events:
                    await _hand(take, events)
                raise
            if choice.end is not None:
                if chunks[-1].finish is None:  # a stop string: aborting may take a moment
                    await _hand(take, events)
                    events = []
                break
            if (behind := take(events)) is not None:
                await behind
        else:
            raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine ended the reply without saying why.")
    except EngineError as error:
        timings.failure = error
        raise
    finally:
        timings.end()
        await ready.aclose()
    assert choice.end is not None
    return [*events, choice.end]


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


def _advance(run: EngineRun, chunks: Sequence[EngineChunk], events: list[ReplyEvent]) -> None:
    """Advance the choice by chunks that came together; ``events`` has what it said when this raises, too."""
    choice = run.choice
    for chunk in chunks if len(chunks) == 1 or run.request.logprobs is not None else _joined(chunks):
        run.timings.take(len(chunk.token_ids))
        if chunk.prompt_logprobs is not None:
            events.append(PromptScored(choice.index, _scored(run.request.token_ids, chunk.prompt_logprobs)))
        events.append(choice.advance(chunk))
        if choice.end is not None:
            return


def _joined(chunks: Sequence[EngineChunk]) -> list[EngineChunk]:
    """The same tokens in fewer chunks. What carries more than tokens stays as it is."""
    joined: list[EngineChunk] = []
    tokens: list[int] = []
    for chunk in chunks:
        if chunk.finish is None and chunk.prompt_tokens is None and chunk.prompt_logprobs is None:
            if not tokens:
                joined.append(EngineChunk(tokens, cached_tokens=chunk.cached_tokens))
            elif chunk.cached_tokens is not None:
                joined[-1].cached_tokens = chunk.cached_tokens
            tokens += chunk.token_ids
        else:
            joined.append(chunk)
            tokens = []
    return joined


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
