"""One request against the engine: every choice at once, merged into one stream of reply events.

Owns the lifetime of the generations: when the caller stops iterating, for whatever reason, every engine generation
of the request is closed before control returns. If one choice fails the request fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from paraserve.engines.base import Engine, EngineError, EngineRequest, TokenLogprob
from paraserve.generation.choice import Choice
from paraserve.generation.course import Course
from paraserve.generation.events import GeneratedToken, PromptScored, ReplyEvent, Usage

_AHEAD = 8


@dataclass(frozen=True, slots=True)
class EngineRun:
    """One choice, the engine request that feeds it, and how that goes."""

    request: EngineRequest
    choice: Choice
    course: Course = field(default_factory=Course)


async def reply_events(
    engine: Engine, runs: Sequence[EngineRun], *, prompts: int = 1
) -> AsyncGenerator[ReplyEvent, None]:
    """Reply events of all choices; `Usage` last.

    Args:
        prompts: how many different prompts the runs share; runs of one prompt stand together.

    Raises:
        EngineError: the engine refused or failed.
    """
    async with aclosing(_one(engine, runs[0]) if len(runs) == 1 else _merge(engine, runs)) as events:
        async for event in events:
            yield event
    yield usage_of(runs, prompts)


async def _one(engine: Engine, run: EngineRun) -> AsyncGenerator[ReplyEvent, None]:
    choice, course = run.choice, run.course
    course.ask()
    chunks = engine.generate(run.request)
    try:
        async for chunk in chunks:
            course.take(len(chunk.token_ids))
            if chunk.prompt_logprobs is not None:
                yield PromptScored(choice.index, _scored(run.request.token_ids, chunk.prompt_logprobs))
            yield choice.advance(chunk)
            if choice.end is not None:
                break
        else:
            raise EngineError(502, "engine_error", "The engine ended the reply without saying why.", retryable=True)
    except EngineError as error:
        course.failure = error
        raise
    finally:
        course.end()
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()
    assert choice.end is not None
    yield choice.end


async def _merge(engine: Engine, runs: Sequence[EngineRun]) -> AsyncGenerator[ReplyEvent, None]:
    """Events of several choices as they come; at most `_AHEAD` events a choice wait for a slow reader."""
    queue: asyncio.Queue[ReplyEvent | int] = asyncio.Queue()
    room = asyncio.Semaphore(_AHEAD * len(runs))

    async def pump(number: int) -> None:
        try:
            async with aclosing(_one(engine, runs[number])) as events:
                async for event in events:
                    await room.acquire()
                    queue.put_nowait(event)
        finally:
            queue.put_nowait(number)

    tasks = [asyncio.create_task(pump(number)) for number in range(len(runs))]
    try:
        running = len(tasks)
        while running:
            event = await queue.get()
            if isinstance(event, int):
                running -= 1
                await tasks[event]
            else:
                room.release()
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
