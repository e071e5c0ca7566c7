"""The run of one sequence on an engine behind HTTP, the same for every such engine.

Never knows an engine's bodies: a subclass writes the request and reads the events. Three invariants: a request that
did not end by itself is aborted exactly once, whatever ended it; the abort is on its way before the connection is
dropped (SGLang forgets the name of a request whose client has left, and could then not find it); and a stream that
ends without a finish is an error, never a short reply.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from paraserve.engines.base import (
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    TokenLogprob,
)
from paraserve.engines.http.client import EngineHTTP, HTTPStream, HTTPTimeouts, garbled
from paraserve.engines.http.identity import Identity
from paraserve.engines.http.refusals import engine_message, refusal
from paraserve.engines.http.sse import SSEOverflow, SSEReader
from paraserve.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

DONE = b"[DONE]"
"""The payload that ends a stream."""

NEVER_SENT = frozenset({ErrorCode.ENGINE_UNREACHABLE, ErrorCode.OVERLOADED})
"""Codes of requests that were not delivered."""

MOST_TOKENS = 2**24
"""No context is as long."""
_EVENT_BYTES, _TOKEN_BYTES = 2**20, 128
"""Of an event, and more for each token that it may hold and each of its alternatives."""

_AFTER_FINISH = 2.0
"""Seconds to wait for the usage that follows a finish."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the checkpoint says about the model, for what an engine does not tell.

    Attributes:
        vocab_size: ids are below it. Neither SGLang nor vLLM reports it, and an id beyond it can end SGLang.
        context_length: None is "what the engine reports"; the smaller of both holds.
    """

    vocab_size: int
    context_length: int | None = None
    eos_token_ids: frozenset[int] = frozenset()


class EventDecoder(Protocol):
    """Reads the events of one stream."""

    @property
    def name(self) -> str | None:
        """What the engine calls the generation, where it has told."""
        ...

    @property
    def finish_held(self) -> bool:
        """Whether the finish has come and only counts are still awaited."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the last chunk has been given out."""
        ...

    @property
    def cut(self) -> bool:
        """Whether it ended the reply by itself, while the engine goes on."""
        ...

    def decode(self, payload: bytes) -> EngineChunk | None:
        """The chunk of an event, None where it has nothing new.

        `DONE` gives the finish that is still held; a stream that is done without one is broken. Raises `EngineError`.
        """
        ...


