"""From reply events to an HTTP response: whole, streamed, or streamed after a preflight.

The same events feed all three; a run hands them on as they come. By default the head of a stream goes out at once and
an early failure is an event of the stream; the preflight policy holds the head until the first chunk is there, so that
it has its true status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from paraserve.admission import Admission, Leave
from paraserve.api.errors import as_request_error, encode_error
from paraserve.api.keys import caller_of
from paraserve.api.observed import record_of
from paraserve.api.streams import DONE, EventStream, Write, event, unless_gone
from paraserve.engines.base import EngineError
from paraserve.generation.events import ReplyEvent
from paraserve.generation.run import Take
from paraserve.observability.record import RequestRecord
from paraserve.policies.base import PolicyLedger, ReplyRules

RunReply = Callable[[Take], Coroutine[Any, Any, None]]
"""Runs a reply, once; raises `EngineError`."""


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


async def whole(request: Request, run: RunReply, fold: Fold, options: ReplyOptions) -> Response:
    """The response once the last event is there. Raises `EngineError` when the run failed, `RequestError` when there is
    no room for it, and `ClientGone`."""

    def take(events: Sequence[ReplyEvent]) -> None:
        for reply_event in events:
            fold.take(reply_event)

    leave = await _admitted(request)
    try:
        await unless_gone(request, run(take))
    finally:
        leave()
    body = fold.response()
    options.note_rules()
    return Response(body, media_type="application/json", headers=options.ledger.headers)


async def streamed(request: Request, run: RunReply, encoder: StreamEncoder, options: ReplyOptions) -> EventStream:
    """The response that sends events as they come.

    Raises:
        RequestError: there is no room for it.
        EngineError: only where the preflight holds the head.
        ClientGone: the client left while the head was held.
    """
    reply = StreamedReply(run, encoder, record_of(request.scope))
    async with AsyncExitStack() as stack:
        stack.callback(await _admitted(request))
        stack.push_async_callback(reply.aclose)
        if options.rules.preflight:
            try:
                await unless_gone(request, reply.first(options.rules.preflight_seconds))
            except EngineError:
                options.ledger.used("preflight", False, True)
                raise
        close = stack.pop_all().aclose
    options.note_rules()
    return EventStream(reply.write_to, close=close, headers=options.ledger.headers, keep_alive=options.keep_alive)


def check_admission(request: Request) -> None:
    """Raises `RequestError` for a request that would find the queue full: before any work is done for it."""
    admission: Admission = request.app.state.admission
    admission.check(caller_of(request.scope))


async def _admitted(request: Request) -> Leave:
    """Wait for a place among the requests that generate. What is returned gives it back."""
    admission: Admission = request.app.state.admission
    caller = caller_of(request.scope)
    leave = admission.enter_at_once(caller)
    if leave is not None:
        return leave
    with request.app.state.metrics.waiting():
        return await unless_gone(request, admission.enter(caller))


class StreamedReply:
    """A reply as frames of a stream. The run may begin before the stream does; it waits with its first events then."""

    def __init__(self, run: RunReply, encoder: StreamEncoder, record: RequestRecord) -> None:
        self._run = run
        self._encode = encoder.encode
        self._record = record
        self._ahead: asyncio.Future[None] | None = None
        """The run, where it began before the stream."""
        self._first = asyncio.Event()
        self._opened = asyncio.Event()
        self._write: Write | None = None

    async def first(self, bound: float | None) -> None:
        """Begin. Returns when the first events are there, or after ``bound`` seconds. Raises what the run raises
        instead."""
        self._ahead = asyncio.ensure_future(self._run(self._take))
        watch = asyncio.ensure_future(self._first.wait())
        try:
            await asyncio.wait({self._ahead, watch}, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
        if self._ahead.done() and not self._first.is_set():
            self._ahead.result()

    async def write_to(self, write: Write) -> None:
        """Write the whole reply, or the event that tells of its failure."""
        self._write = write
        self._opened.set()
        try:
            await (self._run(self._take) if self._ahead is None else self._ahead)
        except EngineError as error:
            self._record.fail(error.status, error.code)
            behind = write(event(encode_error(as_request_error(error).body)))
        else:
            behind = write(DONE)
        if behind is not None:
            await behind

    def _take(self, events: Sequence[ReplyEvent]) -> Awaitable[None] | None:
        frames = self._encode(events[0]) if len(events) == 1 else b"".join(map(self._encode, events))
        if self._write is None:
            return self._hold(frames)
        return self._write(frames) if frames else None

    async def _hold(self, frames: bytes) -> None:
        self._first.set()
        await self._opened.wait()
        if self._write is not None and frames and (behind := self._write(frames)) is not None:
            await behind

    async def aclose(self) -> None:
        """The engine's generations are closed when this returns."""
        if self._ahead is None:
            return
        if not self._ahead.done():
            self._ahead.cancel()
            await asyncio.wait({self._ahead})
        if not self._ahead.cancelled():
            self._ahead.exception()  # seen: who wanted to know of it was told, or is gone
