"""The run of one sequence on an engine behind HTTP, the same for every such engine: one network read, one push.

Never knows an engine's bodies. Three invariants: a request that did not end by itself is aborted exactly once, whatever
ended it; the abort is on its way before the connection is dropped (SGLang forgets the name of a request whose client
has left, and could then not find it); and a stream that ends without a finish is an error, never a short reply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Sink, joined
from paraserve.engines.checks import check_chunk, check_request, garbled
from paraserve.engines.http.client import HTTPStream
from paraserve.engines.http.reading import Reading
from paraserve.engines.http.refusals import engine_message
from paraserve.engines.http.sse import SSEOverflow, SSEReader
from paraserve.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from paraserve.engines.http.remote import RemoteEngine

logger = logging.getLogger(__name__)

DONE = b"[DONE]"
"""The payload that ends a stream."""

NEVER_SENT = frozenset({ErrorCode.ENGINE_UNREACHABLE, ErrorCode.OVERLOADED})
"""Codes of requests that were not delivered."""

_EVENT_BYTES, _TOKEN_BYTES = 2**20, 128
"""Of an event, and more for each token that it may hold and each of its alternatives."""

_AFTER_FINISH = 2.0
"""Seconds to wait for the usage that follows a finish."""


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


class RemoteGeneration(Reading):
    """A `Generation` of a `RemoteEngine`."""

    def __init__(self, engine: RemoteEngine, request: EngineRequest, sink: Sink) -> None:
        super().__init__(sink)
        self._engine = engine
        self._request = request
        self._decoder: EventDecoder
        self._opening: asyncio.Task[HTTPStream] | None = None
        self._settled = False
        """Whether nothing of the request is left in the engine."""

    async def read(self) -> None:
        engine, request = self._engine, self._request
        await engine.identity.before_request()
        check_request(request, engine.info)
        body = msgspec.json.encode(with_extras(engine.body(request), request.extras))
        self._decoder = decoder = engine.decoder(request)
        opening = engine.http.stream(engine.generate_path, body, engine.headers(request))
        self._opening = asyncio.get_running_loop().create_task(opening)
        try:
            stream = await self._opened(self._opening)
            events = SSEReader(longest_event(request))
            while not decoder.ended:
                received = await self._events(stream, events)
                await self.go_on()
                self._take(received)
        except EngineError as error:
            engine.identity.notice(error)
            raise

    async def _opened(self, opening: asyncio.Task[HTTPStream]) -> HTTPStream:
        """The stream, once it is known to be the reply of our model."""
        try:
            # Shielded: a cancelled request would drop the connection before the abort is sent.
            stream = await asyncio.shield(opening)
        except EngineError as error:
            self._settled = error.code in NEVER_SENT
            raise
        if stream.status != 200:
            raise self._engine.refused(stream.status, engine_message(await stream.body()), self._request)
        if stream.fresh:
            await self._engine.identity.before_reply()
        return stream

    async def _events(self, stream: HTTPStream, reader: SSEReader) -> list[bytes]:
        """The events of the next read, `DONE` in the place of the end of the stream."""
        if self._decoder.finish_held:  # the reply is whole, only its counts are missing
            try:
                async with asyncio.timeout(_AFTER_FINISH):
                    received = await stream.read()
            except (EngineError, TimeoutError):
                return [DONE]
        else:
            received = await stream.read()
        if not received:
            return [DONE]
        try:
            return reader.feed(received)
        except SSEOverflow as error:
            raise garbled() from error

    def _take(self, events: list[bytes]) -> None:
        """Push what the events of one read hold, also what stands before one that is an error."""
        decoder, prompt_tokens, vocab_size = self._decoder, len(self._request.token_ids), self._engine.info.vocab_size
        chunks: list[EngineChunk] = []
        try:
            for event in events:
                chunk = decoder.decode(event)
                if chunk is not None:
                    check_chunk(chunk, prompt_tokens, vocab_size)
                    chunks.append(chunk)
                if decoder.ended:
                    self._settled = not decoder.cut
                    return
        finally:
            if chunks:
                self.push(joined(chunks))

    def leave(self) -> None:
        if self._opening is not None:
            self._engine.later(self._drain(self._opening) if self._settled else self._abort(self._opening))

    async def _drain(self, opening: asyncio.Task[HTTPStream]) -> None:
        if opening.done() and not opening.cancelled() and opening.exception() is None:
            await opening.result().drain()

    async def _abort(self, opening: asyncio.Task[HTTPStream]) -> None:
        engine, name = self._engine, self._decoder.name or self._engine.name(self._request)
        try:
            async with asyncio.timeout(1.0):
                reply = await engine.http.post(engine.abort_path, engine.abort_body(name))
            if reply.status != 200:
                # 404 is a router, which has no aborts; anything else leaves work in the engine that nobody wants.
                level = logging.DEBUG if reply.status == 404 else logging.WARNING
                logger.log(level, "%s: abort was answered with %d", engine.http.base_url, reply.status)
        except (EngineError, TimeoutError) as error:
            logger.warning("%s: abort of %s failed: %r", engine.http.base_url, name, error)
        finally:
            opening.cancel()
            (outcome,) = await asyncio.gather(opening, return_exceptions=True)
            if isinstance(outcome, HTTPStream):
                outcome.close()


def longest_event(request: EngineRequest) -> int:
    """Bytes. SGLang's and vLLM's events may hold every token of prompt and reply, each with its alternatives."""
    tokens = len(request.token_ids) + request.sampling.max_tokens
    return _EVENT_BYTES + tokens * _TOKEN_BYTES * (1 + (request.logprobs or 0))


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
