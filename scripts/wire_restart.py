"""An engine without its HTTP server under paraserve, and either killed in the middle of many streams:
``pytest scripts/wire_restart.py``.

``PARASERVE_WIRE_ENGINE`` (``vllm``, whose command is on ``PATH``, or ``sglang``), ``PARASERVE_WIRE_MODEL`` and
``PARASERVE_WIRE_FLAGS`` are what is started, ``PARASERVE_WIRE_PYTHON`` runs paraserve. ``scripts/e2e-wire.sh`` and
``e2e-sglang.sh`` make all of it.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Server, eventually
from tests.e2e.test_workers import Stream, alive, children, workers_of

MODEL = os.environ["PARASERVE_WIRE_MODEL"]
FLAGS = shlex.split(os.environ["PARASERVE_WIRE_FLAGS"])
ENGINE = os.environ["PARASERVE_WIRE_ENGINE"]
LEADER, SCHEDULER = {"vllm": ("--headless", "EngineCore"), "sglang": ("launcher.py", "sglang::scheduler")}[ENGINE]
"""What is in the names of the process that was started and of the one that makes the tokens."""
PATIENCE = 600.0
"""Seconds in which the engine starts."""
STREAMS = 32


class OwnServer(Server):
    python = os.environ.get("PARASERVE_WIRE_PYTHON", sys.executable)
    start_seconds = PATIENCE

    @property
    def engine(self) -> int:
        """The leader of the engine's session."""
        (pid,) = (pid for pid, command in children(self.process.pid).items() if LEADER in command)
        return pid


@pytest.fixture
def start() -> Iterator[Callable[..., OwnServer]]:
    started: list[OwnServer] = []

    def make(*flags: str) -> OwnServer:
        server = OwnServer("--engine", ENGINE, "--engine-wire", "zmq", "--model-path", MODEL, *flags, "--", *FLAGS)
        started.append(server)
        server.wait_until_ready()
        return server

    yield make
    for server in started:
        server.stop()


def session(leader: int) -> dict[int, str]:
    """The living processes that were started in the session of ``leader``, with their command lines."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if os.getsid(pid) == leader and alive(pid):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found


def reply(server: Server) -> int:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    count: int = answer["usage"]["completion_tokens"]
    return count


@pytest.mark.parametrize("workers", [1, 2] if ENGINE == "vllm" else [1])
def test_a_killed_scheduler_ends_every_stream_and_is_started_again(
    start: Callable[..., OwnServer], workers: int
) -> None:
    server = start("--workers", str(workers))
    assert "engine wire: zmq" in server.log.read_text()
    leader = server.engine
    (scheduler,) = (pid for pid, command in session(leader).items() if SCHEDULER in command)
    streams = [Stream.of(server, max_tokens=3900, ignore_eos=True) for _ in range(STREAMS)]
    os.kill(scheduler, signal.SIGKILL)
    for stream in streams:
        assert '"code":"engine_disconnected"' in stream.end(), stream.text[-500:]
    seen = set()

    def back() -> bool:
        seen.add(httpx.get(f"{server.url}/health").status_code)
        return "the engine is back" in server.log.read_text()

    assert eventually(back, PATIENCE), server.log.read_text()
    assert 503 in seen
    assert not session(leader)
    assert eventually(lambda: httpx.get(f"{server.url}/health").status_code == 200)
    assert {reply(server) for _ in range(6)} == {5}
    if workers > 1:
        os.kill(workers_of(server)[0], signal.SIGKILL)
        assert eventually(lambda: len(workers_of(server)) == workers)
        assert {reply(server) for _ in range(6)} == {5}
    living = server.engine
    assert living != leader
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() == 0
    assert eventually(lambda: not session(living))


def test_the_engine_of_a_server_that_was_killed_ends(start: Callable[..., OwnServer]) -> None:
    server = start()
    leader = server.engine
    stream = Stream.of(server, max_tokens=3900, ignore_eos=True)
    server.process.kill()
    server.process.wait()
    assert not stream.whole
    assert eventually(lambda: not session(leader))
