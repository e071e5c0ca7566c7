"""The free text of a custom tool's call, read out of the JSON arguments that the model writes.

A stream and a whole response use the same reader. Invariant: what `feed` and `end` return, joined, does not depend on
how the arguments were cut into pieces.
"""

from __future__ import annotations

import json
import re

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_READABLE = re.compile(
    r"""(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[\da-fA-F]{4}"""
    r"""|\\u[dD][89abAB][\da-fA-F]{2}(?=[^\\]|\\[^u]|\\u[\da-fA-F]{4}))*"""
)
"""What of a JSON string can be read now: no part of an escape, and the first half of a pair with what follows it."""


class CustomInput:
    """Reads one call. Its arguments are to be an object with one string, ``input``."""

    def __init__(self) -> None:
        self._held = ""
        self._over = False
        self._begun = False

    def feed(self, arguments: str) -> str:
        """What of the input is now known."""
        if self._over:
            return ""
        self._held += arguments
        if not self._begun:
            head = _HEAD.match(self._held)
            if head is None:
                return ""
            self._begun = True
            self._held = self._held[head.end() :]
        return self._string()

    def end(self) -> str:
        """The rest, once the arguments are whole: all of it where the model named its parameter in another way."""
        if self._begun:
            return ""
        self._over = True
        try:
            sent = json.loads(self._held)
        except (ValueError, RecursionError):
            return self._held
        texts = [value for value in sent.values() if isinstance(value, str)] if isinstance(sent, dict) else []
        named = sent.get("input") if isinstance(sent, dict) else None
        if isinstance(named, str):
            return named
        if len(texts) == 1:
            return texts[0]
        return "" if sent == {} else self._held

    def _string(self) -> str:
        readable = _READABLE.match(self._held)
        assert readable is not None
        text: str = json.loads(f'"{readable[0]}"', strict=False)
        self._held = self._held[readable.end() :]
        self._over = self._held.startswith('"')
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
