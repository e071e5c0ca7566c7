"""vLLM started without its HTTP server: its command, and the talk of its start.

Never knows requests. Invariant: the core is ready only when it has said so on a socket that no other user can reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import zmq

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import ChildServer, EngineAddress, Program, WireAddress, socket_directory
from paraserve.engines.vllm.installed import defers_constraints
from paraserve.engines.vllm.wire import DEAD, input_of, output_of
from paraserve.engines.wire.sockets import Sockets


def headless_program(model_path: str, facts: Mapping[str, Any], flags: Sequence[str] = ()) -> Program:
    """``vllm serve --headless``, which dials in; ``flags`` are vLLM's own."""
    directory = socket_directory()
    return Program(
        name="vllm",
        command=("vllm", "serve", model_path, "--headless", "--data-parallel-address", "127.0.0.1", *flags),
        address=EngineAddress(defers_constraints=defers_constraints(flags), wire=WireAddress(directory, facts=facts)),
    )


class HeadlessVLLM(ChildServer):
    """The process, and the first of its front ends: it asks for nothing, and sees the core come and go.

    Args:
        clients: front ends beside it.
    """

    def __init__(self, program: Program, clients: int = 1, **timeouts: float) -> None:
        super().__init__(program, **timeouts)
        self._clients = clients
        self._bare_command = program.command
        self._address = program.address
        self._sockets: Sockets | None = None
        self._handshake: zmq.Socket[bytes] | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()

    @property
    def address(self) -> EngineAddress:
        return self._address

    @property
    def _place(self) -> WireAddress:
        assert self._address.wire is not None
        return self._address.wire

    def listen(self) -> int:
        """Bind what the core connects to, where that is not bound yet. Returns the port of the handshake."""
        self._ready.clear()
        if self._sockets is None:
            Path(self._place.directory).mkdir(mode=0o700)
            self._sockets = Sockets()
            # vLLM shakes hands over TCP alone; what it is told there are paths that are of no use to anybody else.
            self._handshake = self._sockets.bind(zmq.ROUTER, "tcp://127.0.0.1:*", self._shake_hands)
            where = input_of(self._place, 0)
            self._sockets.bind(zmq.ROUTER, where, self._take_facts, came=lambda: None, went=self._lost.set)
            self._sockets.bind(zmq.PULL, output_of(self._place, 0), self._take_output)
        assert self._handshake is not None
        return int(self._handshake.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    async def ready(self) -> None:
        await self._ready.wait()

    async def ended(self) -> str:
        """As soon as the core is gone, which the process that has started it notices late."""
        process, lost = asyncio.ensure_future(super().ended()), asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({process, lost}, return_when=asyncio.FIRST_COMPLETED)
            return process.result() if process.done() else "the death of its core"
        finally:
            process.cancel()
            lost.cancel()

    async def stop(self) -> None:
        await super().stop()
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
            shutil.rmtree(self._place.directory, ignore_errors=True)

    async def _spawn(self, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
        port = str(self.listen())
        self._program = replace(self._program, command=(*self._bare_command, "--data-parallel-rpc-port", port))
        return await super()._spawn(environment)

    async def _until_healthy(self, process: asyncio.subprocess.Process) -> None:
        ready, ended = asyncio.ensure_future(self.ready()), asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise EngineStartError(await self._reason(ended.result()))
        finally:
            ready.cancel()
            ended.cancel()

    def _shake_hands(self, frames: list[bytes]) -> None:
        assert self._handshake is not None
        with contextlib.suppress(ValueError, AttributeError, msgspec.DecodeError, zmq.ZMQError):  # anybody's knock
            name, message = frames
            if msgspec.msgpack.decode(message).get("status") == "HELLO":
                places = range(self._clients + 1)
                addresses = {
                    "inputs": [input_of(self._place, client) for client in places],
                    "outputs": [output_of(self._place, client) for client in places],
                }
                answer = msgspec.msgpack.encode({"addresses": addresses, "parallel_config": {}})
                self._handshake.send_multipart([name, answer])

    def _take_facts(self, frames: list[bytes]) -> None:
        """What the core says when its model is loaded."""
        told = msgspec.msgpack.decode(frames[1])
        ready = {name: told[name] for name in ("max_model_len", "vllm_version")}
        self._address = replace(self._address, wire=replace(self._place, facts={**self._place.facts, "ready": ready}))
        self._lost.clear()  # what was told of its predecessor
        self._ready.set()

    def _take_output(self, frames: list[bytes]) -> None:
        if frames == [DEAD]:
            self._lost.set()
