"""A generation whose reasoning may take only so many tokens, whatever engine it runs on.

When the budget is used up the generation is closed, and another one goes on behind the same tokens and the marker that
ends the reasoning; whoever reads the chunks sees one reply. Engines keep what they have read, so that the second costs
about one token. Never knows a model: the markers are its format's. Two invariants: the engine is asked for no more
tokens than the request allows, and reasoning that ends by itself, or that never began, is let through as it comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from paraserve.engines.base import Constraint, Engine, EngineChunk, EngineRequest

_TAIL_BYTES = 64
"""Longer than any marker."""
_HEAD_TOKENS = 16
"""Within so many tokens reasoning that the prompt did not open begins, or there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBudget:
    """Args:
    tokens: most of the reasoning.
    open: the marker that begins it, empty where the prompt has done so.
    close: the marker that ends it, and its tokens with what stands behind it.
    constraint: what the answer must match, which begins there.
    token_bytes: the text of a token.
    """

    tokens: int
    open: str
    close: str
    close_ids: Sequence[int]
    constraint: Constraint | None
    token_bytes: Callable[[int], bytes]

    async def generate(self, engine: Engine, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """The chunks of the reply. Raises `EngineError`."""
        made: list[int] = []
        text = b""
        opened = not self.open
        watching = True
        async with aclosing(engine.generate(request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                if watching and chunk.finish is None:
                    chunk = self._within(chunk, len(made))
                    made += chunk.token_ids
                    text = text[-_TAIL_BYTES:] + b"".join(map(self.token_bytes, chunk.token_ids))
                    opened = opened or self.open.encode() in text
                    watching = self.close.encode() not in text and (opened or len(made) < _HEAD_TOKENS)
                yield chunk
                if watching and len(made) >= self.tokens and self._room(request, made) > 0:
                    break
            else:
                return
        yield EngineChunk(self.close_ids)
        async with aclosing(engine.generate(self._further(request, made))) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                # What it counts of its prompt is the reply's own.
                chunk.prompt_tokens = chunk.cached_tokens = None
                yield chunk

    def _within(self, chunk: EngineChunk, before: int) -> EngineChunk:
        """As much of it as the budget has room for: tokens beyond it are made anew, behind the end of reasoning."""
        room = max(self.tokens - before, 0)
        if len(chunk.token_ids) <= room or self.close.encode() in b"".join(map(self.token_bytes, chunk.token_ids)):
            return chunk
        logprobs = None if chunk.logprobs is None else chunk.logprobs[:room]
        return EngineChunk(chunk.token_ids[:room], logprobs, None, chunk.prompt_tokens, chunk.cached_tokens)

    def _room(self, request: EngineRequest, made: Sequence[int]) -> int:
        return request.sampling.max_tokens - len(made) - len(self.close_ids)

    def _further(self, request: EngineRequest, made: Sequence[int]) -> EngineRequest:
        done = len(made) + len(self.close_ids)
        sampling = request.sampling
        return replace(
            request,
            request_id=f"{request.request_id}-answer",
            token_ids=[*request.token_ids, *made, *self.close_ids],
            sampling=replace(
                sampling,
                max_tokens=sampling.max_tokens - done,
                min_tokens=max(sampling.min_tokens - done, 0),
            ),
            constraint=self.constraint,
            in_reasoning=False,
        )
