"""What must not be shown, and how it is taken out of a text.

It must never know where a text goes. Two kinds of secrets are told apart: the server's own keys, which are trusted and
so may be blotted out of a whole line, and what a client presents as its key, which anybody chooses and which may
therefore only be blotted out of texts that are the client's, or hold some of it: a line's own words stay.

Invariant: what this costs is bounded, whatever a stranger sends. Both factors are: the spellings that are looked for,
and the text, which is cut before it is looked through. Each spelling is looked for by ``str.replace``, which is linear;
one pattern of all would try every spelling at every character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar

keys_in_force: ContextVar[Sequence[str]] = ContextVar("keys_in_force", default=())
"""The spellings of the keys that open the door at which the current task's request stands."""


CREDENTIAL_HEADERS = frozenset({b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"cookie"})

REDACTED = "[redacted]"
WITHHELD = "[withheld: the request presents too many credentials to look for them here]"

LONGEST_TEXT = 32 * 2**10
"""Characters of a client's text that are looked through and shown, unless a caller says otherwise."""
MOST_SPELLINGS = 128
"""Of what a request presents: browsers send dozens of cookies, nobody sends more. Where there are more, no text of the
client is shown at all."""
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


class Presented:
    """What a request carries as credentials, right or wrong.

    Args:
        values: of the headers that carry them.
    """

    __slots__ = ("_spelled", "_values")

    def __init__(self, values: Sequence[str] = ()) -> None:
        self._values = values
        self._spelled: list[str] | None = None if values else []

    @property
    def spelled(self) -> list[str] | None:
        """The spellings to look for, found out once and only where something is shown; None: too many."""
        if self._spelled is None and self._values:
            self._spelled, self._values = self._spell(), ()
        return self._spelled

    def _spell(self) -> list[str] | None:
        words = {word for value in self._values for word in _SEPARATORS.split(value)}
        words |= {word.partition("=")[2] for word in words if "=" in word}  # a cookie's value
        words = {word for word in words if len(word) >= _SHORTEST_PRESENTED}
        spelled = spellings(words) if len(words) <= MOST_SPELLINGS else None
        return spelled if spelled is not None and len(spelled) <= MOST_SPELLINGS else None


presented: ContextVar[Presented] = ContextVar("presented", default=Presented())  # noqa: B039
"""What the current task's request presents."""


def client_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text that a client wrote, without keys: those in force, those that its request presents, and what looks like
    one. To be used before a text is cut further, because half a key is not found.

    Args:
        longest: characters that are looked through. Of a longer text less than that is returned: without what may be
            the first half of a key.
    """
    tried = presented.get().spelled
    if tried is None:
        return WITHHELD
    known = keys_in_force.get()
    shown = _KEY_LIKE.sub(REDACTED, blotted(blotted(text[:longest], known), tried))
    if len(text) <= longest:
        return shown
    half = max((len(secret) for secret in (*known[:1], *tried[:1])), default=0)  # the longest come first
    return f"{shown[: max(0, len(shown) - half)]}..."
