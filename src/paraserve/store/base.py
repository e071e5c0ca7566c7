"""What a store of responses is to those who use it.

It keeps bytes and never reads them. Invariants of every store: what `put` returned from outlives the process, and what
one owner put no other finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class StoreUnavailable(Exception):
    """The store cannot be reached, or does not work. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One response. ``response`` and ``input`` (its own items, not those before it) are JSON.

    Args:
        previous: the id of the response that it goes on from.
        running: it has not ended. ``beat`` is when it last said that it runs, in seconds since the epoch.
        cancelled: its end was asked for.
    """

    id: str
    response: bytes
    input: bytes
    previous: str | None = None
    running: bool = False
    beat: float = 0.0
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """``last`` is the id of the last response in it."""

    id: str
    created: int
    metadata: bytes
    last: str | None = None


class ResponseStore(Protocol):
    """Every method raises `StoreUnavailable`. An owner is the digest of an API key; empty where there are none."""

    async def put(self, owner: str, stored: Stored, conversation: str | None = None) -> None:
        """Keep it, in place of one of the same id. In a conversation it goes on from the last response there."""
        ...

    async def get(self, owner: str, id: str) -> Stored | None: ...

    async def history(self, owner: str, id: str) -> Sequence[Stored] | None:
        """The response and all before it, the oldest first; None where one of them is not there."""
        ...

    async def delete(self, owner: str, id: str) -> bool: ...

    async def cancel(self, owner: str, id: str) -> None:
        """Ask a response that runs to end, wherever it runs."""
        ...

    async def beat(self, owner: str, id: str) -> bool:
        """Say that it runs. Returns whether it is to go on: not when it was cancelled or deleted."""
        ...

    async def put_conversation(self, owner: str, conversation: Conversation) -> None: ...
    async def conversation(self, owner: str, id: str) -> Conversation | None: ...
    async def delete_conversation(self, owner: str, id: str) -> bool: ...
    def close(self) -> None: ...
