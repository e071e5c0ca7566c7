"""Starting, stopping and failing to start, as an operator sees it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paraserve.engines.build import free_port
from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import ENGINE, Server, eventually, get
from tests.waiting import PATIENCE

FAKE_SGLANG = str(Path(__file__).resolve().parents[1] / "fakes" / "sglang_program.py")
LONG = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 4000, "ignore_eos": True}


@pytest.fixture
def start() -> Iterator:
    started: list[Server] = []

    def make(*flags: str) -> Server:
        started.append(Server(*flags))
        return started[-1]

    yield make
    for server in started:
        server.stop()


def read_stream(url: str, body: dict, lines: list[str], begun: threading.Event) -> None:
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=PATIENCE) as response:
        for line in response.iter_lines():
            lines.append(line)
            begun.set()


def streaming(server: Server, body: dict) -> tuple[threading.Thread, list[str]]:
    lines: list[str] = []
    begun = threading.Event()
    thread = threading.Thread(target=read_stream, args=(server.url, body, lines, begun))
    thread.start()
    assert begun.wait(PATIENCE)
    return thread, lines


def test_the_ready_lines_say_what_is_served(start, facts: dict[str, Any]) -> None:
    server = start("--openai-force-tool-choice-auto", "--served-model-name", "small,tiny", *ENGINE)
    server.wait_until_ready()
    log = server.log.read_text()
    for text in ("small, tiny", f"{facts['context_length']} tokens", facts["engine"]["name"], "force-tool-choice-auto"):
        assert text in log
    assert "Traceback" not in log


def test_sigterm_lets_a_running_stream_end_and_exits_with_zero(start) -> None:
    server = start("--drain-timeout", "60", *ENGINE)
    server.wait_until_ready()
    thread, lines = streaming(server, {**LONG, "max_tokens": 40})
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() == 0
    thread.join()
    assert lines[-2] == "data: [DONE]"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_stream_that_outlasts_the_drain_is_told_so(start) -> None:
    server = start("--drain-timeout", "1", *ENGINE)
    server.wait_until_ready()
    thread, lines = streaming(server, LONG)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_for_exit() == 0
    thread.join()
    assert '"code":"server_stopping"' in next(line for line in reversed(lines) if line)
    assert "data: [DONE]" not in lines


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--model-path", "no/such/file.gguf"), 1, ["no/such/file.gguf"]),
        (("--engine", "sglang"), 2, ["--model-path"]),
        (("--prot", "1"), 2, ["--port"]),
        (("--tool-call-parser", "nonsense"), 1, ["nonsense", "hermes"]),
        (("--engine", "vllm", "--engine-url", "http://127.0.0.1:1"), 2, ["--model-path"]),
        (("--", "--tp", "2"), 2, ["--engine sglang or vllm"]),
    ],
)
def test_a_failed_start_is_one_line_that_says_what_to_do(start, flags: tuple[str, ...], code: int, words) -> None:
    server = start(*flags)
    assert server.wait_for_exit() == code
    log = server.log.read_text()
    assert "Traceback" not in log
    last = log.strip().splitlines()[-1]
    assert all(word in last for word in words), last


def test_a_port_that_is_taken_is_told_before_the_model_loads(start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start("--port", str(port), *ENGINE)
        assert server.wait_for_exit() == 1
    log = server.log.read_text()
    assert f"cannot listen on 127.0.0.1:{port}" in log
    assert "loading" not in log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_waits_for_its_engine_listens_says_so_and_serves_when_it_is_there(workers: str) -> None:
    port, engine_port = free_port(), free_port()
    where = ["--engine", "sglang", "--engine-url", f"http://127.0.0.1:{engine_port}"]
    model = ["--model-path", str(default_model_path()), "--workers", workers]
    server = Server("--port", str(port), *where, *model, "--wait-for-engine", "600")
    url = f"http://127.0.0.1:{port}"
    engine: subprocess.Popen[bytes] | None = None
    try:
        assert eventually(lambda: status_of(f"{url}/health") == 503)
        refused = httpx.post(f"{url}/v1/chat/completions", json={"messages": []}, timeout=PATIENCE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unhealthy")
        assert eventually(lambda: "waiting for the engine" in server.log.read_text())
        assert "ready on" not in server.log.read_text()
        engine = subprocess.Popen([sys.executable, FAKE_SGLANG, "--port", str(engine_port)])
        server.wait_until_ready()
        assert eventually(lambda: status_of(f"{url}/health") == 200)
    finally:
        server.stop()
        if engine is not None:
            engine.kill()
            engine.wait()


def test_a_signal_ends_the_wait_for_an_engine_and_so_does_its_end() -> None:
    where = ["--engine", "sglang", "--engine-url", f"http://127.0.0.1:{free_port()}"]
    model = ["--model-path", str(default_model_path())]
    stopped = Server(*where, *model, "--wait-for-engine", "600")
    given_up = Server(*where, *model, "--wait-for-engine", "0.5")
    try:
        assert eventually(lambda: "waiting for the engine" in stopped.log.read_text())
        stopped.process.send_signal(signal.SIGTERM)
        assert stopped.wait_for_exit() == 0
        assert given_up.wait_for_exit() == 1
        assert given_up.log.read_text().splitlines()[-1].count("SGLang at http://127.0.0.1")
    finally:
        stopped.stop()
        given_up.stop()


def status_of(url: str) -> int | None:
    try:
        return get(url).status_code
    except httpx.TransportError:
        return None
