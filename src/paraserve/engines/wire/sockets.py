"""ZeroMQ sockets that are read in the event loop's own turns, without a coroutine for a message.

Never knows what messages mean. Two invariants: a message that has come is handed on in the turn in which its socket is
found readable, in order; and nothing is bound but a path in a directory of ours, or the loopback interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import zmq
from zmq.utils.monitor import parse_monitor_message

MOST_A_TURN = 64
"""Messages that are read before others have their turn."""
LINGER_MILLISECONDS = 500
"""What a socket that is closed has left to send may take."""


class Sockets:
    """Those of one front end. Must be made in a running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._open: list[zmq.Socket[bytes]] = []

    def bind(
        self,
        kind: int,
        address: str,
        take: Callable[[list[bytes]], None],
        *,
        came: Callable[[], None] | None = None,
        went: Callable[[], None] = lambda: None,
    ) -> zmq.Socket[bytes]:
        """A bound socket whose messages are handed to ``take``.

        Args:
            came: told when a peer has connected, and ``went`` when it is gone.
        """
        assert address.startswith(("ipc:///", "tcp://127.0.0.1:")), address
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        socket.linger = LINGER_MILLISECONDS
        if kind == zmq.ROUTER:
            socket.router_mandatory = True  # what cannot be delivered is an error
            socket.router_handover = True  # one that was started again has its predecessor's name
        if came is not None:
            self._watch(socket, came, went)  # first: a peer may be waiting for the address
        socket.bind(address)
        self._read_by(socket, take)
        return socket

    def _watch(self, socket: zmq.Socket[bytes], came: Callable[[], None], went: Callable[[], None]) -> None:
        def take(frames: list[bytes]) -> None:
            event = parse_monitor_message(frames)["event"]
            (came if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else went)()

        events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._read_by(socket.get_monitor_socket(events), take)

    def close(self) -> None:
        for socket in self._open:
            self._loop.remove_reader(socket.FD)
            if socket.type != zmq.PAIR:
                socket.disable_monitor()
        for socket in self._open:
            socket.close()
        self._open.clear()
        self._context.term()

    def _read_by(self, socket: zmq.Socket[bytes], take: Callable[[list[bytes]], None]) -> None:
        self._open.append(socket)
        read = partial(self._read, socket, take)
        self._loop.add_reader(socket.FD, read)
        self._loop.call_soon(read)

    def _read(self, socket: zmq.Socket[bytes], take: Callable[[list[bytes]], None]) -> None:
        """The descriptor says once that there is something: whatever is left is read in another turn."""
        for _ in range(MOST_A_TURN):
            if socket.closed or not int(socket.get(zmq.EVENTS)) & zmq.POLLIN:
                return
            try:
                take(socket.recv_multipart(zmq.NOBLOCK))
            except BaseException:
                self._loop.call_soon(self._read, socket, take)
                raise
        self._loop.call_soon(self._read, socket, take)
