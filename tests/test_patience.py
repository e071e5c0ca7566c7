"""No test depends on how fast the machine is: none reads a clock, and none waits for less than only a failure takes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
READ_A_CLOCK = {
    "api/test_system.py": "says when the last token came",
    "e2e/conftest.py": "gives up waiting",
    "e2e/test_open_files.py": "lines of a log a second, and not how many seconds",
    "e2e/test_overload.py": "gives up loading",
    "engines/contract.py": "gives up waiting",
    "engines/test_scripted.py": "pauses are no shorter than they shall be",
}
WAITS = {"timeout", "wait_for", "settimeout"}
CLIENTS = {
    *("communicate", "create_connection", "run", "urlopen"),
    *("get", "post", "request", "stream", "Client", "AsyncClient", "OpenAI", "AsyncOpenAI", "Anthropic"),
}
"""Calls whose numbers, or whose ``timeout``, are how long they wait for something that a test expects."""
LEAST_SECONDS = 30
"""`PATIENCE` is what to write."""


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Of every module of the tests: the module, the name that is called, and the call."""
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                yield path.relative_to(TESTS).as_posix(), name, node


def test_no_test_reads_a_clock() -> None:
    read = {module for module, name, call in calls() if name in CLOCKS and not (call.args or call.keywords)}
    assert read - READ_A_CLOCK.keys() == set()


def test_nothing_that_is_expected_is_waited_for_impatiently() -> None:
    short = [
        f"{module}:{call.lineno}"
        for module, name, call in calls()
        if name in WAITS | CLIENTS
        for value in [
            *(call.args if name in WAITS else ()),
            *(keyword.value for keyword in call.keywords if keyword.arg == "timeout"),
        ]
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value < LEAST_SECONDS
    ]
    assert short == []
