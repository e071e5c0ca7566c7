"""HTTP/1.1 for the server: uvicorn's protocol, and what it leaves to whoever stands in front of it.

A connection may take so long for a request's head and body, a head may be so large, a client that stops reading is cut
off, and a refusal has the API's error shape. Streams get a short way for their body (`DirectBody`). Never knows what
is served. Invariant: whatever one connection does costs bounded memory and ends in bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from paraserve.api.direct_body import extension
from paraserve.api.errors import encode_error
from paraserve.protocol.errors import RequestError

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together, as most servers and proxies have it."""
MAX_HEADERS = 200


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds.

    Args:
        head: from a request's first byte (or a new connection's start) to the end of its head.
        body_silence: between two pieces of a request's body.
        slow_client: how long a client may read nothing of a reply that waits for it.
    """

    head: float = 30.0
    body_silence: float = 60.0
    slow_client: float = 60.0


class Outbox:
    """Connections with bytes that wait for the end of the event loop's turn.

    Tokens of many streams come in one turn. Writing them back to back, behind all that was computed for them, costs
    about a third less than writing each by itself: a reader that is awake needs no waking (benchmarks/profile.md).
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Outgoing] = []

    def add(self, outgoing: Outgoing, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            loop.call_soon(self._send)
        self._waiting.append(outgoing)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for outgoing in waiting:
            outgoing.send()


class Outgoing:
    """What the responses of one connection write to in the transport's place: head and body leave together."""

    __slots__ = ("_loop", "_outbox", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport, outbox: Outbox, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._outbox = outbox
        self._loop = loop
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._outbox.add(self, self._loop)
        self._parts.append(data)

    def send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.send()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class StreamBody:
    """`DirectBody` of one response."""

    __slots__ = ("_cycle", "_departures", "_flow", "_outgoing")

    def __init__(self, cycle: RequestResponseCycle, outgoing: Outgoing, departures: Departures) -> None:
        self._cycle = cycle
        self._flow = cycle.flow
        self._outgoing = outgoing
        self._departures = departures

    def write(self, body: bytes) -> Awaitable[None] | None:
        cycle = self._cycle
        if cycle.disconnected:
            return None
        if cycle.chunked_encoding:
            self._outgoing.write(b"%x\r\n%b\r\n" % (len(body), body))
        elif cycle.scope["method"] != "HEAD":
            self._outgoing.write(body)
        return self._flow.drain() if self._flow.write_paused else None

    def gone(self) -> asyncio.Future[None]:
        return self._departures.watch(self._cycle.disconnected)


class Departures:
    """Who waits for one connection's client to leave: requests that were pipelined may all be running."""

    __slots__ = ("_loop", "_watches")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watches: list[asyncio.Future[None]] = []

    def watch(self, gone: bool) -> asyncio.Future[None]:
        watch = self._loop.create_future()
        self._watches = [other for other in self._watches if not other.done()]
        self._watches.append(watch)
        if gone:
            watch.set_result(None)
        return watch

    def tell(self) -> None:
        for watch in self._watches:
            if not watch.done():
                watch.set_result(None)


class HTTPConnection(HttpToolsProtocol):
    """One client's connection. `with_limits` makes the class that a server uses."""

    limits = ConnectionLimits()
    outbox: Outbox

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._outgoing = Outgoing(transport, self.outbox, self.loop)
        self._departures = Departures(self.loop)
        self._head_bytes = 0
        self._in_head = True
        self._reading: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)
        self._departures.tell()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._reading is None:
                self._await_head()
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(_head_too_large())

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        size = sum(len(name) + len(value) for name, value in self.headers) + len(self.url)
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse(_head_too_large())
            return
        self._in_head, self._head_bytes = False, 0
        self._unset_reading()
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, self._outgoing)
        self.scope["extensions"] = extension(StreamBody(self.cycle, self._outgoing, self._departures))
        self._reading = self.loop.call_later(self.limits.body_silence, self._silent)

    def on_body(self, body: bytes) -> None:
        if self.transport.is_closing():
            return
        super().on_body(body)
        if not self.flow.read_paused:  # else it is we who do not read
            self._unset_reading()
            self._reading = self.loop.call_later(self.limits.body_silence, self._silent)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._unset_reading()
        if not self.transport.is_closing():
            super().on_message_complete()

    def shutdown(self) -> None:
        self._outgoing.send()
        super().shutdown()

    # What a client may cost

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.slow_client, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _await_head(self) -> None:
        self._reading = self.loop.call_later(self.limits.head, self._silent)

    def _silent(self) -> None:
        """A request that does not come: close, with an answer where the client may still be there for it."""
        self._reading = None
        if self.transport.is_closing():
            return
        if self._in_head and not self._head_bytes:
            self.transport.close()
        elif self._in_head:
            self._refuse(RequestError("The request took too long to arrive.", status=408, code="request_timeout"))
        else:
            self.transport.abort()  # the handler sees that the client is gone

    def _refuse(self, error: RequestError) -> None:
        """Answer on the connection itself and close it. Replies that still run on it have ended for its client."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = encode_error(error)
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self._outgoing.write(STATUS_LINE[error.status] + head + body)
        self._outgoing.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError("This is no HTTP/1.1 request.", code="invalid_http"))

    def _unset_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_timers(self) -> None:
        self._unset_reading()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def with_limits(limits: ConnectionLimits) -> type[HTTPConnection]:
    """The protocol class that keeps to ``limits``."""
    return type("LimitedConnection", (HTTPConnection,), {"limits": limits, "outbox": Outbox()})


def _head_too_large() -> RequestError:
    return RequestError(
        f"The request's head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.",
        status=431,
        code="head_too_large",
    )
