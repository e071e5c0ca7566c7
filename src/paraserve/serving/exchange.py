"""One request and its response, between a connection and the ASGI application.

Never knows sockets, or how requests are parsed. Invariants: what the application writes is framed as the client's
version of HTTP has it, a response that is not whole is never taken for a whole one, and what is written for a client
that has left goes nowhere.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger(__name__)

STATUS_LINES = {
    status: f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase if status in set(http.HTTPStatus) else ''}\r\n".encode()
    for status in range(200, 600)
}
_BODILESS = frozenset({204, 304})


class Wire(Protocol):
    """What an exchange needs of its connection."""

    @property
    def default_headers(self) -> Iterable[tuple[bytes, bytes]]:
        """Of every response."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the client does not keep up with what is written."""
        ...

    def write(self, data: bytes) -> None: ...

    def drain(self) -> Awaitable[Any]:
        """Returns when the client has caught up, or has left."""
        ...

    def body_taken(self) -> None:
        """The application has taken what there was of the request's body."""
        ...

    def completed(self, exchange: Exchange) -> None:
        """The response is whole."""
        ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Exchange:
    """Also the `DirectBody` of its response.

    Args:
        scope: ASGI's. This adds nothing to it.
        keep_alive: whether the client keeps the connection for its next request.
        awaits_continue: whether the client sends its body only when it is asked to.
    """

    __slots__ = (
        "_awaits_continue",
        "_body",
        "_chunked",
        "_mute",
        "_news",
        "_promised",
        "_scope",
        "_watches",
        "_wire",
        "arrived",
        "client_left",
        "complete",
        "keep_alive",
        "running",
        "started",
    )

    def __init__(self, wire: Wire, scope: Scope, *, keep_alive: bool, awaits_continue: bool) -> None:
        self._wire = wire
        self._scope = scope
        self._awaits_continue = awaits_continue
        self._body = bytearray()
        self._news = asyncio.Event()
        self._watches: list[asyncio.Future[None]] = []
        self._mute = self._chunked = False
        self._promised: int | None = None
        """Bytes of the response's body that its head has promised and that are still to come."""
        self.keep_alive = keep_alive
        self.arrived = False
        """Whether the request is whole."""
        self.running = False
        self.started = False
        """Whether the response's head is written."""
        self.complete = False
        """Whether the response is whole."""
        self.client_left = False
        """Whether the client has left."""

    async def run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self._receive, self._send)
        except Exception as bug:
            if not self.complete:  # else the application has answered it
                log.error("%s failed", self._scope["path"], exc_info=bug)
        finally:
            if not (self.complete or self.client_left):
                self._break_off()
            # The scope holds this: all that a request has made would wait for the collector of circles.
            self._scope = {}

    def _break_off(self) -> None:
        """Where the connection's end is the body's, only a reset tells the client that it is none."""
        if self.started and not self._chunked and self._promised is None:
            self._wire.abort()
        else:
            self._wire.close()

    # The request

    @property
    def ahead(self) -> int:
        """Bytes of the body that the application has not taken."""
        return len(self._body)

    def feed(self, body: bytes) -> None:
        self._body += body
        self._news.set()

    def end(self) -> None:
        self.arrived = True
        self._news.set()

    def leave(self) -> None:
        """The client is gone."""
        self.client_left = True
        self._news.set()
        for watch in self._watches:
            if not watch.done():
                watch.set_result(None)

    async def _receive(self) -> Message:
        if self._awaits_continue and not self.started:
            self._awaits_continue = False
            if not self._news.is_set():  # else the client did not wait for it
                self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not (self.client_left or self.complete):
            await self._news.wait()
            self._news.clear()
        if self.client_left or self.complete:
            return {"type": "http.disconnect"}
        body, self._body = self._body, bytearray()
        self._wire.body_taken()  # also of the last part: a client that leaves is heard of only while it is read from
        return {"type": "http.request", "body": bytes(body), "more_body": not self.arrived}

    # The response

    async def _send(self, message: Message) -> None:
        if self._wire.behind and not self.client_left:
            await self._wire.drain()
        if self.client_left:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        else:
            self._part(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._awaits_continue and not self.arrived:
            self.keep_alive = False  # what comes next may be the body, or not
        lines = []
        for name, value in [*self._wire.default_headers, *headers]:
            if name == b"content-length":
                self._promised = int(value)
            if name != b"connection":
                lines.append(b"%b: %b\r\n" % (name, value))
            elif value.lower() == b"close":
                self.keep_alive = False
        self._mute = self._scope["method"] == "HEAD" or status in _BODILESS
        if self._promised is None and not self._mute:
            self._chunked = self._scope["http_version"] == "1.1"
            self.keep_alive &= self._chunked
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise ValueError("a response's header holds a line break")
        self.started = True
        self._wire.write(STATUS_LINES[status] + head + b"\r\n")

    def _part(self, body: bytes, more: bool) -> None:
        if body and not self._mute:
            self._write_body(body)
        if more:
            return
        if self._promised and not self._mute:
            raise ValueError("a response's body is shorter than its head says")
        if self._chunked:
            self._wire.write(b"0\r\n\r\n")
        self.complete = True
        self._news.set()
        self._wire.completed(self)

    def _write_body(self, body: bytes) -> None:
        if self._chunked:
            self._wire.write(b"%x\r\n%b\r\n" % (len(body), body))
            return
        if self._promised is not None:
            self._promised -= len(body)
            if self._promised < 0:
                raise ValueError("a response's body is longer than its head says")
        self._wire.write(body)

    # The short way

    def write(self, body: bytes) -> Awaitable[None] | None:
        if self.client_left:
            return None
        if self._chunked:
            self._wire.write(b"%x\r\n%b\r\n" % (len(body), body))
        elif not self._mute:
            self._write_body(body)
        return self._wire.drain() if self._wire.behind else None

    def gone(self) -> asyncio.Future[None]:
        watch: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watches = [other for other in self._watches if not other.done()]
        self._watches.append(watch)
        if self.client_left:
            watch.set_result(None)
        return watch
