"""One engine's HTTP server: small calls and event streams over pooled connections.

Never knows what an engine's bodies mean. Two invariants: whatever goes wrong on the wire is an `EngineError` whose
message holds no address, and a request is sent a second time only when its connection came from the pool and died
before the first byte of an answer (the peer had closed it while it was idle).

aiohttp was chosen over httpx for a third of the CPU time an event (``benchmarks/engine_client.py``).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import aiohttp
import msgspec

from paraserve.engines.base import EngineError
from paraserve.engines.checks import UNREADABLE, garbled
from paraserve.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

_HOP_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"}
    | {"cookie", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Never taken from a client: they are this hop's own."""

_MAX_ERROR_BODY = 64 << 10
_MAX_ANSWER = 16 << 20
"""Bytes of the answer to a small call: SGLang's and llama.cpp's facts, a chat template among them, are some 100 KB."""
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_LOG_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HTTPTimeouts:
    """Seconds. The length of a generation has no limit: only silence has."""

    connect: float = 5.0
    idle: float = 600.0
    """Between two bytes, the wait for the first one (queue and prefill) included."""
    call: float = 10.0
    """A whole small call: health, model facts, abort."""


@dataclass(frozen=True, slots=True)
class HTTPReply:
    """The answer to a small call."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The decoded body, None where it is no JSON."""
        try:
            return msgspec.json.decode(self.body)
        except UNREADABLE:
            return None


class HTTPStream:
    """An answer that is still being sent."""

    __slots__ = ("_response", "content_type", "fresh", "status")

    def __init__(self, response: aiohttp.ClientResponse, *, fresh: bool) -> None:
        self._response = response
        self.fresh = fresh
        """Whether its connection was made for it: what is behind it may be another process than before."""
        self.status = response.status
        self.content_type = response.content_type

    async def read(self) -> bytes:
        """The next bytes, as they come; b"" at the end. Raises `EngineError` for silence and a broken connection."""
        try:
            return await self._response.content.readany()
        except TimeoutError as error:
            raise silent() from error
        except (aiohttp.ClientError, OSError) as error:
            raise broken() from error

    async def body(self) -> bytes:
        """The first bytes of the answer, enough for an error message."""
        held = b""
        while len(held) < _MAX_ERROR_BODY and (received := await self.read()):
            held += received
        return held

    async def drain(self) -> None:
        """Read to the end, so that the connection goes back to the pool; close it where that fails."""
        try:
            async with asyncio.timeout(1.0):
                async for _ in self._response.content.iter_any():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            self.close()
        else:
            self._response.release()

    def close(self) -> None:
        """Drop the connection at once."""
        self._response.close()


