"""Connections while the process has, or has no, descriptors left for them.

Accepting is done here and not by uvloop's server, which resets connections that it has no descriptor for and tells
nobody of it. Never knows HTTP. Invariants: a connection that was not accepted stays in the kernel's queue, the last
descriptors are there for nothing but telling how things are, and the log says when they are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

MOST_FILES = 1 << 20
"""Where there is no limit: some programs that are started from here go through all that there could be."""
RESERVED = 4
RETRY_SECONDS = 0.05
LOG_SECONDS = 1.0
HANDSHAKE_SECONDS = 30.0
LAST_SECONDS = 2.0
"""For a handshake on one of the last descriptors."""
_AT_ONCE = 64
"""Connections that are accepted in one turn of the event loop."""
_OWN_FILES = 32
"""About what the process has open without any client."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NONE_THERE = (BlockingIOError, InterruptedError, ConnectionAbortedError)

log = logging.getLogger(__name__)


def most_connections() -> int:
    """How many clients are served at once: half of what may be open, for each has a connection to the engine."""
    return max(1, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OWN_FILES) // 2)


def raise_limit() -> None:
    """As many open files as the system lets this process have: a connection is one, and one more to the engine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):  # some systems have a lower bound of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@runtime_checkable
class Accepted(Protocol):
    """A connection's protocol."""

    def serve_last(self, on_end: Callable[[], None]) -> None:
        """There is no room for it: it says how things are, and closes. ``on_end`` is called then."""
        ...


class Reserve:
    """The last descriptors of the process, kept by what is open for nothing."""

    def __init__(self) -> None:
        self._kept = [_placeholder() for _ in range(RESERVED)]
        self._told = float("-inf")

    def take(self) -> bool:
        """Free one. Returns whether there was one."""
        if not self._kept:
            return False
        os.close(self._kept.pop())
        return True

    def give_back(self) -> None:
        """One that was taken is free again, or will be."""
        try:
            self._kept.append(_placeholder())
        except OSError:  # somebody was faster
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.give_back)

    def tell(self) -> None:
        """Say in the log that there is none left, at most once a second."""
        if time.monotonic() - self._told < LOG_SECONDS:
            return
        self._told = time.monotonic()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        log.error(
            "no room for another connection among the %d open files of this process: new ones get 503, or /health; "
            "raise the limit (ulimit -n, LimitNOFILE=)",
            limit,
        )

    def close(self) -> None:
        while self.take():
            pass


class Listener:
    """What accepts the connections of one bound socket, in the place of an `asyncio.Server`.

    Args:
        make: a new connection's protocol, an `Accepted`.
        connections: those that live.
        make_room: closes connections that can be missed. Returns whether there were any.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        reserve: Reserve,
        *,
        connections: Collection[object],
        make_room: Callable[[], bool],
        tls: ssl.SSLContext | None,
        backlog: int,
    ) -> None:
        self._listening = listening
        self._make = make
        self._reserve = reserve
        self._connections = connections
        self._most = most_connections()
        self._make_room = make_room
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening = 0
        """Connections that are being made."""
        self._closed = False
        listening.setblocking(False)
        listening.listen(backlog)
        self._listen()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        return () if self._closed else (self._listening,)

    def close(self) -> None:
        """Connections that were accepted stay."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listening)
            self._listening.close()

    async def wait_closed(self) -> None:
        """At once: what uvicorn's server waits for are connections, and it counts them itself."""

    def _listen(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if len(self._connections) + self._opening >= self._most:
                self._accept_last()
                return
            try:
                accepted = self._listening.accept()[0]
            except _NONE_THERE:
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._accept_last()
                return
            self._open(accepted, self._make(), HANDSHAKE_SECONDS)

    def _accept_last(self) -> None:
        """Nothing is left but the descriptors that are kept: few at a time, the others wait."""
        if self._make_room() or not self._reserve.take():
            self._loop.remove_reader(self._listening)
            self._loop.call_later(RETRY_SECONDS, self._listen)
            return
        self._reserve.tell()
        try:
            accepted = self._listening.accept()[0]
        except OSError:
            self._reserve.give_back()
            return
        protocol = self._make()
        assert isinstance(protocol, Accepted)
        protocol.serve_last(self._last_ended)
        self._open(accepted, protocol, LAST_SECONDS)

    def _last_ended(self) -> None:
        self._reserve.give_back()
        self._listen()

    def _open(self, accepted: socket.socket, protocol: asyncio.Protocol, handshake: float) -> None:
        self._opening += 1
        self._go_on(self._connect(accepted, protocol, handshake))

    def _go_on(self, connecting: Coroutine[Any, Any, None], _: object = None) -> None:
        """Step it by hand: a task would begin and end in turns of the event loop of its own, which made a third of
        what a connection costs."""
        with contextlib.suppress(StopIteration):
            waits_for: asyncio.Future[Any] = connecting.send(None)
            waits_for.add_done_callback(partial(self._go_on, connecting))

    async def _connect(self, accepted: socket.socket, protocol: asyncio.Protocol, handshake: float) -> None:
        accepted.setblocking(False)
        tls: dict[str, Any] = {"ssl": self._tls, "ssl_handshake_timeout": handshake} if self._tls is not None else {}
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted, **tls)
        except OSError as error:  # a client that speaks no TLS, or has left
            log.debug("a connection was not made: %s", error)
            protocol.connection_lost(error)
            accepted.close()
        finally:
            self._opening -= 1


def _placeholder() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
