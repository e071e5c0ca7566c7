"""What must not be shown, and how it is taken out of a text.

It must never know where a text goes. Two kinds of secrets are told apart: the server's own keys, which are trusted and
so may be blotted out of a whole line, and what a client presents as its key, which anybody chooses and which may
therefore only be blotted out of texts that are the client's, or hold some of it: a line's own words stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar

keys_in_force: ContextVar[Sequence[str]] = ContextVar("keys_in_force", default=())
"""The spellings of the keys that open the door at which the current task's request stands."""
presented: ContextVar[Sequence[str]] = ContextVar("presented", default=())
"""The values of headers in which the current task's request carries credentials, right or wrong."""

CREDENTIAL_HEADERS = frozenset({b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"cookie"})

REDACTED = "[redacted]"
_SHORTEST_KEY = 4
"""Characters. A shorter key would cut up ordinary words, and protects nothing."""
_SHORTEST_PRESENTED = 8
"""Characters. What is shorter is hardly a key: a word that somebody tries out, or the name of a scheme."""
_SEPARATORS = re.compile(r"[\s,;]+")
_PLAIN = re.compile(r"[\w.~+=-]+", re.ASCII)
"""What JSON writers spell as it is."""
_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|gsk|hf|xai|ghp|glpat)[-_][A-Za-z0-9_-]{12,}|(?i:\bbearer)(?:\s|%20|\+)+[^\s\"'\\]{8,}"
)
"""The forms of keys that clients are given elsewhere, and send to the wrong server or in the wrong place."""


def spellings(secrets: Iterable[str]) -> list[str]:
    """Every way in which JSON and Python spell these secrets, and one of them within the other; the longest first, so
    that one which holds another is found whole."""
    found = {secret for secret in secrets if len(secret) >= _SHORTEST_KEY}
    odd = {secret for secret in found if not _PLAIN.fullmatch(secret)}
    for _ in range(2):
        odd |= {escaped for secret in odd for escaped in _escaped(secret)}
    return sorted(found | odd, key=len, reverse=True)


def _escaped(text: str) -> tuple[str, ...]:
    in_json = json.dumps(text)[1:-1]
    return in_json, in_json.replace("/", "\\/"), repr(text)[1:-1]


def blotted(text: str, spelled: Iterable[str]) -> str:
    """``text`` without these spellings."""
    for secret in spelled:
        text = text.replace(secret, REDACTED)
    return text


def client_text(text: str) -> str:
    """A text that a client wrote, without keys: those in force, those that its request presents, and what looks like
    one. To be used before a text is cut, because half a key is not found."""
    words = [word for value in presented.get() for word in _SEPARATORS.split(value)]
    words += [word.partition("=")[2] for word in words if "=" in word]  # a cookie's value
    tried = spellings([word for word in words if len(word) >= _SHORTEST_PRESENTED])
    return _KEY_LIKE.sub(REDACTED, blotted(text, [*keys_in_force.get(), *tried]))