class EngineHTTP:
    """The connection pool of one engine.

    Args:
        base_url: where the engine listens, with or without a slash at its end. A user and password in it are sent
            with every request, and shown nowhere.
        api_key: sent as a bearer token when given, in place of these.
        unix_socket: a socket of this machine to connect to instead of the URL's host.
        reuse: keep connections for the next request. llama.cpp's server breaks off those that it gets twice.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: HTTPTimeouts | None = None,
        api_key: str | None = None,
        unix_socket: str | None = None,
        reuse: bool = True,
    ) -> None:
        self.base_url, user = _without_user(base_url.rstrip("/"))
        self._unix_socket = unix_socket
        self._reuse = reuse
        self._timeouts = timeouts or HTTPTimeouts()
        self._headers = {}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        elif user:
            name, _, password = user.partition(":")
            self._headers["authorization"] = aiohttp.encode_basic_auth(unquote(name), unquote(password))
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._told_shortage = float("-inf")

    async def open(self) -> None:
        """Make the pool; does not connect."""
        if self._pooled is None:
            self._pooled = self._session(self._connector(reuse=self._reuse))
            self._fresh = self._session(self._connector(reuse=False))

    async def close(self) -> None:
        sessions = [session for session in (self._pooled, self._fresh) if session is not None]
        self._pooled = self._fresh = None
        async with AsyncExitStack() as closing:  # each of them, also where the caller is cancelled meanwhile
            for session in sessions:
                closing.push_async_callback(session.close)

    async def get(self, path: str) -> HTTPReply:
        return await self._call("GET", path, None)

    async def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> HTTPReply:
        return await self._call("POST", path, msgspec.json.encode(body), headers)

    async def stream(self, path: str, body: bytes, headers: Mapping[str, str]) -> HTTPStream:
        """Send a request and return when the head of its answer is there.

        Args:
            headers: the client's own routing headers; what belongs to this hop is taken out of them.
        """
        sent = _of_client(headers) | {"content-type": "application/json", "accept": "text/event-stream"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect, sock_read=self._timeouts.idle)
        try:
            response, fresh = await self._send("POST", path, data=body, headers=sent, timeout=timeout)
            return HTTPStream(response, fresh=fresh)
        except EngineError as error:
            if error.code != ErrorCode.OVERLOADED:
                logger.warning("%s%s: %r", self.base_url, path, error.__cause__ or error)
            raise

    def _connector(self, *, reuse: bool) -> aiohttp.BaseConnector:
        keep: dict[str, Any] = {"keepalive_timeout": 60.0} if reuse else {"force_close": True}
        if self._unix_socket is not None:
            return aiohttp.UnixConnector(self._unix_socket, limit=0, **keep)
        return aiohttp.TCPConnector(limit=0, **keep)

    def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_mark_reused)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept-encoding": "identity", **self._headers},
            auto_decompress=False,
            trace_configs=[trace],
        )

    async def _call(
        self, method: str, path: str, body: bytes | None, of_client: Mapping[str, str] | None = None
    ) -> HTTPReply:
        timeout = aiohttp.ClientTimeout(total=self._timeouts.call, sock_connect=self._timeouts.connect)
        headers = _of_client(of_client or {}) | ({"content-type": "application/json"} if body is not None else {})
        response, _ = await self._send(method, path, data=body, headers=headers, timeout=timeout)
        try:
            return HTTPReply(response.status, await _answer(response))
        except TimeoutError as error:
            raise silent() from error
        except (aiohttp.ClientError, OSError) as error:
            raise broken() from error
        finally:
            response.release()

    async def _send(self, method: str, path: str, **options: Any) -> tuple[aiohttp.ClientResponse, bool]:
        """The answer, and whether its connection was made for it."""
        if self._pooled is None or self._fresh is None:
            raise unreachable()
        connection = SimpleNamespace(reused=False)
        try:
            try:
                response = await self._pooled.request(
                    method, self.base_url + path, allow_redirects=False, trace_request_ctx=connection, **options
                )
                return _plain(response), not connection.reused
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.reused:
                    raise
            logger.debug("a pooled connection was stale: sending once more on a fresh one")
            response = await self._fresh.request(method, self.base_url + path, allow_redirects=False, **options)
            return _plain(response), True
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            if error.errno in _NO_DESCRIPTOR:
                self._tell_shortage()
                raise no_descriptor() from error
            raise unreachable() from error
        except TimeoutError as error:
            raise silent() from error
        except (aiohttp.ClientError, OSError) as error:
            raise broken() from error

    def _tell_shortage(self) -> None:
        now = time.monotonic()
        if now - self._told_shortage >= _LOG_SECONDS:
            self._told_shortage = now
            logger.error(
                "no open file is left for a connection to the engine at %s: requests get 503; raise the limit "
                "(ulimit -n, LimitNOFILE=)",
                self.base_url,
            )


def _plain(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    """The same, unless it is compressed, which nobody asked for: it may unfold to anything."""
    if response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity"):
        return response
    response.close()
    raise garbled()


async def _answer(response: aiohttp.ClientResponse) -> bytes:
    """The whole body. Raises `EngineError` for more than small calls are answered with."""
    held = bytearray()
    async for received in response.content.iter_any():
        held += received
        if len(held) > _MAX_ANSWER:
            response.close()
            raise garbled()
    return bytes(held)


def _of_client(headers: Mapping[str, str]) -> dict[str, str]:
    """Without those that belong to this hop."""
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}


def _without_user(url: str) -> tuple[str, str]:
    """A URL without, and its ``user:password``."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    user, _, host = place.rpartition("@")
    return scheme + separator + host + slash + path, user


def unreachable() -> EngineError:
    """No connection: nothing of the request has run."""
    return EngineError(503, ErrorCode.ENGINE_UNREACHABLE, "The engine cannot be reached.")


def no_descriptor() -> EngineError:
    """It is we who have no room for a connection: no fault of the engine's, and nothing of the request has run."""
    return EngineError(503, ErrorCode.OVERLOADED, "The server has no room for another connection.")


def silent() -> EngineError:
    """The engine has sent nothing for longer than the idle timeout."""
    return EngineError(504, ErrorCode.ENGINE_TIMEOUT, "The engine did not answer in time.")


def broken() -> EngineError:
    """The connection ended before the answer did."""
    return EngineError(502, ErrorCode.ENGINE_DISCONNECTED, "The engine broke the reply off.")


async def _mark_reused(_session: aiohttp.ClientSession, context: Any, _params: object) -> None:
    context.trace_request_ctx.reused = True
