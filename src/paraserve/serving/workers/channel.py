"""What a supervisor and its worker say to each other, and the line that they say it on.

Messages are JSON, one a line, on a pair of sockets that nobody else has. Invariant: the end of the line is the end of
the other process, and nothing is lost before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping

import msgspec

from paraserve.engines.child import EngineAddress
from paraserve.protocol.error_codes import ErrorCode
from paraserve.settings import ServerSettings

LONGEST = 1 << 24
"""Bytes of a message: settings may hold many keys."""


class Job(msgspec.Struct, frozen=True, tag="job"):
    """The first message to a worker. Not on its command line and not in its environment: it has the keys.

    Args:
        created: when the server was started, seconds of the epoch: all workers show the same.
        first: whether it tells the steps of its start and logs its warnings; the others would repeat them.
        shares_engine: whether a `EngineAddress` follows.
        metrics: the name under which it keeps its metrics: its predecessor's in the slot, whose counts it goes on from.
    """

    settings: ServerSettings
    slot: int
    created: int
    first: bool
    shares_engine: bool
    metrics: str


class EngineReady(msgspec.Struct, frozen=True, tag="engine"):
    """The engine that the supervisor has started can be reached."""

    engine: EngineAddress


class EngineAway(msgspec.Struct, frozen=True, tag="away"):
    """It has died. `EngineReady` follows when it is back."""

    reason: str


class Adopt(msgspec.Struct, frozen=True, tag="adopt"):
    """Accept connections of this slot as well: its own worker is away."""

    slot: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Its own worker is back."""

    slot: int


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """The engine has made tokens for clients of another worker."""


class Placed(msgspec.Struct, frozen=True, tag="placed"):
    """The request that asked has a place."""

    request: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It gets none."""

    request: int
    status: int
    message: str
    code: ErrorCode | None
    headers: Mapping[str, str]


class Step(msgspec.Struct, frozen=True, tag="step"):
    """What a worker's start is doing."""

    text: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A worker cannot start, and why."""

    reason: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """A worker accepts connections. ``facts`` are what a ready server says of itself."""

    facts: Mapping[str, str]


class Closing(msgspec.Struct, frozen=True, tag="closing"):
    """A worker accepts no more connections and ends when its replies have."""


class Enter(msgspec.Struct, frozen=True, tag="enter"):
    """A request asks for a place. Its number is the worker's own."""

    request: int
    caller: bytes | None


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """A request gives its place back, or does not wait for one any longer."""

    request: int


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The worker's event loop turns. ``tokens``: whether its clients got any since the last one."""

    tokens: bool


ToWorker = Job | EngineReady | EngineAway | Adopt | Release | Heard | Placed | Refused
ToSupervisor = Step | Failed | Ready | Closing | Beat | Enter | Leave

_encoder = msgspec.json.Encoder()


class Channel:
    """One end of the line.

    Args:
        side: whose messages are read here.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        return cls(*await asyncio.open_unix_connection(sock=end, limit=LONGEST))

    def send(self, message: ToWorker | ToSupervisor) -> None:
        """To one that is gone nothing is said."""
        if not self._writer.is_closing():
            self._writer.write(_encoder.encode(message) + b"\n")

    async def lines(self) -> AsyncIterator[bytes]:
        """Messages as they come, until the other process has ended."""
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                yield line
        except ConnectionError:
            return

    async def flush(self) -> None:
        """Returns when what was said is on its way, or nobody is there to hear it."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


read_by_worker = msgspec.json.Decoder(ToWorker).decode
read_by_supervisor = msgspec.json.Decoder(ToSupervisor).decode
