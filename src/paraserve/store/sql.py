"""A store in a database: one set of statements, for SQLite and PostgreSQL.

The plain drivers, since two tables and a dozen statements gain nothing from a layer between. Calls run in threads of
the store's own, each with its connection; one that failed is closed, and the next call opens another. Never knows what
the bytes mean. Invariant: each call is one transaction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from paraserve.store.base import Conversation, Stored, StoreUnavailable

T = TypeVar("T")
Statement = Callable[..., list[tuple[Any, ...]]]
"""Runs one; arguments stand at its question marks."""

SWEEP_SECONDS = 60.0
"""How often what is too old or too much is looked for."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS responses (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, used DOUBLE PRECISION NOT NULL,
        response BLOB NOT NULL, input BLOB NOT NULL,
        running INTEGER NOT NULL, cancelled INTEGER NOT NULL DEFAULT 0, beat DOUBLE PRECISION NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS responses_used ON responses (used)",
    """CREATE TABLE IF NOT EXISTS conversations (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, created BIGINT NOT NULL, metadata BLOB NOT NULL, last TEXT,
        used DOUBLE PRECISION NOT NULL)""",
)
_FIELDS = "r.id, r.response, r.input, r.previous, r.running, r.beat, r.cancelled"
_CHAIN = """WITH RECURSIVE chain(id, depth) AS (
        SELECT id, 0 FROM responses WHERE id = ? AND owner = ?
        UNION ALL
        SELECT r.id, chain.depth + 1 FROM chain
            JOIN responses of_chain ON of_chain.id = chain.id JOIN responses r ON r.id = of_chain.previous
            WHERE r.owner = ?)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What differs between databases.

    Args:
        connect: opens a connection that commits each statement by itself, outside of ``begin``; it may be closed by
            another thread.
        errors: what its driver raises.
    lock: run before tables are made, by one process at a time.
        blob: its type of bytes.
        mark: what stands for an argument.
        threads: connections at most.
    """

    connect: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    begin: str = "BEGIN"
    lock: str = ""
    blob: str = "BLOB"
    mark: str = "?"
    threads: int = 1


