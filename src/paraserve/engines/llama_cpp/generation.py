"""The run of one sequence on llama.cpp's server, of one or several requests to it.

Never knows text. Two invariants: every token that the model made is given out exactly once; and a limit that the server
does not have is kept here.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paraserve.engines.base import EngineChunk, EngineRequest, Finish, Sampling, Sink, TokenLogprob, joined
from paraserve.engines.checks import check_chunk
from paraserve.engines.http.reading import Reading
from paraserve.engines.llama_cpp.body import SEED_RANGE, completion_body, seed_of
from paraserve.engines.llama_cpp.events import Piece

if TYPE_CHECKING:
    from paraserve.engines.llama_cpp.engine import LlamaCppEngine

SPARE_TOKENS = 4
"""Asked for beyond a limit that cuts a character, so that it comes out whole: its last bytes name its ids."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a reply that is one request to the server.

    Args:
        limit: tokens of the whole reply at its end.
        spare: tokens to make beyond it.
        may_end: whether end tokens and stop ids are allowed.
        last: whether the server's own limit is the reply's.
    """

    limit: int
    spare: int = 0
    may_end: bool = True
    last: bool = False


class LlamaCppGeneration(Reading):
    """A `Generation`. Its streams are closed with its task, and that is what aborts them."""

    def __init__(self, engine: LlamaCppEngine, request: EngineRequest, sink: Sink) -> None:
        super().__init__(sink)
        self._engine = engine
        self._request = request
        self._seed = seed_of(request.sampling)
        self._grammar: dict[str, Any] | None = None
        self._made: list[int] = []
        self._cached: int | None = None
        self._finished = False

    async def read(self) -> None:
        engine, request = self._engine, self._request
        await engine.check(request)
        sampling = request.sampling
        if request.constraint is not None:
            self._grammar = await engine.grammars.fields(request.constraint)
        if request.prompt_logprobs:
            scored = await engine.scores.of_prompt(request.token_ids, request.logprobs or 0, request.routing.headers)
            self.push(EngineChunk([], prompt_logprobs=scored, prompt_tokens=len(request.token_ids)))
            self._cached = 0  # what the cache has of the prompt now is this very request's work
        if sampling.max_tokens == 0:
            self.push(EngineChunk([], finish=Finish("length"), prompt_tokens=len(request.token_ids)))
            return
        for segment in _segments(sampling, resumable=self._grammar is None):
            await self._run_segment(segment)
            if self._finished:
                return

    async def _run_segment(self, segment: _Segment) -> None:
        """Push the reply until it ends or has the segment's tokens."""
        request, body = self._request, self._body(segment)
        ends = frozenset(request.sampling.stop_token_ids) if segment.may_end else frozenset[int]()
        if not body["ignore_eos"]:
            ends |= self._engine.info.eos_token_ids
        async with aclosing(self._engine.pieces(body, request.routing.headers, request.constraint)) as reads:
            async for pieces in reads:
                await self.go_on()
                if await self._take(pieces, segment, ends):
                    return

    def _body(self, segment: _Segment) -> dict[str, Any]:
        request, sampling, begun = self._request, self._request.sampling, len(self._made)
        return completion_body(
            [*request.token_ids, *self._made],
            sampling,
            limit=segment.limit - begun + segment.spare,
            ignore_eos=sampling.ignore_eos or not segment.may_end,
            banned=() if segment.may_end else sampling.stop_token_ids,
            forgiven=request.token_ids,
            probabilities=_probabilities(request),
            grammar=self._grammar,
            seed=(self._seed + begun) % SEED_RANGE,
            window=self._engine.info.context_length,
        )

    async def _take(self, pieces: Sequence[Piece], segment: _Segment, ends: frozenset[int]) -> bool:
        """Push what one read brought. Returns whether the segment is over."""
        chunks: list[EngineChunk] = []
        try:
            for piece in pieces:
                if piece.finish is not None and not segment.last:
                    return True  # the server's limit, inside a character: the next segment begins it anew
                _cut(piece, ends, self._request.sampling.max_tokens - len(self._made))
                chunk = await self._chunk(piece)
                check_chunk(chunk, len(self._request.token_ids), self._engine.info.vocab_size)
                chunks.append(chunk)
                self._finished = piece.finish is not None
                if self._finished or len(self._made) >= segment.limit:
                    return True
            return False
        finally:
            if chunks:
                self.push(joined(chunks))

    async def _chunk(self, piece: Piece) -> EngineChunk:
        """The chunk of a piece, whose ids join those made."""
        request, made = self._request, self._made
        self._cached = piece.cached if self._cached is None else self._cached
        chunk = EngineChunk(piece.ids, finish=piece.finish)
        if not made:
            chunk.prompt_tokens = len(request.token_ids)
            chunk.cached_tokens = self._cached
        if request.logprobs is not None and piece.ids:
            entries = list(piece.logprobs)
            missing = len(piece.ids) - len(entries)
            before = [*request.token_ids, *made]
            scored = [
                await self._engine.scores.of_token(
                    [*before, *piece.ids[:index]], token_id, request.logprobs, request.routing.headers
                )
                for index, token_id in enumerate(piece.ids[:missing])
            ]
            chunk.logprobs = [_top(entry, request.logprobs) for entry in [*scored, *entries]]
        made.extend(piece.ids)
        return chunk


def _probabilities(request: EngineRequest) -> int:
    """How many to ask for a token. Without them the server shows bytes that are no UTF-8 as U+FFFD, and then no id can
    be found again. Greedy replies have no such bytes, and each probability costs a pass over the vocabulary."""
    if request.sampling.temperature == 0 and request.logprobs is None:
        return 0
    return max(1, request.logprobs or 0)


def _segments(sampling: Sampling, *, resumable: bool) -> list[_Segment]:
    """A reply is one segment, and more where the server lacks a means.

    It cannot hold end tokens back for a while (min_tokens), and it does not tell the ids of a character that its limit
    has cut: those are then made again with some more, and thrown away where they go beyond the limit. A grammar's
    state cannot be taken up again.
    """
    segments = [_Segment(sampling.min_tokens, may_end=False)] if sampling.min_tokens else []
    if resumable:
        segments.append(_Segment(sampling.max_tokens))
    return [*segments, _Segment(sampling.max_tokens, spare=SPARE_TOKENS if resumable else 0, last=True)]


def _cut(piece: Piece, ends: frozenset[int], room: int) -> None:
    """End the piece where an end token or the limit ends the reply."""
    for index, token_id in enumerate(piece.ids[:room]):
        if token_id in ends:
            piece.keep(index + 1)
            piece.finish = Finish("stop", token_id)
            return
    if len(piece.ids) >= room:
        piece.keep(room)
        piece.finish = Finish("length")


def _top(entry: TokenLogprob, count: int) -> TokenLogprob:
    return TokenLogprob(entry.token_id, entry.logprob, entry.top[:count])
