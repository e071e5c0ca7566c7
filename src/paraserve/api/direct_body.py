"""A short way between a response and its connection, past every layer between them: for the body of a stream, and for
the news that the client has left.

An ASGI extension that our own HTTP protocol offers. A layer that must see bodies takes it out of the scope. Never
knows HTTP's framing. Invariant: the head and the end of a response never come this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from starlette.types import Scope

EXTENSION = "paraserve.direct_body"
_WRITER = "writer"


class DirectBody(Protocol):
    """Writes what stands between a response's head and its end, in the order in which it comes."""

    def write(self, body: bytes) -> Awaitable[None] | None:
        """What it returns, if anything, must be awaited before the next write: the client does not keep up."""
        ...

    def gone(self) -> asyncio.Future[None]:
        """Done when the client has left. The caller cancels it when it has heard enough."""
        ...


def extension(writer: DirectBody) -> dict[str, dict[object, object]]:
    """What a protocol puts into a request's scope as ``extensions``."""
    return {EXTENSION: {_WRITER: writer}}


def direct_body_of(scope: Scope) -> DirectBody | None:
    offered = scope.get("extensions", {}).get(EXTENSION)
    writer: DirectBody | None = offered[_WRITER] if offered else None
    return writer


def forbid_direct_body(scope: Scope) -> None:
    """From here on every part of the body passes through ``send``."""
    scope.get("extensions", {}).pop(EXTENSION, None)
