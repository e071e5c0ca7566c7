"""How long others wait, and what memory is taken, while one client sends hostile requests of every kind.

    python benchmarks/hostile.py                       # every kind, of two megabytes
    python benchmarks/hostile.py --size 1000000 messages "a text"

A real server with the scripted engine. Beside each request of `tests/hostile.py` a second connection asks for
``/health`` again and again, and a third reads a running stream: the row names the longest that either waited (ms), the
memory that was taken at the most and that was left a second later, both in times the unpacked body. The first row is
that of no hostile request at all: what the machine itself makes others wait.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import checkout  # noqa: F401 - the tests' kits
from load_servers import ServerProcess, free_port, paraserve_command, served

from tests.hostile import KINDS, Attack, attack

SCRIPT = {"replies": [{"text": "word " * 200_000, "delay": 0.005, "when": "go on"}, {"text": "Short."}]}
STREAM = json.dumps({"messages": [{"role": "user", "content": "go on"}], "stream": True, "max_tokens": 100_000})
QUIET_SECONDS = 1.0


class Watch:
    """What a client that asks for nothing but health, and one that reads a stream, wait at the most."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        where = urlsplit(server.url)
        self._address = (where.hostname, where.port)
        self.health = self.stream = 0.0
        self.most = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self._address)

    async def post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """The head of the answer."""
        reader, writer = await self.connect()
        try:
            named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{named}\r\n"
            writer.write(head.encode("latin-1") + body)
            head_of_answer = await reader.readuntil(b"\r\n\r\n")
            await _drain(reader, head_of_answer)
            return head_of_answer
        finally:
            writer.transport.abort()

    async def during(self, work: Callable[[], Awaitable[object]]) -> None:
        self.health = self.stream = 0.0
        self.most = self._server.resident()
        watches = [asyncio.ensure_future(watch()) for watch in (self._ask_health, self._read_stream, self._weigh)]
        await asyncio.sleep(0.5)
        self.health = self.stream = 0.0
        await work()
        for watch in watches:
            watch.cancel()
        await asyncio.wait(watches)

    async def _ask_health(self) -> None:
        reader, writer = await self.connect()
        try:
            while True:
                began = time.perf_counter()
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await _drain(reader, await reader.readuntil(b"\r\n\r\n"))
                self.health = max(self.health, time.perf_counter() - began)
                await asyncio.sleep(0.005)
        finally:
            writer.transport.abort()

    async def _read_stream(self) -> None:
        reader, writer = await self.connect()
        try:
            body = STREAM.encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            while await reader.read(65_536):
                began = time.perf_counter()
                await reader.readexactly(1)
                self.stream = max(self.stream, time.perf_counter() - began)
        finally:
            writer.transport.abort()

    async def _weigh(self) -> None:
        while True:
            self.most = max(self.most, self._server.resident())
            await asyncio.sleep(0.01)


async def _drain(reader: asyncio.StreamReader, head: bytes) -> None:
    """Read the body behind a head."""
    if b"transfer-encoding: chunked" in head.lower():
        while (size := int(await reader.readuntil(b"\r\n"), 16)) or True:
            await reader.readexactly(size + 2)
            if not size:
                return
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            await reader.readexactly(int(line.partition(b":")[2]))


async def measure(server: ServerProcess, kinds: list[str], size: int) -> None:
    watch = Watch(server)
    print(f"{'kind':42} {'status':>6} {'health ms':>10} {'stream ms':>10} {'most ×':>7} {'left ×':>7}", flush=True)
    await watch.during(lambda: asyncio.sleep(2.0))
    print(f"{'(none)':42} {'':>6} {watch.health * 1e3:10.1f} {watch.stream * 1e3:10.1f}", flush=True)
    for kind in kinds:
        await _row(watch, server, kind, attack(kind, 0, size))


async def _row(watch: Watch, server: ServerProcess, kind: str, hostile: Attack) -> None:
    body, headers = hostile.sent
    before = server.resident()
    answer = b""

    async def send() -> None:
        nonlocal answer
        answer = await watch.post(hostile.path, body, headers)

    await watch.during(send)
    await asyncio.sleep(QUIET_SECONDS)
    unit = max(len(hostile.unpacked), 1 << 20)
    most, left = (watch.most - before) / unit, (server.resident() - before) / unit
    status = answer.split(b" ", 2)[1].decode()
    waits = f"{watch.health * 1e3:10.1f} {watch.stream * 1e3:10.1f}"
    print(f"{kind:42} {status:>6} {waits} {most:7.1f} {left:7.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="by default all of them")
    parser.add_argument("--size", type=int, default=2_000_000, help="bytes of a request, about")
    options = parser.parse_args()
    kinds = options.kinds or list(KINDS)
    with tempfile.TemporaryDirectory() as directory:
        script, port = Path(directory) / "script.json", free_port()
        script.write_text(json.dumps(SCRIPT | {"context_length": 2**22}))
        flags = ["--log-level", "critical", "--response-store", "memory", "--served-model-name", "toy"]
        with served(paraserve_command(port, script, flags), port) as server:
            asyncio.run(measure(server, kinds, options.size))
    return 0


if __name__ == "__main__":
    sys.exit(main())
