"""A model's thought as a text that a client carries, and that only this server (or one with its key) reads back.

It is signed and not encrypted: the same item shows the thought in plain beside it. What the signature gives is that a
text of another server's is never taken for one of ours. Invariant: `Seal.open` of `Seal.close` is the thought.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib

_MARK = "paraserve1."
_DIGEST = 32


class Seal:
    """Args:
    key: the operator's; by default one that is made here, and gone with the process.
    """

    def __init__(self, key: str | None = None) -> None:
        self._key = hashlib.sha256(key.encode()).digest() if key else os.urandom(_DIGEST)

    def close(self, thought: str) -> str:
        packed = zlib.compress(thought.encode("utf-8", "replace"))
        return _MARK + base64.b64encode(self._signature(packed) + packed).decode()

    def open(self, sealed: str) -> str | None:
        """The thought; None for what was not closed with this key."""
        if not sealed.startswith(_MARK):
            return None
        try:
            raw = base64.b64decode(sealed.removeprefix(_MARK), validate=True)
        except ValueError:
            return None
        signature, packed = raw[:_DIGEST], raw[_DIGEST:]
        if not hmac.compare_digest(signature, self._signature(packed)):
            return None
        return zlib.decompress(packed).decode()

    def _signature(self, packed: bytes) -> bytes:
        return hmac.digest(self._key, packed, "sha256")
