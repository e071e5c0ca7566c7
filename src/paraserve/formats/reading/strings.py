"""Strings of JSON: how text is written in one, and how text goes on in one that streams.

It knows nothing of readers or markup. Invariant: escaping the parts of a text is escaping the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import NamedTuple

from paraserve.formats.events import ToolCallDelta

needs_escapes = re.compile(r'["\\\x00-\x1f]').search


class PlainRun(NamedTuple):
    """Inside a string that streams: text in which ``stop`` finds nothing only goes on in it, and is the event that
    ``delta`` of the call's index makes of it, however it is cut. Where that is None, nothing has been taken."""

    stop: Callable[[str], object | None]
    delta: Callable[[int], Callable[[str], ToolCallDelta | None]]


def raw_delta(index: int) -> Callable[[str], ToolCallDelta]:
    return lambda text: ToolCallDelta(index, text)


def escaped_delta(index: int) -> Callable[[str], ToolCallDelta]:
    return lambda text: ToolCallDelta(index, escape(text) if needs_escapes(text) else text)


def encode_string(text: str) -> str:
    """A JSON string of the text, not escaped beyond need."""
    return encode_basestring(text)


def escape(text: str) -> str:
    """What stands between the quotes of a JSON string; escaping the parts of a text is escaping the whole."""
    return encode_basestring(text)[1:-1]
