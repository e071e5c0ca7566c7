"""The store that the operator chose: a file of SQLite, memory, or PostgreSQL by its URL.

Nothing is opened before it is needed: a server whose clients store nothing makes no file.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
from pathlib import Path
from typing import Any

from paraserve.start_error import StartError
from paraserve.store.base import ResponseStore
from paraserve.store.sql import Database, SQLStore

BUSY_SECONDS = 10.0
"""How long a writer waits for another process."""
POSTGRES_CONNECTIONS = 4


class StoreError(StartError):
    """The store cannot be used."""


def build_store(where: str | None, *, max_bytes: int, max_age: float) -> ResponseStore | None:
    """Args:
        where: ``off``, ``memory``, the path of a file, or a URL of PostgreSQL; None is the file of this user.

    Raises:
        StoreError: the driver is not installed.
    """
    if where == "off":
        return None
    if where is not None and where.startswith(("postgresql://", "postgres://")):
        database = _postgres(where)
    elif where == "memory":
        database = Database(
            connect=lambda: sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False),
            errors=(sqlite3.Error,),
        )
    else:
        database = _sqlite(Path(where) if where else default_file())
    return SQLStore(database, max_bytes=max_bytes, max_age=max_age)


def default_file() -> Path:
    """By the XDG convention for what outlives a restart."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "paraserve" / "responses.db"


def _sqlite(file: Path) -> Database:
    def connect() -> sqlite3.Connection:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))  # nobody else reads what people said
        connection = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    return Database(connect=connect, errors=(sqlite3.Error,), begin="BEGIN IMMEDIATE")


def _postgres(url: str) -> Database:
    if importlib.util.find_spec("psycopg") is None:
        raise StoreError("--response-store: PostgreSQL needs an extra: pip install 'paraserve[postgres]'")
    import psycopg

    def connect() -> Any:
        # The encoding also where the database has none of its own: its text would come as bytes.
        return psycopg.connect(url, autocommit=True, connect_timeout=int(BUSY_SECONDS), client_encoding="UTF8")

    return Database(
        connect=connect,
        errors=(psycopg.Error,),
        lock="SELECT pg_advisory_xact_lock(hashtext('paraserve'))",
        blob="BYTEA",
        mark="%s",
        threads=POSTGRES_CONNECTIONS,
    )