class RemoteEngine(ABC):
    """An engine's adapter: one server, one connection pool."""

    def __init__(
        self, base_url: str, facts: ModelFacts, *, timeouts: HTTPTimeouts | None = None, api_key: str | None = None
    ) -> None:
        self.facts = facts
        self.http = EngineHTTP(base_url, timeouts=timeouts, api_key=api_key)
        self.identity = Identity(self._identify, self._learn_again, self.http.base_url)
        self._info: EngineInfo | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    title: str
    generate_path: str
    abort_path: str

    @abstractmethod
    async def learn(self) -> EngineInfo:
        """Ask the server what it is. Raises `EngineError` and `EngineStartError`."""

    @abstractmethod
    async def identify(self) -> str:
        """What the server calls its model, empty where it does not say. Raises `EngineError` and `EngineStartError`."""

    @abstractmethod
    def body(self, request: EngineRequest) -> dict[str, Any]:
        """The engine's spelling of a request."""

    @abstractmethod
    def decoder(self, request: EngineRequest) -> EventDecoder: ...

    def name(self, request: EngineRequest) -> str:
        """What the engine will call the generation, if nothing between here and there renames it."""
        return request.request_id

    @abstractmethod
    def abort_body(self, name: str) -> dict[str, Any]: ...

    @abstractmethod
    async def health(self) -> EngineHealth: ...

    def headers(self, request: EngineRequest) -> Mapping[str, str]:
        return request.routing.headers

    def refused(self, status: int, message: str, request: EngineRequest) -> EngineError:
        """The error for a status that the engine answered instead of a stream, or named in an event."""
        return refusal(status, message, request.constraint)

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise RuntimeError("the engine has not been started")
        return self._info

    async def start(self) -> None:
        await self.http.open()
        try:
            self._info = await self.learn()
            await self.identity.learn()
        except (EngineError, EngineStartError) as error:
            await self.http.close()
            raise EngineStartError(f"{self.title} at {self.http.base_url}: {error}") from error

    async def _identify(self) -> str:
        try:
            return await self.identify()
        except EngineStartError as error:
            raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine does not say what it runs.") from error

    async def _learn_again(self) -> None:
        try:
            self._info = await self.learn()
        except EngineStartError as error:
            logger.warning("%s: it does not say what it can do: %s", self.http.base_url, error)

    @property
    def stranger(self) -> str:
        return self.identity.stranger

    async def stop(self) -> None:
        await self.identity.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        await self.http.close()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        await self.identity.before_request()
        check_request(request, self.info)
        body = msgspec.json.encode(with_extras(self.body(request), request.extras))
        decoder = self.decoder(request)
        opening = asyncio.create_task(self.http.stream(self.generate_path, body, self.headers(request)))
        settled = False  # nothing of the request is left in the engine
        try:
            # Shielded: a cancelled request would drop the connection before the abort is sent.
            try:
                stream = await asyncio.shield(opening)
            except EngineError as error:
                settled = error.code in NEVER_SENT
                raise
            if stream.status != 200:
                raise self.refused(stream.status, engine_message(await stream.body()), request)
            if stream.fresh:
                await self.identity.before_reply()
            reader = SSEReader(longest_event(request))
            vocab_size = self.info.vocab_size
            while not decoder.ended:
                for event in await self._events(stream, reader, decoder.finish_held):
                    chunk = decoder.decode(event)
                    settled = decoder.ended and not decoder.cut
                    if chunk is not None:
                        check_chunk(chunk, len(request.token_ids), vocab_size)
                        yield chunk
                    if decoder.ended:
                        break
        except EngineError as error:
            self.identity.notice(error)
            raise
        finally:
            name = decoder.name or self.name(request)
            self._later(self._leave(opening) if settled else self._abort(name, opening))

    async def _events(self, stream: HTTPStream, reader: SSEReader, finish_held: bool) -> list[bytes]:
        """The events of the next read, `DONE` in the place of the end of the stream."""
        try:
            async with asyncio.timeout(_AFTER_FINISH if finish_held else None):
                received = await stream.read()
        except (EngineError, TimeoutError):
            if finish_held:  # the reply is whole, only its counts are missing
                return [DONE]
            raise
        if not received:
            return [DONE]
        try:
            return reader.feed(received)
        except SSEOverflow as error:
            raise garbled() from error

    async def _leave(self, opening: asyncio.Task[HTTPStream]) -> None:
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().drain()

    async def _abort(self, name: str, opening: asyncio.Task[HTTPStream]) -> None:
        try:
            async with asyncio.timeout(1.0):
                reply = await self.http.post(self.abort_path, self.abort_body(name))
            if reply.status != 200:
                # 404 is a router, which has no aborts; anything else leaves work in the engine that nobody wants.
                level = logging.DEBUG if reply.status == 404 else logging.WARNING
                logger.log(level, "%s: abort was answered with %d", self.http.base_url, reply.status)
        except (EngineError, TimeoutError) as error:
            logger.warning("%s: abort of %s failed: %r", self.http.base_url, name, error)
        finally:
            opening.cancel()
            (outcome,) = await asyncio.gather(opening, return_exceptions=True)
            if isinstance(outcome, HTTPStream):
                outcome.close()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def longest_event(request: EngineRequest) -> int:
    """Bytes. SGLang's and vLLM's events may hold every token of prompt and reply, each with its alternatives."""
    tokens = len(request.token_ids) + request.sampling.max_tokens
    return _EVENT_BYTES + tokens * _TOKEN_BYTES * (1 + (request.logprobs or 0))


def check_chunk(chunk: EngineChunk, prompt_tokens: int, vocab_size: int) -> None:
    """Engines are not believed: what cannot be true is their error, and nothing that a later stage meets.

    Raises:
        EngineError: an id outside of the vocabulary, a count that none is, scores for other tokens than there are.
    """
    for token_id in chunk.token_ids:
        if not 0 <= token_id < vocab_size:
            raise garbled()
    if chunk.finish is not None and not 0 <= (chunk.finish.matched or 0) < vocab_size:
        raise garbled()
    if chunk.prompt_tokens is not None and not 0 <= chunk.prompt_tokens <= MOST_TOKENS:
        raise garbled()
    if chunk.cached_tokens is not None and not 0 <= chunk.cached_tokens <= MOST_TOKENS:
        raise garbled()
    for scores, of in ((chunk.logprobs, len(chunk.token_ids)), (chunk.prompt_logprobs, prompt_tokens)):
        if scores is not None and not _scores(scores, of, vocab_size):
            raise garbled()


def _scores(scores: Sequence[TokenLogprob | None], of: int, vocab_size: int) -> bool:
    found = [score for score in scores if score is not None]
    ids = [token_id for score in found for token_id in (score.token_id, *(top[0] for top in score.top))]
    return len(scores) == of and all(0 <= token_id < vocab_size for token_id in ids)


