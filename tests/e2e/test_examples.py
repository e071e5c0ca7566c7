"""The examples that the development environment has the client for; scripts/examples.sh runs all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import Server
from tests.waiting import PATIENCE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, server: Server) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name],
        env={**os.environ, "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_official_python_client_does_all_it_can(server: Server) -> None:
    shown = [line.partition(":")[0] for line in run("openai_client.py", server).splitlines()]
    calls = ["forced call", "streamed call", "parsed", "parsed call"]
    assert shown == ["plain", "streamed", "stream helper", *calls, "async"]


def test_a_loop_with_tools_runs_to_its_end_on_the_default_model(server: Server) -> None:
    shown = run("tool_loop.py", server)
    assert shown.count("get_weather({") >= 2
    assert shown.count("answer:") == 2


def test_every_example_is_listed_and_run_by_the_script() -> None:
    script = (EXAMPLES.parent / "scripts" / "examples.sh").read_text()
    listed = set(re.findall(r"`(\w+\.(?:py|mjs))`", (EXAMPLES / "README.md").read_text()))
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".mjs")}
    assert listed == files
    for suffix in (".py", ".mjs"):
        stems = {Path(file).stem for file in files if file.endswith(suffix)}
        assert stems in [set(group.split()) for group in re.findall(r"for example in (.*); do", script)]


def test_every_agents_client_is_run_by_its_script() -> None:
    script = (EXAMPLES.parent / "scripts" / "agents.sh").read_text()
    run = [set(group.split()) for group in re.findall(r"AGENTS_CLIENTS:-(.*)}; do", script)]
    for suffix in (".py", ".mjs"):
        files = {path.stem for path in (EXAMPLES / "agents").iterdir() if path.suffix == suffix}
        assert files - {"task", "scripted"} in run
