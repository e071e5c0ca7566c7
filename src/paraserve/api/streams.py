"""Replies that take time: server-sent events, and waiting on behalf of a client that may leave.

The rule of this module: when the client leaves or the server stops, the work behind the response is cancelled and
has ended before the request ends. A frame is one complete event, so a keep-alive comment never falls inside one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from paraserve.api.direct_body import direct_body_of
from paraserve.api.errors import internal_error, stopping
from paraserve.api.observed import record_of
from paraserve.protocol.errors import RequestError

log = logging.getLogger(__name__)

T = TypeVar("T")

Write = Callable[[bytes], Awaitable[object] | None]
"""Writes one or more whole server-sent events, in the order of the calls. What it returns, if anything, must be awaited
before the same caller's next one."""

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


def event(payload: bytes) -> bytes:
    """One server-sent event. ``payload`` is JSON on one line."""
    return b"data: " + payload + b"\n\n"


_BREAKS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))
"""Line breaks of Unicode in UTF-8, and how JSON may write them. Some readers of streams end a line there."""


def one_line_each(frames: bytes) -> bytes:
    """Events whose only line breaks are those of the protocol."""
    if frames.isascii() or not (0xE2 in frames or 0xC2 in frames):  # their first bytes; few scripts have them
        return frames
    for character, escape in _BREAKS:
        frames = frames.replace(character, escape)
    return frames


def departure(scope: Scope, receive: Receive) -> asyncio.Future[None]:
    """Done when the client has left; whoever asked for it cancels it. The request's body must have been read."""
    direct = direct_body_of(scope)
    return asyncio.ensure_future(_disconnected(receive)) if direct is None else direct.gone()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled when the client leaves first.

    Raises:
        ClientGone: it did.
    """
    task = asyncio.current_task()
    assert task is not None
    others, state = task.cancelling(), "running"

    def leave(_: asyncio.Future[None]) -> None:
        nonlocal state
        if state == "running":
            state = "left"
            task.cancel()

    watch = departure(request.scope, request.receive)
    watch.add_done_callback(leave)
    try:
        return await work  # in this task: one of its own would cost two turns of the loop more
    finally:
        left, state = state == "left", "over"
        watch.cancel()
        if left and task.uncancel() <= others:
            raise ClientGone


class EventStream:
    """An ASGI response that sends events as they come.

    Args:
        body: writes the events; the stream ends with it.
        close: ends the work behind the body; called when the response is over, however it ended.
        failure: the frames that tell of one.
        headers: further response headers, lower case.
        keep_alive: seconds of silence after which ``sign`` is sent; 0 is never.
    """

    def __init__(
        self,
        body: Callable[[Write], Awaitable[None]],
        *,
        close: Callable[[], Awaitable[None]],
        failure: Callable[[RequestError], bytes],
        headers: Mapping[str, str],
        keep_alive: float = 0.0,
        sign: bytes = COMMENT,
    ) -> None:
        self._sign = sign
        self._body = body
        self._close = close
        self._failure = failure
        self._headers = headers
        self._keep_alive = keep_alive
        self._last = 0.0
        self._write: Write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._write = (direct_body_of(scope) or _SentBody(send)).write  # the shortest way to the client that there is
        try:
            await unless_gone(Request(scope, receive), self._pump(send))
        except ClientGone:
            record_of(scope).leave()
        except asyncio.CancelledError:
            await self._end_with(stopping(), send)
            raise
        except Exception as bug:
            log.error("%s failed after its head was sent", scope["path"], exc_info=bug)
            failure = internal_error()
            record_of(scope).fail(failure.status, failure.code)
            await self._end_with(failure, send)
        finally:
            await self._close()

    async def _end_with(self, failure: RequestError, send: Send) -> None:
        await _write(send, one_line_each(self._failure(failure)), more=False)

    async def _pump(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **self._headers,
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        self._last = time.monotonic()
        comments = asyncio.ensure_future(self._comment()) if self._keep_alive else None
        try:
            await self._body(self._write_timed if self._keep_alive else self._write)
        finally:
            if comments is not None:
                comments.cancel()
        await _write(send, b"", more=False)

    def _write_timed(self, frames: bytes) -> Awaitable[object] | None:
        self._last = time.monotonic()
        return self._write(frames)

    async def _comment(self) -> None:
        while True:
            due = self._last + self._keep_alive - time.monotonic()
            if due > 0:
                await asyncio.sleep(due)
            else:
                if (behind := self._write(self._sign)) is not None:
                    await behind
                self._last = time.monotonic()


class _SentBody:
    """The way where every part of a body passes through ``send``: what is written first is sent first, whoever waits
    for it first."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._unsent: list[bytes] = []

    def write(self, frames: bytes) -> Awaitable[None]:
        self._unsent.append(frames)
        return self._flush()

    async def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            await _write(self._send, b"".join(unsent))


async def _write(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})
