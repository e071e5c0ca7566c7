"""Ten times as many clients as there is room for: who gets no room is told at once, nobody hangs, and then all is well.

The real engine with the real model, so that what is scarce is its work and not a script's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx
import pytest

from tests.e2e.conftest import Server, eventually, get
from tests.waiting import PATIENCE

RUNNING, QUEUED, QUEUE_SECONDS = 2, 2, 1.0
CLIENTS = 10 * (RUNNING + QUEUED)
SERVED = 3 * (RUNNING + QUEUED)
"""Replies after which the load ends."""
LONGEST_LOAD = 5 * PATIENCE
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "ignore_eos": True}


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    code: str | None
    retry_after: str | None
    whole: bool


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    limits = ["--parallel", RUNNING, "--max-concurrent-requests", RUNNING, "--max-queued-requests", QUEUED]
    flags = map(str, [*limits, "--queue-timeout", QUEUE_SECONDS, "--workers", request.param])
    running = Server(*flags, "--log-level", "warning", "--log-format", "text")
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.stop()


def ask(server: Server, *, stream: bool) -> Outcome:
    answer = httpx.post(server.url + CHAT, json={**BODY, "stream": stream}, timeout=PATIENCE)
    if answer.status_code == 200:
        whole = answer.text.endswith("data: [DONE]\n\n") if stream else "length" in answer.text
        return Outcome(200, None, None, whole)
    code = answer.json()["error"]["code"]
    return Outcome(answer.status_code, code, answer.headers.get("retry-after"), True)


def keep_asking(server: Server, outcomes: list[Outcome], *, stream: bool) -> None:
    """Once, and until as many as shall be have been served, by whichever client."""
    deadline = time.monotonic() + LONGEST_LOAD
    while True:
        outcomes.append(ask(server, stream=stream))
        if sum(outcome.status == 200 for outcome in outcomes) >= SERVED or time.monotonic() > deadline:
            return
        time.sleep(0.05)


def metric(server: Server, start: str) -> float:
    """The sum of the series whose line starts so."""
    lines = get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"paraserve_{start}"))


def test_at_ten_times_the_capacity_the_rest_is_told_503_nobody_hangs_and_then_all_is_as_before(server: Server) -> None:
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        outcomes: list[Outcome] = []
        clients = [pool.submit(keep_asking, server, outcomes, stream=number % 2 == 0) for number in range(CLIENTS)]
        assert eventually(lambda: len(outcomes) >= CLIENTS, LONGEST_LOAD)
        health = [get(f"{server.url}{path}").status_code for path in ("/health", "/v1/models")]
        for client in clients:
            client.result()
    assert health == [200, 200]
    served = [outcome for outcome in outcomes if outcome.status == 200]
    refused = [outcome for outcome in outcomes if outcome.status != 200]
    assert len(served) >= SERVED
    assert refused
    assert all(outcome.whole for outcome in served)
    assert {(outcome.status, outcome.code) for outcome in refused} == {(503, "overloaded")}
    assert all(int(outcome.retry_after or 0) >= 1 for outcome in refused)
    # Recovery: nothing is left of it, and as many as there are places for are served at once.
    assert eventually(lambda: metric(server, f'requests_in_flight{{endpoint="{CHAT}"') == 0)
    assert metric(server, "requests_queued") == 0
    assert metric(server, f'requests_total{{endpoint="{CHAT}"') == len(outcomes)
    with ThreadPoolExecutor(RUNNING) as pool:
        after = list(pool.map(lambda number: ask(server, stream=number % 2 == 0), range(RUNNING)))
    assert [outcome.status for outcome in after] == [200] * len(after)
