"""Token ids that llama.cpp's event stream leaves out, found again from the bytes of the text.

Its server sends no event for a token after which the text ends inside a character: the event of the next one after
which it does not carries the text of all of them, and the id of the last. Never does I/O. One invariant: the ids given
back spell exactly the bytes that are missing, and the text ends inside a character after each, as with the lost ones.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST_LOST = 256
"""Bytes that are looked for at most: a character has four, and a token that begins one a word in front."""
_LONGEST_FOLLOWER = 3
"""Bytes that the text can go on for after the first byte of a character, and still be held to be inside it."""


def ends_inside_character(text: bytes) -> bool:
    """Whether ``text`` ends in the beginning of a UTF-8 character, by llama.cpp's rule: the last four bytes decide."""
    for back in range(1, min(4, len(text)) + 1):
        lead = text[-back]
        if lead & 0xE0 == 0xC0:
            return back < 2
        if lead & 0xF0 == 0xE0:
            return back < 3
        if lead & 0xF8 == 0xF0:
            return back < 4
    return False


class TokenFragments:
    """The tokens of a vocabulary that can be left out: parts of characters, and (since the rule looks at four bytes
    and not at their sense) short ones that follow a character which never gets whole.

    Args:
        token_bytes: the bytes of an id; `ValueError` for an id that stands for none.
    """

    def __init__(self, vocab_size: int, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._ids: dict[bytes, int] = {}
        for token_id in range(vocab_size):
            try:
                spelled = token_bytes(token_id)
            except ValueError:
                continue
            if 0 < len(spelled) <= _LONGEST_FOLLOWER or not _is_whole(spelled):
                self._ids.setdefault(spelled, token_id)

    @property
    def continuation(self) -> int | None:
        """A token that no text can begin with: a lone continuation byte."""
        return next((self._ids[byte] for byte in (bytes([b]) for b in range(0x80, 0xC0)) if byte in self._ids), None)

    def lost(self, text: bytes, last: int, most: int) -> list[int] | None:
        """Ids that came before ``last``, where both together spell ``text``.

        Several spellings of one fragment are possible in some vocabularies; the one with the longest tokens first is
        given, which is what byte-pair merging makes of it.

        Args:
            most: how many there can be; as many are looked for first.

        Returns:
            None where the vocabulary cannot spell it.
        """
        try:
            ending = self._token_bytes(last)
        except ValueError:
            return None
        missing = text.removesuffix(ending)
        if not text.endswith(ending) or len(missing) > _MOST_LOST:
            return None
        if not missing:
            return []
        hopeless: set[tuple[int, int]] = set()
        for count in range(min(most, len(missing)), 0, -1):
            found = self._spell(missing, 0, count, hopeless)
            if found is not None:
                return found
        return None

    def _spell(self, missing: bytes, begin: int, count: int, hopeless: set[tuple[int, int]]) -> list[int] | None:
        """``hopeless``: from where it cannot be spelled in so many tokens, as far as that has been found out."""
        if count == 0:
            return [] if begin == len(missing) else None
        if (begin, count) in hopeless:
            return None
        for end in range(len(missing), begin, -1):
            token_id = self._ids.get(missing[begin:end])
            if token_id is not None and ends_inside_character(missing[max(0, end - 4) : end]):
                rest = self._spell(missing, end, count - 1, hopeless)
                if rest is not None:
                    return [token_id, *rest]
        hopeless.add((begin, count))
        return None


def _is_whole(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True
