"""What is said between markup: whitespace that waits for what follows it, and text that becomes events.

It knows the mode (what free text is at the moment) and nothing of markers. Invariant: whitespace behind a marker is
given out if and only if text follows it, less the separator that the description declares there.
"""

from __future__ import annotations

from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta
from paraserve.formats.tables import Mode


class FreeText:
    __slots__ = ("_spaces", "events", "fresh", "mode", "prefilled", "said", "separator")

    def __init__(self) -> None:
        self.mode = Mode.CONTENT
        self.events: list[FormatEvent] = []
        self._spaces: list[str] = []
        self.separator = ""
        """At most this much of the waiting whitespace belongs to the marker before it."""
        self.fresh = True
        """Nothing but whitespace has come in the whole reply."""
        self.said = False
        """Content has been said."""
        self.prefilled = 0
        """So many characters that wait were in the prompt already, and are not said again."""

    @property
    def waiting(self) -> int:
        return sum(map(len, self._spaces))

    def hold(self, spaces: str) -> None:
        self._spaces.append(spaces)

    def drop(self) -> None:
        """What waits was layout, or is markup's."""
        self._spaces.clear()

    def release(self) -> None:
        """What waits belongs to text, less the separator."""
        if not self._spaces:
            return
        spaces = "".join(self._spaces)
        self._spaces.clear()
        dropped = _common_length(spaces, self.separator)
        self.separator = ""
        self.prefilled = max(0, self.prefilled - dropped)
        self.say(spaces[dropped:])

    def say(self, text: str) -> None:
        if self.prefilled:
            known = min(self.prefilled, len(text))
            self.prefilled -= known
            text = text[known:]
        if not text:
            return
        self.fresh = False
        if self.mode is Mode.REASONING:
            self.events.append(ReasoningDelta(text))
        else:
            self.said = True
            self.events.append(ContentDelta(text))


def _common_length(text: str, separator: str) -> int:
    """How many characters both begin with."""
    shorter = min(len(text), len(separator))
    return next((i for i in range(shorter) if text[i] != separator[i]), shorter)
