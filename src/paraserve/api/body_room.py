"""What bodies may cost before they are whole: memory of all of them together and of one party's, and what is in one.

Never knows what a body says. Invariant: what was taken is given back, whatever becomes of the request, so that a slow
client holds a connection, its own share of memory, and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, retry_after

FREE_BYTES = 64 * 2**10
"""Of each body: what is smaller is served whatever others hold."""
BODIES_AT_ONCE = 4
"""As much of the largest body's size may be held of all that are not whole yet; of one party's half as much."""
MOST_OBJECTS = 2**19
"""Arrays, objects and keys of a body. Each is an object in memory; no context has room for as many."""
MOST_ITEMS = 2**21
"""Commas of a body: as many token ids, or as much text, as no context has room for."""


class BodyRoom:
    """Args:
    largest: bytes of the largest body.
    """

    def __init__(self, largest: int) -> None:
        self._room = BODIES_AT_ONCE * largest
        self._held: Counter[Hashable] = Counter()

    def take(self, party: Hashable, size: int) -> None:
        """Raises `RequestError` (503) where there is no room for ``size`` bytes more."""
        if self._held.total() + size > self._room or self._held[party] + size > self._room // 2:
            raise RequestError(
                "The server is receiving more than it has room for.",
                status=503,
                code=ErrorCode.OVERLOADED,
                headers=retry_after(),
            )
        self._held[party] += size

    def give_back(self, party: Hashable, size: int) -> None:
        self._held[party] -= size
        if self._held[party] <= 0:
            del self._held[party]


class Contents:
    """Counts what decoding a body will make of it, as it comes. Text counts with the rest: a body is JSON nearly always
    of which the most is text, and only what is dense is refused."""

    __slots__ = ("_items", "_objects")

    def __init__(self) -> None:
        self._objects = self._items = 0

    def add(self, chunk: bytes) -> None:
        """Raises `RequestError` (413)."""
        self._objects += chunk.count(b"[") + chunk.count(b"{") + chunk.count(b'":')
        self._items += chunk.count(b",")
        if self._objects > MOST_OBJECTS or self._items > MOST_ITEMS:
            raise RequestError(
                f"The request body holds more than {MOST_OBJECTS} arrays, objects and keys, or {MOST_ITEMS} items.",
                status=413,
                code=ErrorCode.REQUEST_TOO_LARGE,
            )