class SQLStore:
    """Args:
    max_bytes, max_age: what is kept at most, in bytes of JSON and in seconds since it was last used.
    """

    def __init__(self, database: Database, *, max_bytes: int, max_age: float) -> None:
        self._database = database
        self._failures: tuple[type[Exception], ...] = (*database.errors, OSError)
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._pool = ThreadPoolExecutor(database.threads, thread_name_prefix="store")
        self._of_thread = threading.local()
        self._connections: list[Any] = []
        """Those of all threads."""
        self._swept = 0.0

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            with suppress(*self._database.errors):
                connection.close()

    # What `ResponseStore` promises.

    async def put(self, owner: str, stored: Stored, conversation: str | None = None) -> None:
        def work(run: Statement) -> None:
            now, previous = time.time(), stored.previous
            there = run("SELECT previous FROM responses WHERE id = ? AND owner = ?", stored.id, owner)
            if there:
                previous = there[0][0]
            elif conversation is not None:
                # The first statement locks the row: two responses of one conversation stand one behind the other.
                run("UPDATE conversations SET used = ? WHERE id = ? AND owner = ?", now, conversation, owner)
                last = run("SELECT last FROM conversations WHERE id = ? AND owner = ?", conversation, owner)
                previous = last[0][0] if last else None
                run("UPDATE conversations SET last = ? WHERE id = ? AND owner = ?", stored.id, conversation, owner)
            run(
                """INSERT INTO responses (id, owner, previous, used, response, input, running, beat)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
                used = excluded.used, response = excluded.response, input = excluded.input,
                running = excluded.running, beat = excluded.beat WHERE responses.owner = excluded.owner""",
                *(stored.id, owner, previous, now, stored.response, stored.input, int(stored.running), now),
            )
            self._sweep(run, now)

        await self._do(work)

    async def get(self, owner: str, id: str) -> Stored | None:
        rows = await self._do(
            lambda run: run(f"SELECT {_FIELDS} FROM responses r WHERE r.id = ? AND r.owner = ?", id, owner)
        )
        return _stored(rows[0]) if rows else None

    async def history(self, owner: str, id: str) -> Sequence[Stored] | None:
        def work(run: Statement) -> list[Stored]:
            asked = (id, owner, owner)
            found = f"{_CHAIN} SELECT {_FIELDS} FROM chain JOIN responses r ON r.id = chain.id ORDER BY depth DESC"
            chain = [_stored(row) for row in run(found, *asked)]
            used = f"{_CHAIN} UPDATE responses SET used = ? WHERE id IN (SELECT id FROM chain)"
            run(used, *asked, time.time())
            return chain

        chain = await self._do(work)
        return chain if chain and chain[0].previous is None else None

    async def delete(self, owner: str, id: str) -> bool:
        gone = "DELETE FROM responses WHERE id = ? AND owner = ? RETURNING id"
        return bool(await self._do(lambda run: run(gone, id, owner)))

    async def cancel(self, owner: str, id: str) -> None:
        asked = "UPDATE responses SET cancelled = 1 WHERE id = ? AND owner = ? AND running = 1"
        await self._do(lambda run: run(asked, id, owner))

    async def beat(self, owner: str, id: str) -> bool:
        beat = "UPDATE responses SET beat = ? WHERE id = ? AND owner = ? AND cancelled = 0 RETURNING id"
        return bool(await self._do(lambda run: run(beat, time.time(), id, owner)))

    async def put_conversation(self, owner: str, conversation: Conversation) -> None:
        made = "INSERT INTO conversations (id, owner, created, metadata, last, used) VALUES (?, ?, ?, ?, ?, ?)"
        row = (conversation.id, owner, conversation.created, conversation.metadata, conversation.last, time.time())
        await self._do(lambda run: run(made, *row))

    async def conversation(self, owner: str, id: str) -> Conversation | None:
        found = "SELECT created, metadata, last FROM conversations WHERE id = ? AND owner = ?"
        rows = await self._do(lambda run: run(found, id, owner))
        return Conversation(id=id, created=rows[0][0], metadata=bytes(rows[0][1]), last=rows[0][2]) if rows else None

    async def delete_conversation(self, owner: str, id: str) -> bool:
        gone = "DELETE FROM conversations WHERE id = ? AND owner = ? RETURNING id"
        return bool(await self._do(lambda run: run(gone, id, owner)))

    # How.

    def _sweep(self, run: Statement, now: float) -> None:
        """Delete what is too old, and the least lately used beyond the size."""
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept = now
        run("DELETE FROM responses WHERE used < ?", now - self._max_age)
        run("DELETE FROM conversations WHERE used < ?", now - self._max_age)
        run(
            """DELETE FROM responses WHERE id IN (SELECT id FROM (
            SELECT id, SUM(LENGTH(response) + LENGTH(input)) OVER (ORDER BY used DESC, id) AS total FROM responses
            ) AS sized WHERE total > ?)""",
            self._max_bytes,
        )

    async def _do(self, work: Callable[[Statement], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._transact, work)
        except self._failures as error:
            raise StoreUnavailable(str(error)) from error

    def _transact(self, work: Callable[[Statement], T]) -> T:
        try:
            run = self._statement()
            run(self._database.begin)
            result = work(run)
            run("COMMIT")
            return result
        except BaseException:
            self._drop()
            raise

    def _statement(self) -> Statement:
        """Of this thread's connection."""
        if getattr(self._of_thread, "connection", None) is None:
            self._of_thread.connection = self._database.connect()
            self._connections.append(self._of_thread.connection)
            made = [table.replace("BLOB", self._database.blob) for table in _TABLES]
            for statement in (self._database.begin, self._database.lock, *made, "COMMIT"):
                if statement:
                    self._run(statement)
        return self._run

    def _run(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        cursor = self._of_thread.connection.execute(statement.replace("?", self._database.mark), arguments)
        return list(cursor.fetchall()) if cursor.description else []

    def _drop(self) -> None:
        connection, self._of_thread.connection = getattr(self._of_thread, "connection", None), None
        if connection is not None:
            self._connections.remove(connection)
            with suppress(*self._database.errors):  # it is given up in any case
                connection.close()


def _stored(row: tuple[Any, ...]) -> Stored:
    id, response, input, previous, running, beat, cancelled = row
    return Stored(
        id=id,
        response=bytes(response),
        input=bytes(input),
        previous=previous,
        running=bool(running),
        beat=beat,
        cancelled=bool(cancelled),
    )
