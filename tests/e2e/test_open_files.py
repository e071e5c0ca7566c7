"""A server that has fewer open files than its clients need: nobody is reset, and it says how things are."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import Server, answer_of, connect, eventually, get, request, status_in
from tests.fakes.serving import free_port

FAKE_SGLANG = str(Path(__file__).resolve().parents[1] / "fakes" / "sglang_program.py")
COMPLETIONS = "/v1/completions"
BODY = {"prompt": [10, 11, 12], "stream": True, "max_tokens": 200}
"""Ids of the fake engine's vocabulary."""


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The URL of an engine whose replies take some seconds."""
    port = free_port()
    slow = json.dumps({"delay": 0.01})
    process = subprocess.Popen([sys.executable, FAKE_SGLANG, "--port", str(port), "--behaviour", slow])
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return get(f"{url}/get_model_info").status_code == 200
        except httpx.TransportError:
            return False

    assert eventually(answers)
    yield url
    process.kill()
    process.wait()


class Limited(Server):
    """A server with so many open files, at the start and at most."""

    def __init__(self, soft: int, hard: int, *flags: str) -> None:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
        try:
            super().__init__(*flags)
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (min(soft, hard), hard))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def start(engine: str) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def make(soft: int, hard: int, *flags: str) -> Server:
        model = ("--engine", "sglang", "--engine-url", engine, "--model-path", str(default_model_path()))
        server = Limited(soft, hard, "--log-format", "json", *model, *flags)
        started.append(server)
        server.wait_until_ready()
        return server

    yield make
    for server in started:
        server.stop()


def sent(server: Server, *asked: bytes) -> list[socket.socket]:
    """Connections on which each was sent, one after the other and in no time."""
    connections = []
    for each in asked:
        connections.append(connect(server.url))
        connections[-1].sendall(each)
    return connections


def stream_status(connection: socket.socket) -> int:
    """502 for a stream that broke off."""
    answer = answer_of(connection)
    return status_in(answer) if status_in(answer) != 200 or b"[DONE]" in answer else 502


@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_clients_beyond_the_open_files_are_told_and_health_answers(
    start: Callable[..., Server], flags: tuple[str, ...]
) -> None:
    began = time.monotonic()
    server = start(100, 100, *flags)
    count, processes = (240, 2) if flags else (80, 1)
    streams = sent(server, *[request(COMPLETIONS, BODY)] * count)
    assert eventually(lambda: shortages(server) > 0)
    for _ in range(20):
        assert status_in(answer_of(*sent(server, request("/health")))) == 200
    statuses = [stream_status(connection) for connection in streams]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 25
    assert status_in(answer_of(*sent(server, request("/health")))) == 200
    # Nothing of it is left.
    assert eventually(lambda: stream_status(*sent(server, request(COMPLETIONS, BODY))) == 200)
    assert shortages(server) <= processes * (1 + time.monotonic() - began), "once a second at most"
    assert "Traceback" not in server.log.read_text()


def shortages(server: Server) -> int:
    """How often the log says it."""
    return server.log.read_text().count("ulimit -n")


def test_idle_connections_make_room_for_new_ones(start: Callable[..., Server]) -> None:
    server = start(100, 100)
    idle = []
    for _ in range(150):
        idle.append(connect(server.url))
        idle[-1].sendall(request("/v1/models").replace(b"Connection: close\r\n", b""))
        assert idle[-1].recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert stream_status(*sent(server, request(COMPLETIONS, BODY))) == 200
    for connection in idle:
        connection.close()


def test_the_limit_is_raised_as_far_as_it_goes(start: Callable[..., Server]) -> None:
    server = start(90, 4000)
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (4000, 4000)
