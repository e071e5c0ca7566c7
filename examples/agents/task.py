"""The task of every client here: one tool, one question, the answer that the played model gives."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

QUESTION = "Which word is in heron.txt?"
REMEMBERING = "It is heron-4711, as I thought."
"""What the model says if it reads its own thought, call and id again."""
THOUGHT = "I have to read the file first."
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}


class File:
    """The tool, and what it was called with."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def read_file(self, path: str) -> str:
        """Reads a file."""
        self.calls.append({"path": path})
        return "heron-4711"

    def was_read_once(self) -> None:
        assert self.calls == [{"path": "heron.txt"}], self.calls


def play(*cases: Callable[[str], Any]) -> None:
    """Runs each, given a server's address, against each server."""
    asyncio.run(_play(cases))


async def _play(cases: Sequence[Callable[[str], Any]]) -> None:
    for entry in os.environ["AGENTS_SERVERS"].split():
        form, url = entry.split("=")
        for case in cases:
            try:
                running = case(url)
                if running is not None:
                    await running
            except BaseException as error:
                error.add_note(f"{form}: {case.__name__}")
                raise
        print(f"{form}: {', '.join(case.__name__ for case in cases)}", flush=True)
