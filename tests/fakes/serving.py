"""Run an ASGI app of the tests on a free port of this machine, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """At once, where uvicorn would wait for its clients: they are the test's."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stay the test runner's."""
        yield


@contextlib.asynccontextmanager
async def serving(app: Any, *, keep_alive: int = 5, port: int = 0, http: Any = "auto") -> AsyncIterator[str]:
    """The base URL of the app while it runs. ``http`` is uvicorn's protocol class."""
    bound = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(
        app,
        http=http,
        log_level="critical",
        lifespan="off",
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        await server.listening.wait()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.force_exit = True
        server.stopping.set()
        await task
        bound.close()


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port
