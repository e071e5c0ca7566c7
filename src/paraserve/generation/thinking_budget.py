"""A generation whose reasoning may take only so many tokens, whatever engine it runs on.

When the budget is used up the generation is aborted, and another one goes on behind the same tokens and the marker that
ends the reasoning; the sink sees one reply. Engines keep what they have read, so that the second costs
about one token. Never knows a model: the markers are its format's. Two invariants: the engine is asked for no more
tokens than the request allows, and reasoning that ends by itself, or that never began, is let through as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paraserve.engines.base import Constraint, Engine, EngineChunk, EngineRequest, Generation, Sink
from paraserve.engines.relay import Relay

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

    def submit(self, engine: Engine, request: EngineRequest, sink: Sink) -> Generation:
        """`Engine.submit`, within the budget."""
        return _BudgetedGeneration(self, engine, request, sink)


class _BudgetedGeneration(Relay):
    """The reply while it reasons, and then what answers."""

    def __init__(self, budget: ThinkingBudget, engine: Engine, request: EngineRequest, sink: Sink) -> None:
        super().__init__(sink)
        self._budget = budget
        self._engine = engine
        self._request = request
        self._made: list[int] = []
        self._text = b""
        self._opened = not budget.open
        # Else there is no room behind the budget for the end of the reasoning and an answer.
        self._watching = request.sampling.max_tokens > budget.tokens + len(budget.close_ids)
        self._answering = False
        self.ask(engine, request)

    def take(self, chunk: EngineChunk) -> None:
        if self._answering:  # what it counts of its prompt is the reply's own
            chunk.prompt_tokens = chunk.cached_tokens = None
        elif self._watching:
            chunk = self._watched(chunk)
        self.sink.take(chunk)
        if self._watching and len(self._made) >= self._budget.tokens and chunk.finish is None and not self.over:
            self._answer()

    def _watched(self, chunk: EngineChunk) -> EngineChunk:
        """As much of it as the budget has room for: tokens beyond it are made anew, behind the end of reasoning."""
        budget, made = self._budget, self._made
        room = budget.tokens - len(made)
        within = chunk.token_ids[:room]
        made += within
        self._text = self._text[-_TAIL_BYTES:] + b"".join(map(budget.token_bytes, within))
        self._opened = self._opened or budget.open.encode() in self._text
        closed = budget.close.encode() in self._text
        self._watching = not closed and (self._opened or len(made) < _HEAD_TOKENS)
        if not self._watching or len(chunk.token_ids) <= room:
            return chunk
        logprobs = None if chunk.logprobs is None else chunk.logprobs[:room]
        cut = EngineChunk(within, logprobs, None, chunk.prompt_tokens, chunk.cached_tokens)
        cut.prompt_logprobs = chunk.prompt_logprobs
        return cut

    def _answer(self) -> None:
        self._watching, self._answering = False, True
        self.running.abort()
        self.sink.take(EngineChunk(self._budget.close_ids))
        if not self.over:
            self.ask(self._engine, self._further())

    def _further(self) -> EngineRequest:
        request, budget = self._request, self._budget
        done = len(self._made) + len(budget.close_ids)
        sampling = request.sampling
        return replace(
            request,
            request_id=f"{request.request_id}-answer",
            token_ids=[*request.token_ids, *self._made, *budget.close_ids],
            sampling=replace(
                sampling,
                max_tokens=sampling.max_tokens - done,
                min_tokens=max(sampling.min_tokens - done, 0),
            ),
            constraint=budget.constraint,
            in_reasoning=False,
        )
