"""A real server with a real model, as the README starts it, and the official client.

The engine is the embedded one, unless `PARASERVE_E2E_ENGINE` has flags for another of the same model
(``--engine vllm --engine-url … --model-path …``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from tests.waiting import PATIENCE

START_SECONDS = 3 * PATIENCE
END_SECONDS = 2 * PATIENCE
ENGINE = tuple(shlex.split(os.environ.get("PARASERVE_E2E_ENGINE", "")))
"""Flags for another engine than the embedded one."""
MODEL = "smollm2"


class Server:
    """A ``paraserve serve`` process on a free port."""

    python = sys.executable
    start_seconds = START_SECONDS

    def __init__(self, *flags: str) -> None:
        self.log = Path(tempfile.mkstemp(suffix=".log")[1])
        with self.log.open("w") as log:
            command = [self.python, "-m", "paraserve", "serve", "--port", "0", *flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self._environment())
        self.url = ""

    @staticmethod
    def _environment() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("PARASERVE_")}

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            ready = re.search(r'ready on (https?://[^\s"]+)', self.log.read_text())
            if ready:
                self.url = ready[1]
                return
            time.sleep(0.05)
        raise AssertionError(f"the server did not get ready:\n{self.log.read_text()}")

    def wait_for_exit(self) -> int:
        """The status."""
        return self.process.wait(END_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.unlink(missing_ok=True)


def connect(url: str) -> socket.socket:
    """A connection on which nothing is sent yet."""
    where = urlsplit(url)
    connected = socket.create_connection((where.hostname or "", where.port or 0), PATIENCE)
    connected.settimeout(END_SECONDS)
    return connected


def request(path: str, body: dict[str, Any] | None = None, **headers: str) -> bytes:
    """One that can be sent in one piece, and ends its connection: only what the server does decides how it ends."""
    sent = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(sent)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + sent


def answer_of(connected: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    with connected:
        return b"".join(iter(lambda: connected.recv(1 << 16), b""))


def status_in(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def get(url: str, **options: Any) -> httpx.Response:
    """On a connection of its own."""
    return httpx.get(url, timeout=PATIENCE, **options)


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="session")
def facts(server: Server) -> dict[str, Any]:
    """What the server says about its engine."""
    info: dict[str, Any] = get(f"{server.url}/server_info").json()
    return info


def default_server() -> Iterator[Server]:
    flags = f"--served-model-name {MODEL} --enable-cache-report --response-store memory"
    running = Server(*flags.split(), *ENGINE)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    yield from default_server()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=END_SECONDS) as made:
        yield made


@pytest.fixture
async def async_client(server: Server):
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=5 * END_SECONDS
    ) as made:
        yield made
