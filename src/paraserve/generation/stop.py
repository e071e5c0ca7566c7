"""Stop strings over token edges.

The match that ends first wins, and among those that end together the one that starts first, so the result does not
depend on how the text was cut. Text that may still become a stop string is held back; everything else leaves at once.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Args: strings: not empty, none of them empty."""

    __slots__ = ("_held", "_reach", "_strings", "matched")

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._reach = max(map(len, self._strings)) - 1
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The text that is safe to show. Once `matched` is set, the reply is over and this was its last text."""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._strings if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at]
        keep = self._partial(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back and did not become a stop string."""
        held, self._held = self._held, ""
        return held

    def _partial(self, text: str) -> int:
        """Length of the longest tail of ``text`` that begins a stop string."""
        for length in range(min(self._reach, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._strings):
                return length
        return 0
