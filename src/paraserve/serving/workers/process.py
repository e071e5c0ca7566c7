"""A worker's process as its supervisor has it: started, spoken with, watched to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence

from paraserve.serving.workers.channel import Channel, ToSupervisor, ToWorker, read_by_supervisor


class WorkerProcess:
    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self._process = process
        self._channel = channel
        self.ready = False
        """Whether it accepts connections."""
        self.served = False
        """Whether it ever did."""

    @classmethod
    async def start(cls, slots: Sequence[socket.socket], environment: Mapping[str, str]) -> WorkerProcess:
        """Args:
        slots: the listening sockets, all of which it gets.
        environment: variables beside ours.
        """
        ours, theirs = socket.socketpair()
        descriptors = [end.fileno() for end in (theirs, *slots)]
        with theirs:  # while anybody else holds it, the end of the worker would go unnoticed
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "paraserve.serving.workers.worker",
                *map(str, descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C in a terminal is for the supervisor
            )
        return cls(process, await Channel.over(ours))

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, message: ToWorker) -> None:
        self._channel.send(message)

    async def messages(self) -> AsyncIterator[ToSupervisor]:
        """What it says, until it ends."""
        async for line in self._channel.lines():
            yield read_by_supervisor(line)

    async def ended(self) -> str:
        """How it ended, in words."""
        code = await self._process.wait()
        self._channel.close()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
