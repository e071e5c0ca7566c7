"""A real PostgreSQL of its own, as Debian's package has it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def run_postgres() -> Iterator[str]:
    """The URL of a server that runs until the generator is closed. Skips where there is none to run."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    place = Path(tempfile.mkdtemp(prefix="pg"))
    user = _user()
    if user:
        shutil.chown(place, user)

    def program(name: str, *arguments: str) -> None:
        command = [str(PROGRAMS[-1] / name), *arguments]
        subprocess.run(command, check=True, user=user, cwd=place, stdout=subprocess.DEVNULL, env={"LC_ALL": "C"})

    try:
        program("initdb", "-D", "data", "-U", "test", "-A", "trust", "-N")
        options = f"-c listen_addresses='' -c unix_socket_directories={place} -c fsync=off"
        program("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://test@/postgres?host={place}"
        finally:
            program("pg_ctl", "-D", "data", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def empty_postgres(url: str) -> None:
    """Nothing of the tests before."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
