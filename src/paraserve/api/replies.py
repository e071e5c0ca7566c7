"""From reply events to an HTTP response: whole, streamed, or streamed after a preflight.

The same events feed all three. By default the head of a stream goes out at once and an early failure is an event of
the stream; the preflight policy holds the head until the first chunk is there, so that it has its true status.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from paraserve.admission import Admission, Leave
from paraserve.api.errors import as_request_error, encode_error
from paraserve.api.keys import caller_of
from paraserve.api.observed import record_of
from paraserve.api.streams import DONE, EventStream, event, unless_gone
from paraserve.engines.base import EngineError
from paraserve.generation.events import ReplyEvent
from paraserve.observability.record import RequestRecord
from paraserve.policies.base import PolicyLedger, ReplyRules

ReplyEvents = AsyncGenerator[Sequence[ReplyEvent], None]
"""Lots of events, each of those that were there together."""


class Fold(Protocol):
    def take(self, event: ReplyEvent) -> None: ...
    def response(self) -> bytes: ...


class StreamEncoder(Protocol):
    def encode(self, event: ReplyEvent) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """How a reply leaves.

    Args:
        note_rules: writes into the ledger what the policies do to a reply's form; called when there is a reply.
        keep_alive: seconds, 0 is off.
    """

    rules: ReplyRules
    ledger: PolicyLedger
    note_rules: Callable[[], None]
    keep_alive: float = 0.0


async def whole(request: Request, events: ReplyEvents, fold: Fold, options: ReplyOptions) -> Response:
    """The response once the last event is there. Raises `EngineError` when the run failed, `RequestError` when there is
    no room for it, and `ClientGone`."""

    async def work() -> bytes:
        async with aclosing(events):
            async for lot in events:
                for reply_event in lot:
                    fold.take(reply_event)
        return fold.response()

    leave = await _admitted(request)
    try:
        body = await unless_gone(request.receive, work())
    finally:
        leave()
    options.note_rules()
    return Response(body, media_type="application/json", headers=options.ledger.headers)


async def streamed(request: Request, events: ReplyEvents, encoder: StreamEncoder, options: ReplyOptions) -> EventStream:
    """The response that sends events as they come.

    Raises:
        RequestError: there is no room for it.
        EngineError: only where the preflight holds the head.
        ClientGone: the client left while the head was held.
    """
    held = HeldEvents(events)
    async with AsyncExitStack() as stack:
        stack.callback(await _admitted(request))
        stack.push_async_callback(held.aclose)
        if options.rules.preflight:
            try:
                await unless_gone(request.receive, held.first(options.rules.preflight_seconds))
            except EngineError:
                options.ledger.used("preflight", False, True)
                raise
        close = stack.pop_all().aclose
    options.note_rules()
    frames = _frames(held, encoder, record_of(request.scope))
    return EventStream(frames, close=close, headers=options.ledger.headers, keep_alive=options.keep_alive)


async def _admitted(request: Request) -> Leave:
    """Wait for a place among the requests that generate. What is returned gives it back."""
    admission: Admission = request.app.state.admission
    caller = caller_of(request.scope)
    leave = admission.enter_at_once(caller)
    if leave is not None:
        return leave
    with request.app.state.metrics.waiting():
        return await unless_gone(request.receive, admission.enter(caller))


class HeldEvents:
    """Reply events of which the first lot can be waited for, and is put back."""

    def __init__(self, events: ReplyEvents) -> None:
        self._events = events
        self._first: asyncio.Future[Sequence[ReplyEvent]] | None = None

    async def first(self, bound: float | None) -> None:
        """Returns when the first event is there, or after ``bound`` seconds. Raises what the events raise instead."""
        self._first = asyncio.ensure_future(anext(self._events))
        await asyncio.wait({self._first}, timeout=bound)
        if self._first.done():
            self._first.result()

    def __aiter__(self) -> AsyncIterator[Sequence[ReplyEvent]]:
        return self._events if self._first is None else self._from_first(self._first)

    async def _from_first(self, first: asyncio.Future[Sequence[ReplyEvent]]) -> AsyncIterator[Sequence[ReplyEvent]]:
        yield await first
        async for lot in self._events:
            yield lot

    async def aclose(self) -> None:
        """End the run: the engine's generations are closed when this returns."""
        if self._first is not None and not self._first.done():
            self._first.cancel()
            await asyncio.wait({self._first})
        await self._events.aclose()


async def _frames(events: HeldEvents, encoder: StreamEncoder, record: RequestRecord) -> AsyncIterator[bytes]:
    try:
        async for lot in events:
            frames = encoder.encode(lot[0]) if len(lot) == 1 else b"".join(map(encoder.encode, lot))
            if frames:
                yield frames
    except EngineError as error:
        record.fail(error.status, error.code)
        yield event(encode_error(as_request_error(error).body))
    else:
        yield DONE
