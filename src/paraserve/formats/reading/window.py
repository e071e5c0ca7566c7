"""The text at hand: what a reply's parser was fed and has not taken yet.

It knows positions and nothing of what the text means. Invariant: each character is taken once, and with it goes whether
the prompt held it already (``known``: it is no news to the client).
"""

from __future__ import annotations

_MOST_KEPT = 512


class Window:
    __slots__ = ("_kept_from", "kept", "known", "position", "text")

    def __init__(self) -> None:
        self.text = ""
        self.position = 0
        self.known = 0
        """Where in the text the prompt's part of it ends; not above zero when all of it is news."""
        self.kept: str | None = None
        """What was taken since `keep`, as long as that is not long; None where nothing is kept."""
        self._kept_from = 0

    def keep(self, length: int) -> None:
        """From so many characters before the position on, what is taken is kept."""
        self.kept, self._kept_from = "", self.position - length

    def record(self, text: str) -> None:
        """Keep text that never comes here."""
        kept = (self.kept or "") + text
        self.kept = kept if len(kept) <= _MOST_KEPT else None

    def kept_to(self, end: int) -> str:
        """All that was kept, up to ``end``, or nothing; it is kept no more."""
        if self.kept is not None:
            self.record(self.text[self._kept_from : end])
        kept, self.kept = self.kept or "", None
        return kept

    def trim(self) -> None:
        """Forget what is taken."""
        if self.kept is not None:
            self.record(self.text[self._kept_from : self.position])
            self._kept_from = 0
        self.text = self.text[self.position :]
        self.known -= self.position
        self.position = 0

    @property
    def here(self) -> tuple[str, int]:
        """The text and the position in it: where a pattern is tried."""
        return self.text, self.position

    @property
    def rest(self) -> str:
        return self.text[self.position :]

    def take_to(self, end: int) -> tuple[str, int]:
        """Go to ``end``. Returns the text on the way, and how much of its beginning is known."""
        taken = self.text[self.position : end], self.known - self.position
        self.position = end
        return taken

    def take_back(self, text: str) -> None:
        """Text that was taken right before the position is at hand again."""
        self.position -= len(text)
        if self.position < 0:  # else all of it still stands in the window
            self.text = text[: -self.position] + self.text
            self.known -= self.position
            self.position = 0

    def known_of_last(self, length: int) -> int:
        """How much is known of so many characters right before the position."""
        return self.known - (self.position - length)
