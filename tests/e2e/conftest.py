"""A real server with a real model, as the README starts it, and the official client.

The engine is the embedded one, unless `PARASERVE_E2E_ENGINE` has flags for another of the same model
(``--engine vllm --engine-url … --model-path …``).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.waiting import PATIENCE

START_SECONDS = 90
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

    def wait_for_exit(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.unlink(missing_ok=True)


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
    return httpx.get(f"{server.url}/server_info").json()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    flags = f"--served-model-name {MODEL} --enable-cache-report --response-store memory"
    running = Server(*flags.split(), *ENGINE)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
async def async_client(server: Server):
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as made:
        yield made