def check_request(request: EngineRequest, info: EngineInfo) -> None:
    """Refuse what the engine cannot do, before it is asked (some engines do not survive the question)."""
    ids = request.token_ids
    if not ids:
        raise EngineError(400, ErrorCode.INVALID_VALUE, "The prompt is empty.", param="prompt")
    if min(ids) < 0 or max(ids) >= info.vocab_size:
        message = f"The prompt holds a token id outside of the vocabulary (0 to {info.vocab_size - 1})."
        raise EngineError(400, ErrorCode.INVALID_VALUE, message, param="prompt")
    for field, used in (
        ("logit_bias", request.sampling.logit_bias),
        ("stop_token_ids", request.sampling.stop_token_ids),
    ):
        if used and (min(used) < 0 or max(used) >= info.vocab_size):
            message = f"{field} holds a token id outside of the vocabulary (0 to {info.vocab_size - 1})."
            raise EngineError(400, ErrorCode.INVALID_VALUE, message, param=field)
    if request.sampling.logit_bias and not info.logit_bias:
        message = "A bias would not reach the engine: what stands in front of it leaves the field out."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="logit_bias")
    if request.routing.cache_salt is not None and not info.cache_salts:
        message = "The engine cannot keep the caches of different salts apart."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="cache_salt")
    if request.logprobs is not None and request.logprobs > info.max_logprobs:
        message = f"The engine gives at most {info.max_logprobs} alternatives a token."
        raise EngineError(400, ErrorCode.INVALID_VALUE, message, param="top_logprobs")
    if request.prompt_logprobs and not info.prompt_logprobs:
        raise EngineError(
            400, ErrorCode.UNSUPPORTED_PARAMETER, "The engine gives no log probabilities of the prompt.", param="echo"
        )
    if request.sampling.min_tokens and not info.min_tokens:
        message = "The engine cannot hold end tokens back: it runs without a tokenizer."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="min_tokens")
    for item in request.media:
        if item.kind not in info.media:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, f"The model takes no {item.kind} input.", param="messages"
            )
    check_lengths(request, info)
    check_constraint(request, info)


def check_lengths(request: EngineRequest, info: EngineInfo) -> None:
    """Engines cut what is too long without a word, or do not survive it."""
    prompt, reply = len(request.token_ids), request.sampling.max_tokens
    if info.max_prompt_tokens is not None and prompt > info.max_prompt_tokens:
        message = f"The prompt of {prompt} tokens is longer than the {info.max_prompt_tokens} that the engine takes."
        raise EngineError(400, ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param="prompt")
    if prompt + reply > info.context_length:
        message = (
            f"The prompt of {prompt} tokens and a reply of {reply} are more than the context of {info.context_length} "
            "tokens."
        )
        raise EngineError(400, ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param="max_tokens")


def check_constraint(request: EngineRequest, info: EngineInfo) -> None:
    constraint = request.constraint
    if constraint is None:
        return
    if constraint.kind not in info.constraints:
        message = f"The engine cannot obey a constraint of the kind {constraint.kind}."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param=constraint.param)
    if request.in_reasoning and not constraint.covers_reasoning and not info.defers_constraints:
        message = "The engine would apply the constraint inside the reasoning: turn the reasoning off."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param=constraint.param)


def with_extras(body: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the operator's pass-through fields; those of ``sampling_params`` go one level down.

    Raises `EngineError` for a field that the adapter writes itself: two meanings of one value would hide one.
    """
    for name, value in extras.items():
        inner = body.get(name)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            with_extras(inner, value)
        elif name in body:
            raise EngineError(400, ErrorCode.INVALID_VALUE, f"{name} is set by the server.", param=name)
        else:
            body[name] = value
    return body


def ignores_eos(request: EngineRequest) -> bool:
    """What SGLang and vLLM are told. With a constraint both write on behind the end of the grammar, which is the
    reply's (seen with SGLang 0.5.23 and vLLM 0.32)."""
    return request.sampling.ignore_eos and request.constraint is None


def cached_prompt_tokens(reported: int | None, prompt_tokens: int | None) -> int | None:
    """How many prompt tokens came from the prefix cache, None where the number cannot be that.

    Every engine computes at least the prompt's last token, so "all of them" is what a decode server says that was
    handed the whole prompt by its prefill server: it is no cache hit and not reported as one.
    """
    if reported is None or (prompt_tokens is not None and reported >= prompt_tokens):
        return None
    return reported
