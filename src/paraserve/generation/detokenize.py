"""Token ids to text, as they come.

Never emits half a character: bytes of a character that is spread over tokens wait for the rest. What is still
incomplete at the end is released once, as U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """One reply's decoder.

    Args:
        token_bytes: the exact bytes of an id.
        hidden: ids that add nothing to the text.
    """

    __slots__ = ("_decode", "_hidden", "_token_bytes")

    def __init__(self, token_bytes: Callable[[int], bytes], hidden: Collection[int]) -> None:
        self._token_bytes = token_bytes
        self._hidden = hidden
        self._decode = _new_decoder("replace").decode

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that the ids complete."""
        hidden, token_bytes = self._hidden, self._token_bytes
        if len(token_ids) == 1:
            token_id = token_ids[0]
            return "" if token_id in hidden else self._decode(token_bytes(token_id))
        return self._decode(b"".join([token_bytes(token_id) for token_id in token_ids if token_id not in hidden]))

    def finish(self) -> str:
        """What an incomplete character at the end leaves."""
        return self._decode(b"", True)


@lru_cache(maxsize=16)
def hidden_ids(special: frozenset[int], shown: frozenset[int], skip_special_tokens: bool) -> frozenset[int]:
    """Ids left out of the text: the special ones, but never those that spell a marker of the output format."""
    return special - shown if skip_special_tokens else frozenset()
