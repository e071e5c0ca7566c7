"""A server that has fewer open files than its clients need: nobody is reset, and it says how things are."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import Server, eventually
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
            return httpx.get(f"{url}/get_model_info").status_code == 200
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


async def stream(http: httpx.AsyncClient) -> int:
    """The status, 502 for a stream that broke off."""
    answer = await http.post(COMPLETIONS, json=BODY)
    return answer.status_code if answer.status_code != 200 or answer.text.endswith("[DONE]\n\n") else 502


@pytest.mark.parametrize("flags", [(), ("--workers", "2")], ids=["one process", "workers"])
async def test_clients_beyond_the_open_files_are_told_and_health_answers(
    start: Callable[..., Server], flags: tuple[str, ...]
) -> None:
    server = start(100, 100, *flags)
    count = 80 if not flags else 240
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=httpx.Limits(max_connections=None)) as http:
        streams = [asyncio.ensure_future(stream(http)) for _ in range(count)]
        await asyncio.sleep(0.5)
        for _ in range(20):
            async with httpx.AsyncClient(base_url=server.url, timeout=20, verify=False) as fresh:
                assert (await fresh.get("/health")).status_code == 200
        statuses = await asyncio.gather(*streams)
        assert set(statuses) == {200, 503}
        assert statuses.count(200) >= 25
        assert (await http.get("/health")).status_code == 200
        assert await stream(http) == 200  # nothing of it is left
    lines = [line for line in server.log.read_text().splitlines() if "ulimit -n" in line]
    assert 1 <= len(lines) <= 60
    assert "Traceback" not in server.log.read_text()


async def test_idle_connections_make_room_for_new_ones(start: Callable[..., Server]) -> None:
    server = start(100, 100)
    idle = [httpx.AsyncClient(base_url=server.url, timeout=20, verify=False) for _ in range(150)]
    for http in idle:
        answer = await http.get("/v1/models")
        assert answer.status_code == 200
    async with httpx.AsyncClient(base_url=server.url, timeout=20, verify=False) as fresh:
        assert await stream(fresh) == 200
    for http in idle:
        await http.aclose()


def test_the_limit_is_raised_as_far_as_it_goes(start: Callable[..., Server]) -> None:
    server = start(90, 4000)
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (4000, 4000)
