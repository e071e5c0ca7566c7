"""One request against the engine: every choice at once, merged into one stream of reply events.

Owns the lifetime of the generations: when the caller stops iterating, for whatever reason, every engine generation
of the request is closed before control returns. If one choice fails the request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from paraserve.engines.base import Engine, EngineChunk, EngineError, EngineRequest, TokenLogprob
from paraserve.generation.choice import Choice
from paraserve.generation.course import Course
from paraserve.generation.events import GeneratedToken, PromptScored, ReplyEvent, Usage
from paraserve.generation.ready import ReadyChunks

_AHEAD = 8


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One choice, the engine request that feeds it, and how that goes."""

    request: EngineRequest
    choice: Choice
    course: Course = field(default_factory=Course)


def reply_events(
    engine: Engine, runs: Sequence[EngineRun], *, prompts: int = 1
) -> AsyncGenerator[Sequence[ReplyEvent], None]:
    """Reply events of all choices, those together that are there together; `Usage` last.

    Args:
        prompts: how many different prompts the runs share; runs of one prompt stand together.

    Raises:
        EngineError: the engine refused or failed.
    """
    if len(runs) == 1:
        return _one(engine, runs[0], lambda: [usage_of(runs, prompts)])
    return _merge(engine, runs, lambda: [usage_of(runs, prompts)])


Closing = Callable[[], Sequence[ReplyEvent]]


async def _one(
    engine: Engine, run: EngineRun, closing: Closing = lambda: ()
) -> AsyncGenerator[Sequence[ReplyEvent], None]:
    choice, course = run.choice, run.course
    course.ask()
    ready = ReadyChunks(engine.generate(run.request))
    events: list[ReplyEvent] = []
    try:
        chunk = await ready.first()
        chunks = [] if chunk is None else [chunk]
        while chunks:
            events = []
            try:
                _take(run, chunks, events)
            except EngineError:
                if events:
                    yield events
                raise
            if choice.end is not None:
                if chunks[-1].finish is None:  # a stop string: aborting may take a moment
                    yield events
                    events = []
                break
            yield events
            chunks = await ready.take()
        else:
            raise EngineError(502, "engine_error", "The engine ended the reply without saying why.", retryable=True)
    except EngineError as error:
        course.failure = error
        raise
    finally:
        course.end()
        await ready.aclose()
    assert choice.end is not None
    yield [*events, choice.end, *closing()]


def _take(run: EngineRun, chunks: Sequence[EngineChunk], events: list[ReplyEvent]) -> None:
    """Advance the choice by chunks that came together; ``events`` has what it said when this raises, too."""
    choice = run.choice
    for chunk in chunks if len(chunks) == 1 or run.request.logprobs is not None else _joined(chunks):
        run.course.take(len(chunk.token_ids))
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


async def _merge(
    engine: Engine, runs: Sequence[EngineRun], closing: Closing
) -> AsyncGenerator[Sequence[ReplyEvent], None]:
    """Events of several choices as they come; at most `_AHEAD` lots a choice wait for a slow reader."""
    queue: asyncio.Queue[Sequence[ReplyEvent] | int] = asyncio.Queue()
    room = asyncio.Semaphore(_AHEAD * len(runs))

    async def pump(number: int) -> None:
        try:
            async with aclosing(_one(engine, runs[number])) as lots:
                async for events in lots:
                    await room.acquire()
                    queue.put_nowait(events)
        finally:
            queue.put_nowait(number)

    tasks = [asyncio.create_task(pump(number)) for number in range(len(runs))]
    try:
        running = len(tasks)
        while running:
            events = await queue.get()
            if isinstance(events, int):
                running -= 1
                await tasks[events]
            else:
                room.release()
                yield events
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    yield closing()


def _scored(token_ids: Sequence[int], logprobs: Sequence[TokenLogprob | None]) -> list[GeneratedToken | None]:
    return [
        None if entry is None else GeneratedToken(token_id, "", entry.logprob, entry.top)
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]


def usage_of(runs: Sequence[EngineRun], prompts: int) -> Usage:
    """Token counts of a request's runs, so far or in the end. ``prompts`` as in `reply_events`."""
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
