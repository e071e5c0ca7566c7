"""Stored responses outlive the server that stored them, and servers of one PostgreSQL have the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paraserve.engines.llama_cpp.embedded import default_model_path
from tests.e2e.conftest import END_SECONDS, Server, get
from tests.store.postgres import empty_postgres, run_postgres

RESPONSES = "/v1/responses"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers whose model is played: what is looked at is the store."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": [{"text": "Good day."}]}))
    started: list[Server] = []

    def make(store: str, *flags: str) -> Server:
        engine = ("--engine", "scripted", "--engine-script", str(script), "--model-path", str(default_model_path()))
        server = Server(*engine, "--response-store", store, *flags)
        started.append(server)
        server.wait_until_ready()
        return server

    yield make
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    yield from run_postgres()


def post(url: str, **fields: Any) -> httpx.Response:
    """On a connection of its own: any worker may get it."""
    return httpx.post(f"{url}{RESPONSES}", json={"input": "hi", **fields}, timeout=END_SECONDS)


def told_as_stored(url: str, told: list[str], enough: threading.Event) -> None:
    """Ask for one response after the other, until the server is gone."""
    while True:
        try:
            body = post(url).json()
        except httpx.HTTPError:
            return
        assert body["store"] is True
        told.append(body["id"])
        if len(told) >= 5:
            enough.set()


def test_what_was_told_as_stored_is_there_after_the_server_was_killed(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    file = str(tmp_path / "r.db")
    killed = start(file)
    told: list[str] = []
    enough = threading.Event()
    asking = [threading.Thread(target=told_as_stored, args=(killed.url, told, enough)) for _ in range(2)]
    for thread in asking:
        thread.start()
    assert enough.wait(END_SECONDS)
    killed.process.kill()
    for thread in asking:
        thread.join()
    again = start(file)
    for id in told:
        found = get(f"{again.url}{RESPONSES}/{id}").json()
        assert (found["status"], found["output"][0]["content"][0]["text"]) == ("completed", "Good day.")
    assert post(again.url, previous_response_id=told[-1]).json()["previous_response_id"] == told[-1]


def test_workers_and_servers_of_one_postgresql_go_on_from_each_others_responses(
    start: Callable[..., Server], postgres: str
) -> None:
    empty_postgres(postgres)
    two, one = start(postgres, "--workers", "2"), start(postgres)
    last = post(one.url).json()["id"]
    asked = 1
    for url in (two.url, two.url, two.url, one.url, two.url, two.url):
        body = post(url, previous_response_id=last).json()
        assert body["previous_response_id"] == last
        last, asked = body["id"], asked + 1
    for url in (one.url, two.url, two.url, two.url):
        items = get(f"{url}{RESPONSES}/{last}/input_items", params={"limit": 100}).json()["data"]
        assert [item["role"] for item in items].count("user") == asked
    made = httpx.post(f"{two.url}/v1/conversations", json={}, timeout=END_SECONDS).json()["id"]
    for url in (one.url, two.url, two.url):
        assert post(url, conversation=made).status_code == 200
    talk = get(f"{one.url}/v1/conversations/{made}/items", params={"limit": 100}).json()["data"]
    assert len(talk) == 6
    assert httpx.delete(f"{two.url}{RESPONSES}/{last}", timeout=END_SECONDS).status_code == 200
    assert get(f"{one.url}{RESPONSES}/{last}").status_code == 404
