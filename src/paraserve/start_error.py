"""The one kind of failure that ends a start. On the ground floor: every room can find out that something is wrong."""

MAX_REASON = 2_000
"""Characters. What a file or a program says of itself may be as long as it likes."""


class StartError(Exception):
    """The server cannot start as configured. The message is one line for the operator: what is wrong, what to do.

    Whatever stands in it (of a file, or of what a library said): no line breaks, and nothing that steers a terminal.
    """

    def __init__(self, reason: str) -> None:
        cut = reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "…"
        super().__init__("".join(letter if letter.isprintable() else " " for letter in cut))
