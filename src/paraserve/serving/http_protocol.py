"""HTTP/1.1 for the server: one client's connection, from bytes to exchanges and back. uvicorn's server listens and
drains; its own protocol is not used.

llhttp reads the requests (`httptools`), in the strict way; what it lets pass that RFC 9112 does not is refused here.
Never knows what is served. Two invariants: whatever one connection does costs bounded memory and ends in bounded time,
and where one request ends and the next begins never depends on how the bytes were cut, on an offer that is not taken,
or on what was answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from paraserve.api.direct_body import extension
from paraserve.api.errors import encode_error
from paraserve.api.trusted_callers import PEER
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.serving.connection_limits import LAST, ConnectionLimits, Phase
from paraserve.serving.exchange import STATUS_LINES, Exchange
from paraserve.serving.outbox import Outbox
from paraserve.serving.request_head import (
    MAX_HEAD_BYTES,
    awaits_continue,
    fault_of_head,
    head_too_large,
    no_http,
    no_room,
    scope_of,
)

_PIECE = 16 << 10
"""Bytes that are parsed before it is seen whether requests wait behind one that runs."""
_BODY_AHEAD = 64 << 10
"""Bytes that are read before the application asks for them: of a body, or of what is pipelined behind a request."""


class HTTPConnection(asyncio.Protocol):
    """One client's connection. `with_limits` makes the class that a server uses.

    Requests that were pipelined are parsed one ahead: the bytes behind it wait as bytes.
    """

    limits = ConnectionLimits()
    outbox: Outbox

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """As uvicorn's server makes one."""
        self._app = config.loaded_app
        self._server = server_state
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_head = True
        self._since = 0
        """Bytes that were parsed since there was a whole head, a piece of a body, or the end of a request."""
        self._exchanges: deque[Exchange] = deque()
        """Those that are not over, in their order. The first one runs."""
        self._incoming: Exchange | None = None
        """The one whose request is being parsed, past its head."""
        self._held = b""
        """What was received behind a request that waits."""
        self._deaf = False
        """Whether nothing more is understood: the connection ends with what is still to be answered."""
        self._fault: RequestError | None = None
        """Of the head that was read last."""
        self._refusal: RequestError | None = None
        """What is to be said last."""
        self._unwanted = 0
        """Bytes that were read after a refusal."""
        self._parts: list[bytes] = []
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True
        self._phase: Phase | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._on_end: Callable[[], None] | None = None

    def serve_last(self, on_end: Callable[[], None]) -> None:
        """`Accepted`."""
        self.limits, self._on_end = LAST, on_end

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._server.connections.add(self)  # type: ignore[arg-type]
        self._addresses = {
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
        }
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf, self._incoming = True, None
        self._server.connections.discard(self)
        self._parser = httptools.HttpRequestParser(None)  # the other one holds this
        for timer in filter(None, (self._clock, self._stalled)):
            timer.cancel()
        for exchange in self._exchanges:
            exchange.leave()
        self._writable.set()
        if self._on_end is not None:
            self._loop.call_soon(self._on_end)  # when the descriptor is free

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._drop(len(data))
        elif self._held:
            self._held += data
            self._regulate()
        else:
            self._parse(data)

    def pause_writing(self) -> None:
        self._writable.clear()
        if self._stalled is None:
            self._stalled = self._loop.call_later(self.limits.slow_client, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self._writable.set()

    # From bytes to exchanges

    def _parse(self, data: bytes) -> None:
        rest: bytes | memoryview = data if len(data) <= _PIECE else memoryview(data)
        while rest and not self._deaf:
            if len(self._exchanges) > 1:
                self._held = bytes(rest)
                self._regulate()
                break
            piece, rest = rest[:_PIECE], rest[_PIECE:]
            self._since += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade as offer:
                rest = b"".join((self._head_without_offer(), piece[offer.args[0] :], rest))
                self._parser = httptools.HttpRequestParser(self)
                self._since = 0
            except httptools.HttpParserError:
                if self._deaf:
                    self._drop(len(piece))
                else:
                    self._refuse(self._fault or no_http())
            else:
                if self._since > MAX_HEAD_BYTES:
                    self._refuse(head_too_large())
        self._advance()

    def _head_without_offer(self) -> bytes:
        """The head again, as that of an ordinary request, which one that offers another protocol is otherwise (RFC
        9110, 7.8). llhttp takes what follows it for that protocol."""
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    # llhttp's callbacks: what they raise ends `feed_data`

    def on_message_begin(self) -> None:
        self._in_head = True
        self._url = b""
        self._headers = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer, which nobody has asked for
            self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._in_head, self._since = False, 0
        if self._deaf:
            return
        method, version = self._parser.get_method().decode(), self._parser.get_http_version()
        if self._parser.should_upgrade() and method != "CONNECT":
            return  # it comes again, without the offer
        self._fault = fault_of_head(method, self._url, version, self._headers)
        if self._fault is not None:
            raise self._fault
        scope = scope_of(method, self._url, version, self._headers, self._addresses)
        if self._on_end is not None and scope["path"].rpartition("/")[2] != "health":
            self._fault = no_room()
            raise self._fault
        scope["state"] = {**self._app_state, PEER: self._addresses["client"]}
        exchange = Exchange(
            self,
            scope,
            keep_alive=version == "1.1" and self._parser.should_keep_alive() and self._on_end is None,
            awaits_continue=awaits_continue(version, self._headers),
        )
        scope["extensions"] = extension(exchange)
        self._exchanges.append(exchange)
        self._incoming = exchange

    def on_body(self, body: bytes) -> None:
        self._since = 0
        incoming = self._incoming
        if incoming is None or self._deaf:
            return
        if incoming.complete:
            self._drop(len(body))
            return
        incoming.feed(body)
        self._regulate()
        self._phase = None  # its clock begins again

    def on_message_complete(self) -> None:
        self._since = 0
        if self._incoming is None:
            return
        incoming, self._incoming = self._incoming, None
        self._unwanted = 0
        incoming.end()
        if not incoming.keep_alive:
            self._deaf = True  # the client has said that nothing follows

    # From exchange to exchange

    def _advance(self) -> None:
        if self._exchanges and not self._exchanges[0].running:
            exchange = self._exchanges[0]
            exchange.running = True
            task = self._loop.create_task(exchange.run(self._app), context=Context())
            self._server.tasks.add(task)
            task.add_done_callback(self._server.tasks.discard)
        self._watch()

    def completed(self, exchange: Exchange) -> None:
        self._server.total_requests += 1
        self._exchanges.popleft()
        if not exchange.keep_alive:
            self._end(arrived=exchange.arrived)
        elif self._refusal is not None and not self._exchanges:
            self._answer_refusal(self._refusal)
        else:
            held, self._held = self._held, b""
            self._regulate()
            self._parse(held)

    def _refuse(self, error: RequestError) -> None:
        """A request that is none, or does not come: it is answered behind those before it, and is the last one."""
        self._deaf, self._held = True, b""
        incoming, self._incoming = self._incoming, None
        if incoming is not None and incoming in self._exchanges:
            self._exchanges.remove(incoming)
            incoming.leave()
        if incoming is not None and incoming.started:
            self._end(arrived=False)  # its client has its answer already
        elif self._exchanges:
            self._refusal = error
        else:
            self._answer_refusal(error)

    def _answer_refusal(self, error: RequestError) -> None:
        body = encode_error(error)
        lines = [b"content-type: application/json", b"content-length: %d" % len(body), b"connection: close"]
        lines += [f"{name}: {value}".encode() for name, value in error.headers.items()]
        self.write(STATUS_LINES[error.status] + b"\r\n".join([*lines, b"", body]))
        self._end(arrived=False)

    def _end(self, *, arrived: bool) -> None:
        """Nothing more is answered. A client that may still be writing would lose the answer to a reset: some of what
        it writes is read first."""
        self._deaf, self._held, self._incoming = True, b"", None
        self._exchanges.clear()
        self.flush()
        if self.transport.is_closing() or (arrived and not self._unwanted):
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._regulate()
        self._watch("refused")

    def _drop(self, size: int) -> None:
        self._unwanted += size
        if self._unwanted > self.limits.refused_bytes:
            self.transport.abort()

    def shutdown(self) -> None:
        """uvicorn's server stops: what runs may end, nothing more begins."""
        if self._exchanges:
            self._exchanges[0].keep_alive = False
        else:
            self.close()

    def close_if_idle(self) -> bool:
        """Others need its descriptor. Returns whether it is closed."""
        idle = self._phase == "idle" and not self.transport.is_closing()
        if idle:
            self.close()
        return idle

    # What a client is waited for, and how long

    def _watch(self, phase: Phase | None = None) -> None:
        """Run the clock of what the connection waits for now. It goes on where that is the same as before."""
        phase = phase or self._awaited()
        if phase == self._phase and self._clock is not None:
            return
        self._phase = phase
        if self._clock is not None:
            self._clock.cancel()
        self._clock = None if phase is None else self._loop.call_later(getattr(self.limits, phase), self._late)

    def _awaited(self) -> Phase | None:
        if self._phase == "refused" and self._deaf:
            return "refused"
        incoming = self._incoming
        if incoming is not None:
            return "refused" if incoming.complete else "body_silence" if self._reading else None
        if self._deaf or self._exchanges:
            return None
        return "head" if self._in_head else "idle"

    def _late(self) -> None:
        self._clock = None
        if self._phase == "idle" or (self._phase == "head" and not self._since):
            self.close()
        elif self._phase == "refused":
            self.abort()
        elif not self.transport.is_closing():
            self._refuse(
                RequestError("The request took too long to arrive.", status=408, code=ErrorCode.REQUEST_TIMEOUT)
            )

    def _regulate(self) -> None:
        """Read from the client, or let it wait: it is heard of when it leaves only while it is read from."""
        incoming = self._incoming
        ahead = len(self._held) + (incoming.ahead if incoming is not None and not incoming.complete else 0)
        if self._reading != (ahead <= _BODY_AHEAD) and not self.transport.is_closing():
            self._reading = not self._reading
            if self._reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # `Wire`

    @property
    def default_headers(self) -> Iterable[tuple[bytes, bytes]]:
        return self._server.default_headers

    @property
    def behind(self) -> bool:
        return not self._writable.is_set()

    def drain(self) -> Awaitable[Any]:
        return self._writable.wait()

    def body_taken(self) -> None:
        if not self._reading:
            self._regulate()
            self._watch()

    def write(self, data: bytes) -> None:
        if not self._parts:
            self.outbox.add(self, self._loop)
        self._parts.append(data)

    def flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self.transport.is_closing():
            self.transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        self.flush()
        self.transport.close()

    def abort(self) -> None:
        self.flush()
        self.transport.abort()


def with_limits(limits: ConnectionLimits) -> type[HTTPConnection]:
    """The protocol class that keeps to ``limits``."""
    return type("LimitedConnection", (HTTPConnection,), {"limits": limits, "outbox": Outbox()})
