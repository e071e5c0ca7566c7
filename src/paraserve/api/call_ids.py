"""Ids of calls for an API whose alphabet is smaller than the models' (``functions.read:0``), there and back.

Clients of that API respell other signs, each in its own way, and the model would read an id that it never wrote. One
invariant: `restored_id` of `safe_id` is the id, without any state between the two.
"""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9_-]+")
_MARK = "toolu_x-"
_OTHER = re.compile(r"[^A-Za-z0-9_]")
_ESCAPED = re.compile(r"-([0-9a-f]+)-")


def safe_id(call_id: str) -> str:
    """The id itself where letters, digits, ``_`` and ``-`` spell it, else one that spells it with them."""
    if _SAFE.fullmatch(call_id) and not call_id.startswith(_MARK):
        return call_id
    return _MARK + _OTHER.sub(lambda sign: f"-{ord(sign[0]):x}-", call_id)


def restored_id(sent: str) -> str:
    """What `safe_id` was made of; any other id as it is."""
    if not sent.startswith(_MARK):
        return sent
    return _ESCAPED.sub(lambda escaped: _character(escaped[1]) or escaped[0], sent.removeprefix(_MARK))


def _character(digits: str) -> str:
    number = int(digits, 16) if len(digits) <= 6 else -1
    return chr(number) if 0 <= number <= 0x10FFFF and not 0xD800 <= number < 0xE000 else ""
