"""Where a reply is prepared, its place among those that generate, and its run as the frames of a stream.

By default the head of a stream goes out at once and an early failure is an event of the stream; the preflight policy
holds the head until the first chunk is there, so that it has its true status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from paraserve.admission import Admission, Leave
from paraserve.api.body import deployment_of
from paraserve.api.encoders.shape import StreamEncoder
from paraserve.api.errors import as_request_error
from paraserve.api.keys import caller_of, party_of
from paraserve.api.streams import Write, one_line_each, unless_gone
from paraserve.engines.base import EngineError
from paraserve.generation.events import ReplyEvent
from paraserve.generation.run import Take
from paraserve.observability.record import RequestRecord
from paraserve.preparation import SMALL_BODY

T = TypeVar("T")

RunReply = Callable[[Take], Coroutine[Any, Any, None]]
"""Runs a reply, once; raises `EngineError`."""


async def prepared(request: Request, size: int, work: Callable[[], T]) -> T:
    """The result of ``work`` for a request of ``size`` bytes: off the event loop, where it is not small.

    Raises:
        ClientGone: the client left first; what waits for a thread is not begun then.
    """
    if size <= SMALL_BODY:
        return work()
    preparation = deployment_of(request).preparation
    return await unless_gone(request, preparation.run(party_of(request.scope), size, work))


def check_admission(request: Request) -> None:
    """Raises `RequestError` for a request that would find the queue full: before any work is done for it."""
    admission: Admission = request.app.state.admission
    admission.check(caller_of(request.scope))


async def admitted(request: Request) -> Leave:
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
        self._encoder = encoder
        self._encode = encoder.encode
        self._record = record
        self._ahead: asyncio.Future[None] | None = None
        """The run, where it began before the stream."""
        self._first = asyncio.Event()
        self._opened = asyncio.Event()
        self._held = b""
        """Frames of before that."""
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
        try:
            if (head := one_line_each(self._encoder.begin()) + self._held) and (behind := write(head)) is not None:
                await behind
            self._opened.set()
            await (self._run(self._take) if self._ahead is None else self._ahead)
        except EngineError as error:
            self._record.fail(error.status, error.code)
            last = self._encoder.failure(as_request_error(error))
        else:
            last = self._encoder.end()
        if last and (behind := write(one_line_each(last))) is not None:
            await behind

    def _take(self, events: Sequence[ReplyEvent]) -> Awaitable[object] | None:
        frames = one_line_each(self._encode(events[0]) if len(events) == 1 else b"".join(map(self._encode, events)))
        if self._write is not None:
            return self._write(frames) if frames else None
        self._held += frames
        self._first.set()
        return self._opened.wait()

    async def aclose(self) -> None:
        """The engine's generations are closed when this returns."""
        if self._ahead is None:
            return
        if not self._ahead.done():
            self._ahead.cancel()
            await asyncio.wait({self._ahead})
        if not self._ahead.cancelled():
            self._ahead.exception()  # seen: who wanted to know of it was told, or is gone
