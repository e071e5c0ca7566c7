"""What is said between markup: whitespace that waits for what follows it, and text that becomes events.

It knows the mode (what free text is at the moment) and nothing of markers. Two invariants. Whitespace behind a marker
is given out if and only if text follows it, less the separator that the description declares there. And each text comes
with the number of characters at its beginning that were in the prompt already (not above zero: none): those count as
said, and are in no event.
"""

from __future__ import annotations

from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta
from paraserve.formats.tables import Mode


class FreeText:
    __slots__ = ("_known", "_spaces", "events", "fresh", "mode", "said", "separator")

    def __init__(self) -> None:
        self.mode = Mode.CONTENT
        self.events: list[FormatEvent] = []
        self._spaces: list[str] = []
        self._known = 0
        self.separator = ""
        """At most this much of the waiting whitespace belongs to the marker before it."""
        self.fresh = True
        """Nothing but whitespace has come in the whole reply."""
        self.said = False
        """Content has been said."""

    def hold(self, spaces: str, known: int) -> None:
        """Whitespace that waits; it goes on right behind what waits already."""
        self._known += max(0, min(known, len(spaces)))
        self._spaces.append(spaces)

    def drop(self) -> None:
        """What waits was layout, or is markup's."""
        self._spaces.clear()
        self._known = 0

    def release(self) -> None:
        """What waits belongs to text, less the separator."""
        if not self._spaces:
            return
        spaces, known = "".join(self._spaces), self._known
        self.drop()
        dropped = _common_length(spaces, self.separator)
        self.separator = ""
        self.say(spaces[dropped:], known - dropped)

    def say(self, text: str, known: int) -> None:
        if not text:
            return
        self.fresh = False
        if self.mode is not Mode.REASONING:
            self.said = True
        if known > 0:
            text = text[known:]
        if text:
            self.events.append(ReasoningDelta(text) if self.mode is Mode.REASONING else ContentDelta(text))


def _common_length(text: str, separator: str) -> int:
    """How many characters both begin with."""
    shorter = min(len(text), len(separator))
    return next((i for i in range(shorter) if text[i] != separator[i]), shorter)
