"""llama.cpp's completion events as pieces of a reply, with the token ids that the events leave out put back.

Pure. One invariant: after each event, as many ids have been given out as the server has sampled, save those of a
character that is not whole yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from paraserve.engines.base import LEAST_LOGPROB, EngineError, Finish, TokenLogprob
from paraserve.engines.checks import UNREADABLE, garbled
from paraserve.engines.http.sse import SSEOverflow, SSEReader
from paraserve.engines.llama_cpp.token_fragments import TokenFragments
from paraserve.protocol.error_codes import ErrorCode


@dataclass(slots=True)
class ServerFailure:
    """An error that the server wrote into the stream."""

    status: int
    body: bytes


@dataclass(slots=True)
class Piece:
    """New tokens. ``logprobs`` are those of the last ids; the server tells none of the ids that were put back."""

    ids: list[int]
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: Finish | None = None
    cached: int | None = None
    error: ServerFailure | None = None

    def keep(self, count: int) -> None:
        """Drop the ids after the first ``count``."""
        dropped = len(self.ids) - count
        if dropped > 0:
            del self.ids[count:]
            del self.logprobs[max(0, len(self.logprobs) - dropped) :]


class _Alternative(msgspec.Struct):
    id: int
    logprob: float


class _Probability(msgspec.Struct):
    id: int
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]]
    top_logprobs: list[_Alternative] = []


class _Progress(msgspec.Struct):
    cache: int = 0


class _Failure(msgspec.Struct):
    code: int = 500


class _Event(msgspec.Struct):
    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    tokens_predicted: int = 0
    completion_probabilities: list[_Probability] = []
    prompt_progress: _Progress | None = None
    stop_type: str = ""
    cache_n: int | None = None
    error: _Failure | None = None


class CompletionEvents:
    """Reads one stream.

    Args:
        fragments: of the model's vocabulary.
        vocab_size: ids are below it.
    """

    def __init__(self, fragments: TokenFragments, vocab_size: int) -> None:
        self._fragments = fragments
        self._vocab_size = vocab_size
        self._sse = SSEReader(max_event_bytes=16 << 20)
        self._decoder = msgspec.json.Decoder(_Event)
        self._seen = 0
        self._cached: int | None = None

    def feed(self, received: bytes) -> Iterator[Piece]:
        """Pieces of the events that ``received`` completes. Raises `EngineError` for what cannot be read."""
        try:
            payloads = self._sse.feed(received)
        except SSEOverflow as error:
            raise garbled() from error
        for payload in payloads:
            try:
                event = self._decoder.decode(payload)
            except UNREADABLE as error:
                raise garbled() from error
            if event.error is not None:
                yield Piece([], error=ServerFailure(event.error.code, payload))
            elif event.prompt_progress is not None:
                self._cached = event.prompt_progress.cache  # such an event has a token 0 that is none
            elif event.stop:
                yield self._end(event)
            elif event.tokens:
                yield self._tokens(event)

    def _tokens(self, event: _Event) -> Piece:
        last = event.tokens[0]
        if len(event.tokens) > 1 or not 0 <= last < self._vocab_size:
            raise garbled()
        ids = [last]
        if event.tokens_predicted > self._seen + 1:
            ids = [*self._lost(event, last, event.tokens_predicted - self._seen - 1), last]
        self._seen += len(ids)
        logprobs = [
            TokenLogprob(
                entry.id,
                max(entry.logprob, LEAST_LOGPROB),
                [(other.id, max(other.logprob, LEAST_LOGPROB)) for other in entry.top_logprobs],
            )
            for entry in event.completion_probabilities
        ]
        return Piece(ids, logprobs, cached=self._cached)

    def _lost(self, event: _Event, last: int, most: int) -> list[int]:
        """Ids before the event's own. More may be counted than are lost: speculation counts ahead of its events."""
        spelled = event.completion_probabilities
        text = bytes(spelled[0].bytes) if spelled else event.content.encode()
        if not text:  # a control token, which has none
            return []
        found = self._fragments.lost(text, last, most)
        if found is None:
            raise EngineError(
                502, ErrorCode.ENGINE_ERROR, "The engine left out tokens of the reply that cannot be found again."
            )
        return found

    def _end(self, event: _Event) -> Piece:
        """The server's own end. What it sampled after the last whole character is lost, and was no text yet."""
        if event.stop_type == "limit":
            return Piece([], finish=Finish("length"), cached=self._cached)
        if event.stop_type == "eos":
            return Piece([], finish=Finish("stop"), cached=self._cached)  # the end token was among what is lost
        return Piece([], finish=Finish("abort"), cached=self._cached)
