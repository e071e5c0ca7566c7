"""Headers of messages, for formats whose replies are made of them (`Channels`), compiled.

It knows what a header says, and neither the message's body nor how text arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from paraserve.formats.reading.patterns import Atom, Pattern, compile_sources, literal, one_of, source_of
from paraserve.formats.spec import Channels
from paraserve.formats.templates import Field, pieces

_MAX_HEADER = 1024


class Headers:
    """`Channels`, compiled."""

    def __init__(self, channels: Channels) -> None:
        self.pattern = _header(channels, channels.opens)
        self.first = _header(channels, (channels.continues,)) if channels.continues else None
        """A header whose opener the prompt has written."""
        self._call = re.compile(channels.call or "(?!)")
        self._reasoning = re.compile(channels.reasoning)
        self._glued = channels.glued

    def called(self, header: str, declared: Callable[[str], bool]) -> str | None:
        """The name of the tool, where the message is a call."""
        match = self._call.search(header)
        if match is None:
            return None
        name: str = match["name"]
        short = name.removesuffix(self._glued)
        return short if not declared(name) and declared(short) else name

    def reasons(self, header: str) -> bool:
        """Whether the message is reasoning, where it is no call."""
        return self._reasoning.search(header) is not None


def _header(channels: Channels, opens: Sequence[str]) -> Pattern:
    """From an opener to the message marker, whatever stands between."""
    inner = f"(?:(?!{one_of(map(re.escape, channels.messages))}).){{0,{_MAX_HEADER}}}"
    known = [any(isinstance(piece, Field) for piece in pieces(text)) for text in opens]

    def source(atom: Atom) -> str:
        begins = [
            source_of(pieces(text), atom) + ("" if whole else inner) for text, whole in zip(opens, known, strict=True)
        ]
        ends = one_of(literal(text, atom) for text in channels.messages)
        alone = [literal(text, atom) for text in channels.messages if text in opens]
        return f"(?P<header>{one_of([*alone, one_of(begins) + ends])})"

    return compile_sources(source)
