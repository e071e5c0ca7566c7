"""Everything at once for as long as you like, and then: is anything left over?

    python benchmarks/soak.py                     # ten minutes, after a warm-up of one
    python benchmarks/soak.py --seconds 60
    python benchmarks/soak.py --workers 2

A server and its clients in one process: replies of every kind, clients that leave, read slowly, send nonsense or are
hostile, and an engine that fails, dies in mid-stream, hangs and refuses. Afterwards every request must be in the
metrics, and no task, connection or generation may be left; resident memory must not grow. Exits with 1 when one of
these is not so.

With workers the server is a real one beside the clients, and seen from outside: its open files are its connections, a
place that was not given back shows when as many requests come as there are places, and of tasks and generations only
those are seen that hold one of these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import random
import re
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
import uvloop
from load_client import Target, run_load
from load_scenarios import TOOLS
from load_servers import ServerProcess, free_port, paraserve_command, process_tree, served

from paraserve.api.app import create_app
from paraserve.deploy import deploy
from paraserve.engines.llama_cpp.embedded import default_model_path
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.serving.connection_limits import ConnectionLimits
from paraserve.serving.http_protocol import with_limits
from paraserve.serving.progress import Progress
from paraserve.settings import ServerSettings
from tests.api.wire import CHAT
from tests.hostile import KINDS, attack

CALL = '<think>Let me see.</think><tool_call>\n{"name": "save_note", "arguments": {"body": "a note"}}\n</tool_call>'
WORDS = "Many words that make a reply of some length. " * 20
REPLIES = [
    {"text": "Short and good."},
    {"text": WORDS, "delay": 0.002},
    {"text": CALL, "delay": 0.001},
    {"text": WORDS, "burst": 16},
    {"text": WORDS, "error": {"after": 20}, "delay": 0.001},
    {"text": "never", "error": {"status": 503, "code": "engine_overloaded", "message": "no room"}},
    {"text": WORDS, "hang_after": 5},
    {"text": WORDS * 20, "burst": 32},
    {"text": "broken off", "finish": "abort"},
    {"text": "They are.", "first_delay": 0.5, "when": "are all places free"},
]
PROBE = "are all places free"
"""A prompt whose reply is sure and takes a while."""
RUNNING, QUEUED = 32, 16
CLIENTS = 48
HOSTILE = [kind for kind in KINDS if attack(kind, 0, 1_000).path == CHAT]
PATIENCE = 3.0
"""Seconds after which a client gives a reply up: some never end."""
SETTLE = 5.0
WARM_UP = 4000
"""Requests of each process before the time begins to count: until then its caches and the allocator's pools fill. Two
workers grew from 307 to 339 MB over 3,200 requests each, and by less than 2 MB over the 5,600 after them."""


@dataclass(slots=True)
class Sent:
    """What the clients did: requests that a server must have counted, by what came of them."""

    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


class Soak:
    """The clients of a server at ``url``."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._address = (where.hostname, where.port)
        self._target = Target(url)
        self.until = math.inf
        self.sent = Sent()

    async def client(self, seed: int) -> None:
        chance = random.Random(seed)
        ways: list[Callable[[random.Random], Awaitable[str]]] = [
            *[self._reads] * 6,
            *[self._leaves] * 3,
            self._reads_slowly,
            self._sends_nonsense,
            self._is_hostile,
        ]
        while time.monotonic() < self.until:
            self.sent.outcomes[await chance.choice(ways)(chance)] += 1

    def _request(self, chance: random.Random) -> bytes:
        text = "What is new? " * chance.choice((1, 20, 500))
        body: dict[str, object] = {"messages": [{"role": "user", "content": text}], "stream": chance.random() < 0.7}
        if chance.random() < 0.5:
            body["tools"] = TOOLS
        if chance.random() < 0.2:
            body |= {"logprobs": True, "top_logprobs": 2}
        if chance.random() < 0.2:
            body["n"] = 3
        if chance.random() < 0.2:
            body["stop"] = ["length"]
        return self._target.request("/v1/chat/completions", body)

    async def _reads(self, chance: random.Random) -> str:
        try:
            async with asyncio.timeout(PATIENCE):
                replies = await run_load(self._target, self._request(chance), streams=1, requests=1)
        except TimeoutError:
            return "gave up"
        return f"status {replies[0].status}" if replies[0].status else "broken"

    async def _leaves(self, chance: random.Random) -> str:
        return await self._by_hand(self._request(chance), wait=chance.uniform(0.0, 0.05), read=0)

    async def _reads_slowly(self, chance: random.Random) -> str:
        return await self._by_hand(self._request(chance), wait=0.3, read=256)

    async def _sends_nonsense(self, chance: random.Random) -> str:
        body = chance.choice((b"{", b"[" * 5000, b"\xff" * 100, b'{"messages": 3}', b"{}"))
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Length: %d\r\n\r\n" % len(body)
        return await self._by_hand(head + body, wait=0.05, read=4096, name="nonsense")

    async def _is_hostile(self, chance: random.Random) -> str:
        """Every kind of `tests/hostile.py` that asks for a chat."""
        hostile = attack(chance.choice(HOSTILE), chance.randrange(1_000), chance.choice((1_000, 10_000, 60_000)))
        body, headers = hostile.sent
        named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST {CHAT} HTTP/1.1\r\nHost: soak\r\nContent-Length: {len(body)}\r\n{named}\r\n"
        return await self._by_hand(head.encode("latin-1") + body, wait=0.05, read=4096, name="hostile")

    async def _by_hand(self, request: bytes, *, wait: float, read: int, name: str = "") -> str:
        reader, writer = await asyncio.open_connection(*self._address, limit=1024)
        try:
            writer.write(request)
            await writer.drain()
            for _ in range(4):
                await asyncio.sleep(wait)
                if read:
                    async with asyncio.timeout(PATIENCE):
                        await reader.read(read)
        except (TimeoutError, OSError):
            return name or "broken"
        finally:
            writer.transport.abort()
        return name or "left"


