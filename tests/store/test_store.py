"""The promises of a store, of each kind: SQLite in a file and in memory, PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paraserve.store import sql
from paraserve.store.base import Conversation, ResponseStore, Stored, StoreUnavailable
from paraserve.store.build import build_store, default_file
from tests.store.postgres import empty_postgres, run_postgres

OURS, THEIRS = "ours", "theirs"
Opened = Callable[..., ResponseStore]


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    yield from run_postgres()


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=pytest.mark.heavy)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens a store; each call another one, of the same data but in memory."""
    where = {"memory": "memory", "file": str(tmp_path / "new" / "r.db")}.get(request.param)
    if where is None:
        where = request.getfixturevalue("postgres")
        empty_postgres(where)
    stores: list[ResponseStore] = []

    def open_store(max_bytes: int = 2**20, max_age: float = 1000.0) -> ResponseStore:
        store = build_store(where, max_bytes=max_bytes, max_age=max_age)
        assert store is not None
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        store.close()


def response(id: str, previous: str | None = None, **fields: bool) -> Stored:
    return Stored(id=id, response=f"said {id}".encode(), input=f"asked {id}".encode(), previous=previous, **fields)


async def test_what_was_put_is_found_by_its_owner_and_by_nobody_else(opened: Opened) -> None:
    store = opened()
    await store.put(OURS, response("own"))
    found = await store.get(OURS, "own")
    assert found is not None
    assert (found.response, found.input, found.running) == (b"said own", b"asked own", False)
    assert await store.get(THEIRS, "own") is None
    assert await store.history(THEIRS, "own") is None
    assert not await store.delete(THEIRS, "own")
    await store.put(THEIRS, Stored(id="own", response=b"stolen", input=b""))
    kept = await store.get(OURS, "own")
    assert kept is not None
    assert kept.response == b"said own"
    assert await store.delete(OURS, "own")
    assert await store.get(OURS, "own") is None


async def test_a_history_is_whole_or_none(opened: Opened) -> None:
    store = opened()
    for id, previous in [("h1", None), ("h2", "h1"), ("h3", "h2"), ("h4", "h2")]:
        await store.put(OURS, response(id, previous))
    history = await store.history(OURS, "h3")
    assert history is not None
    assert [stored.id for stored in history] == ["h1", "h2", "h3"]
    assert await store.history(OURS, "none") is None
    await store.delete(OURS, "h1")
    assert await store.history(OURS, "h4") is None


async def test_responses_of_a_conversation_stand_one_behind_the_other(opened: Opened) -> None:
    store = opened()
    await store.put_conversation(OURS, Conversation(id="conv", created=7, metadata=b"{}"))
    await asyncio.gather(*(store.put(OURS, response(f"c{i}"), "conv") for i in range(8)))
    talk = await store.conversation(OURS, "conv")
    assert talk is not None
    assert talk.last is not None
    history = await store.history(OURS, talk.last)
    assert history is not None
    assert {stored.id for stored in history} == {f"c{i}" for i in range(8)}
    await store.put(OURS, response("c0"), "conv")  # again, as one in the background is put
    assert await store.history(OURS, talk.last) is not None
    assert await store.conversation(THEIRS, "conv") is None
    assert not await store.delete_conversation(THEIRS, "conv")
    assert await store.delete_conversation(OURS, "conv")
    assert await store.conversation(OURS, "conv") is None


async def test_one_that_runs_is_told_when_it_was_cancelled_or_deleted(opened: Opened) -> None:
    store = opened()
    for id in ("b1", "b2"):
        await store.put(OURS, response(id, running=True))
        assert await store.beat(OURS, id)
    await store.cancel(OURS, "b1")
    await store.cancel(THEIRS, "b2")
    assert not await store.beat(OURS, "b1")
    assert await store.beat(OURS, "b2")
    await store.delete(OURS, "b2")
    assert not await store.beat(OURS, "b2")


async def test_what_is_old_goes_and_what_is_used_stays(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e6
    monkeypatch.setattr(time, "time", lambda: now)
    store = opened(max_age=100.0)
    await store.put(OURS, response("a1"))
    await store.put(OURS, response("a2"))
    now += 90
    assert await store.history(OURS, "a1")
    now += 20
    await store.put(OURS, response("a3"))
    assert [await store.get(OURS, id) is not None for id in ("a1", "a2", "a3")] == [True, False, True]
    now += 1000
    await store.put(OURS, response("a4"))
    assert [await store.get(OURS, id) is not None for id in ("a1", "a3", "a4")] == [False, False, True]


async def test_what_is_too_much_goes_beginning_with_the_least_lately_used(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 2e6
    monkeypatch.setattr(time, "time", lambda: now)
    store = opened(max_bytes=250)
    for i in range(4):
        now += sql.SWEEP_SECONDS
        await store.put(OURS, Stored(id=f"s{i}", response=b"x" * 50, input=b"y" * 50))
    assert [await store.get(OURS, f"s{i}") is not None for i in range(4)] == [False, False, True, True]


@pytest.mark.parametrize("opened", ["file", pytest.param("postgres", marks=pytest.mark.heavy)], indirect=True)
async def test_two_stores_of_one_place_see_the_same(opened: Opened) -> None:
    first, second = opened(), opened()
    await asyncio.gather(
        *(store.put(OURS, response(f"{i}{n}")) for i, store in enumerate((first, second)) for n in range(9))
    )
    for id in ("00", "18"):
        assert await first.get(OURS, id) == await second.get(OURS, id) is not None


async def test_a_place_that_cannot_be_used_is_told_and_used_again_when_it_can(tmp_path: Path) -> None:
    (tmp_path / "place").write_text("no directory")
    store = build_store(str(tmp_path / "place" / "r.db"), max_bytes=2**20, max_age=1e9)
    assert store is not None
    with pytest.raises(StoreUnavailable):
        await store.put(OURS, response("r1"))
    (tmp_path / "place").unlink()
    await store.put(OURS, response("r1"))
    assert await store.get(OURS, "r1") is not None
    store.close()


async def test_nobody_else_may_read_the_file_and_none_is_made_before_it_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    store = build_store(str(file), max_bytes=2**20, max_age=1e9)
    assert store is not None
    assert not file.exists()
    await store.put(OURS, response("r1"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sqlite3.connect(file).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_default_file_is_where_what_outlives_a_restart_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_file() == Path("/state/paraserve/responses.db")
    assert build_store("off", max_bytes=1, max_age=1) is None


def test_what_was_told_as_stored_outlives_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    program = textwrap.dedent("""
        import asyncio, sys
        from paraserve.store.base import Stored
        from paraserve.store.build import build_store
        async def main():
            store = build_store(sys.argv[1], max_bytes=2**30, max_age=1e9)
            for i in range(10**6):
                await store.put("ours", Stored(id=str(i), response=b"x" * 1000, input=b"y"))
                print(i, flush=True)
        asyncio.run(main())
        """)
    command = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ), text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline().strip() for _ in range(20)]
        writer.kill()
        told += writer.stdout.read().split("\n")[:-1]
    rows = sqlite3.connect(file).execute("SELECT id, LENGTH(response) FROM responses").fetchall()
    assert len(told) >= 20
    assert [id for id in told if (id, 1000) not in rows] == []
