"""SGLang started by paraserve, and killed under it: ``pytest scripts/sglang_restart.py``.

``PARASERVE_SGLANG_PYTHON`` has both, ``PARASERVE_SGLANG_MODEL`` and ``PARASERVE_SGLANG_FLAGS`` are what is started.
``scripts/e2e-sglang.sh`` makes all of it.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.conftest import Server, eventually
from tests.e2e.test_workers import Stream, alive, children

MODEL = os.environ["PARASERVE_SGLANG_MODEL"]
FLAGS = shlex.split(os.environ["PARASERVE_SGLANG_FLAGS"])
PATIENCE = 600.0
"""Seconds in which SGLang starts."""


class OwnServer(Server):
    python = os.environ["PARASERVE_SGLANG_PYTHON"]
    start_seconds = PATIENCE

    @property
    def engine(self) -> int:
        (pid,) = (pid for pid, command in children(self.process.pid).items() if "sglang.launch_server" in command)
        return pid


@pytest.fixture
def server() -> Iterator[OwnServer]:
    running = OwnServer("--engine", "sglang", "--engine-wire", "http", "--model-path", MODEL, "--", *FLAGS)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


def session(leader: int) -> list[int]:
    """The processes that were started in the session of ``leader``, dead or not."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if os.getsid(pid) == leader and alive(pid):
                found.append(pid)
        except ProcessLookupError:
            continue
    return found


def test_a_killed_sglang_is_told_and_started_again_and_ends_with_the_server(server: OwnServer) -> None:
    dead = server.engine
    assert len(session(dead)) > 1, "scheduler and detokenizer are its children"
    stream = Stream.of(server, max_tokens=1500, ignore_eos=True)
    os.kill(dead, signal.SIGKILL)
    assert '"code":"engine_disconnected"' in stream.end()
    assert eventually(lambda: "the engine is back" in server.log.read_text(), PATIENCE), server.log.read_text()
    assert session(dead) == []
    assert httpx.get(f"{server.url}/health_generate", timeout=60).status_code == 200
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["usage"]["completion_tokens"] == 5
    living = server.engine
    assert living != dead
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() == 0
    assert session(living) == []
