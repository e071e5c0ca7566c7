"""The real sglang-router as a process in front of two SGLang workers of this process, regular or prefill/decode.

Knows the router's flags and nothing of what is checked through it. ``PARASERVE_ROUTER_PYTHON`` names an interpreter
that has ``sglang-router`` (``scripts/e2e-router.sh`` makes one).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import kits  # noqa: F401 - those of the tests

from paraserve.engines.base import EngineStartError
from paraserve.engines.sglang.engine import SGLangEngine
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_fake import FakeSGLang

Mode = Literal["regular", "prefill-decode"]

CALM = ("--disable-retries", "--disable-circuit-breaker")
"""Flags with which a failure of one check bears on no other."""
_FLAGS = ("--host", "127.0.0.1", "--log-level", "error", "--health-check-interval-secs", "600")
_READY_SECONDS = 60


@dataclass
class Routed:
    """A router that runs, and its workers: in prefill/decode mode the first one is the prefill side."""

    mode: Mode
    url: str
    workers: Sequence[FakeSGLang]
    _servers: Sequence[AsyncExitStack]

    @property
    def prefill(self) -> FakeSGLang:
        return self.workers[0]

    @property
    def decode(self) -> FakeSGLang:
        return self.workers[-1]

    async def take_away(self, worker: FakeSGLang) -> None:
        """Stop the worker's server: nobody listens on its port from now on."""
        await self._servers[self.workers.index(worker)].aclose()


@asynccontextmanager
async def router(mode: Mode, workers: Sequence[FakeSGLang], flags: Sequence[str] = CALM) -> AsyncIterator[Routed]:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(AsyncExitStack()) for _ in workers]
        urls = [await own.enter_async_context(serving(worker)) for own, worker in zip(servers, workers, strict=True)]
        where = ["--worker-urls", *urls]
        if mode == "prefill-decode":
            where = ["--pd-disaggregation", "--prefill", urls[0], "8998", "--decode", urls[1]]
        port = free_port()
        command = [os.environ["PARASERVE_ROUTER_PYTHON"], "-m", "sglang_router.launch_router", *_FLAGS, *flags, *where]
        command += ["--port", str(port), "--prometheus-port", str(free_port())]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        try:
            yield Routed(mode, f"http://127.0.0.1:{port}", workers, servers)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def started(engine: SGLangEngine) -> None:
    """Start the adapter as soon as the router lets it."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            await engine.start()
            if (await engine.health()).ok:
                return
            await engine.stop()
        except EngineStartError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.2)