@dataclass(slots=True)
class Leftovers:
    """What is still there when all clients have gone; all of it must be nothing."""

    tasks: int
    connections: int
    generations: int
    in_flight: float
    places: int
    uncounted: int
    growth: float
    """MB of resident memory between the first third and the end, after the warm-up."""


def _chat_metric(text: str, name: str) -> float:
    return sum(map(float, re.findall(rf'^{name}{{.*"/v1/chat/completions".*}} (\S+)$', text, re.MULTILINE)))


async def soak(seconds: float, report: Callable[[str], None]) -> Leftovers:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "script.json"
        script.write_text(json.dumps({"replies": REPLIES, "context_length": 8192}))
        settings = ServerSettings(
            model_path=str(default_model_path()),
            engine="scripted",
            engine_script=str(script),
            tool_call_parser="hermes",
            reasoning_parser="qwen3",
            max_concurrent_requests=RUNNING,
            max_queued_requests=QUEUED,
            queue_timeout=1.0,
            log_level="critical",
        )
        deployment = await deploy(settings, Progress(sys.stderr).step)
    engine = deployment.engine
    assert isinstance(engine, ScriptedEngine)
    app = create_app(deployment)
    config = uvicorn.Config(
        app, port=0, http=with_limits(ConnectionLimits(slow_client=1.0)), lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    before = len(asyncio.all_tasks())
    sent, growth = await _run_clients(url, seconds, WARM_UP, report, _resident)
    metrics = await _scraped(url)
    left = Leftovers(
        tasks=len(asyncio.all_tasks()) - before,
        connections=len(server.server_state.connections),
        generations=engine.running,
        in_flight=_chat_metric(metrics, "paraserve_requests_in_flight"),
        places=app.state.admission.running + app.state.admission.waiting,
        uncounted=sent.total - int(_chat_metric(metrics, "paraserve_requests_total")),
        growth=growth,
    )
    server.should_exit = True
    await serving
    await deployment.close()
    return left


async def soak_workers(seconds: float, workers: int, report: Callable[[str], None]) -> Leftovers:
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory) / "script.json"
        script.write_text(json.dumps({"replies": REPLIES, "context_length": 8192}))
        port = free_port()
        flags = f"--workers {workers} --tool-call-parser hermes --reasoning-parser qwen3 --queue-timeout 1"
        limits = f"--max-concurrent-requests {RUNNING} --max-queued-requests {QUEUED} --slow-client-timeout 1"
        quiet = "--log-level critical"
        command = paraserve_command(port, script, [*flags.split(), *limits.split(), *quiet.split()])
        with served(command, port) as server:
            await asyncio.sleep(SETTLE)  # the others get ready
            before = _open_files(server)
            warm_up = WARM_UP * workers
            sent, growth = await _run_clients(server.url, seconds, warm_up, report, lambda: _resident_of_all(server))
            metrics = await _scraped(server.url)
            probe = {"messages": [{"role": "user", "content": PROBE}]}
            target = Target(server.url)
            room = RUNNING + QUEUED
            replies = await run_load(target, target.request("/v1/chat/completions", probe), streams=room, requests=room)
            await asyncio.sleep(SETTLE)
            return Leftovers(
                tasks=0,
                connections=_open_files(server) - before,
                generations=0,
                in_flight=_chat_metric(metrics, "paraserve_requests_in_flight"),
                places=sum(reply.status != 200 for reply in replies),
                uncounted=sent.total - int(_chat_metric(metrics, "paraserve_requests_total")),
                growth=growth,
            )


