"""What is said between markup: whitespace that waits for what follows it, and text that becomes events.

It takes text from the window, knows the mode (what free text is at the moment) and nothing of markers. Two invariants.
Whitespace behind a marker is given out if and only if text follows it, less the separator that the description declares
there. And text that was in the prompt already counts as said, and is in no event.
"""

from __future__ import annotations

from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta
from paraserve.formats.reading.tables import Mode
from paraserve.formats.reading.window import Window


class FreeText:
    def __init__(self, window: Window) -> None:
        self._window = window
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

    def hold_to(self, end: int) -> None:
        """Whitespace up to ``end`` waits; it goes on right behind what waits already."""
        spaces, known = self._window.take_to(end)
        self._known += max(0, min(known, len(spaces)))
        self._spaces.append(spaces)

    def skip_to(self, end: int) -> None:
        """Markup up to ``end`` is no text, and what waits before it was layout."""
        self._window.position = end
        self._spaces.clear()
        self._known = 0

    def release(self) -> None:
        """What waits belongs to text, less the separator."""
        if not self._spaces:
            return
        spaces, known = "".join(self._spaces), self._known
        self.skip_to(self._window.position)
        dropped = _common_length(spaces, self.separator)
        self.separator = ""
        self._say(spaces[dropped:], known - dropped)

    def say_to(self, end: int) -> None:
        """The text up to ``end`` is what it is."""
        self._say(*self._window.take_to(end))

    def say_taken(self, text: str) -> None:
        """So is the text right before the position, which markup or arguments were looked for in."""
        self._say(text, self._window.known_of_last(len(text)))

    def _say(self, text: str, known: int) -> None:
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
