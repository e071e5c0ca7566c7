"""Servers under measurement: started, timed by the operating system, stopped.

Never knows what a scenario is. One invariant: CPU time is what Linux accounts to the process and its children (user
and system, in clock ticks), never what a server says of itself.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paraserve.engines.llama_cpp.embedded import default_model_path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ServerProcess:
    url: str
    pid: int

    def cpu(self) -> float:
        """Seconds so far, of the process and all below it."""
        return sum(map(_cpu_of, process_tree(self.pid)))

    def resident(self) -> int:
        """Bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE


def process_tree(pid: int) -> list[int]:
    """``pid`` and every process that descends from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def _cpu_of(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICK if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the program's name (proc(5)); empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(command: Sequence[str], port: int, *, seconds: float = 60.0) -> Iterator[ServerProcess]:
    """The server that ``command`` starts on ``port``, once it accepts connections."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARASERVE_")}
    said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process writes to it
    process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL, env=environment)
    try:
        try:
            _wait(process, port, seconds)
        except TimeoutError as error:
            said.seek(0)
            raise SystemExit(f"{error}:\n{said.read().decode()}") from None
        yield ServerProcess(f"http://127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise TimeoutError("the server did not start")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
            return
        except urllib.error.HTTPError:
            return  # an answer, at any rate
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"the server did not answer within {seconds} s")


def paraserve_command(port: int, script: Path, flags: Sequence[str], engine: Sequence[str] = ()) -> list[str]:
    """Our own server with the tokenizer of the default model, and the scripted engine where ``engine`` names no other.

    The model is a directory beside the script that claims a long context: the replies are longer than the small
    model's own.
    """
    model = script.parent / "bench"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text('{"max_position_embeddings": 131072}')
    return [
        *(sys.executable, "-m", "paraserve", "serve", "--port", str(port), "--log-level", "warning"),
        *(engine or ("--engine", "scripted", "--engine-script", str(script))),
        *("--model-path", str(model), "--tokenizer-path", str(default_model_path())),
        *("--chat-template", str(_HERE / "chat_template.jinja")),
        *("--response-store", str(model / "responses.db"), *flags),
    ]


def standin_command(engine: str, port: int, script: Path) -> list[str]:
    """What answers as an engine's HTTP server, with the script's reply."""
    return [sys.executable, str(_HERE / "engine_standin.py"), engine, str(port), str(script)]


def floor_command(port: int, tokens: int, pace: float, *, in_step: bool) -> list[str]:
    phase = "step" if in_step else "spread"
    return [sys.executable, str(_HERE / "floor_server.py"), str(port), str(tokens), str(pace), phase]


def model_at(url: str) -> str:
    """The first model that a server lists."""
    with urllib.request.urlopen(f"{url.rstrip('/')}/v1/models", timeout=10) as answer:
        name: str = json.load(answer)["data"][0]["id"]
        return name