async def _run_clients(
    url: str, seconds: float, warm_up: int, report: Callable[[str], None], resident: Callable[[], float]
) -> tuple[Sent, float]:
    """What the clients did, and by how many MB the server grew once it was warm. Returns when all has had time to end.

    Args:
        seconds: how long, after ``warm_up`` requests.
    """
    began = time.monotonic()
    clients = Soak(url)
    running = asyncio.gather(*(clients.client(seed) for seed in range(CLIENTS)))
    sizes: list[float] = []
    while not running.done():
        await asyncio.wait({running}, timeout=max(1.0, seconds / 30))
        size = resident()
        report(f"{time.monotonic() - began:6.0f} s  {clients.sent.total:8,} requests  {size:.0f} MB")
        if clients.until < math.inf:
            sizes.append(size)
        elif clients.sent.total >= warm_up:
            clients.until = time.monotonic() + seconds
    await running
    report(", ".join(f"{name}: {count:,}" for name, count in sorted(clients.sent.outcomes.items())))
    await asyncio.sleep(SETTLE)
    return clients.sent, sizes[-1] - max(sizes[: max(1, len(sizes) // 3)])


def _resident(pid: int | str = "self") -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _resident_of_all(server: ServerProcess) -> float:
    return sum(map(_resident, process_tree(server.pid)))


def _open_files(server: ServerProcess) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in process_tree(server.pid))


async def _scraped(url: str) -> str:
    """The text of ``/metrics``, by a connection that is closed at once."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
    answer = (await reader.read()).decode()
    writer.close()
    await asyncio.sleep(0.1)
    return answer


def _show(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    several = options.workers > 1
    left = uvloop.run(
        soak_workers(options.seconds, options.workers, _show) if several else soak(options.seconds, _show)
    )
    print(left)
    wrong = [name for name in ("tasks", "connections", "generations", "in_flight", "places") if getattr(left, name)]
    if abs(left.uncounted) > 0:
        wrong.append("uncounted")
    if left.growth > 10:
        wrong.append("growth")
    print("left over: " + ", ".join(wrong) if wrong else "nothing is left over")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
