"""Token ids to text, as they come.

Never emits half a character: bytes of a character that is spread over tokens wait for the rest. What is still
incomplete at the end is released once, as U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from paraserve.formats.spec import Format
from paraserve.prompt.tokenizer import Tokenizer

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


@dataclass(frozen=True, slots=True)
class ReplyVocabulary:
    """What a reply needs to know of the tokenizer, worked out once for a model and its output format.

    Args:
        token_bytes: the exact bytes of an id; raises `ValueError` for an id that does not exist.
        hidden: special ids that ``skip_special_tokens`` leaves out of the text: never those that spell a marker of
            the output format.
        end_ids: ids that end a reply and are no part of its text.
    """

    token_bytes: Callable[[int], bytes]
    hidden: frozenset[int] = frozenset()
    end_ids: frozenset[int] = frozenset()

    def detokenizer(self, skip_special_tokens: bool) -> Detokenizer:
        return Detokenizer(self.token_bytes, self.hidden if skip_special_tokens else frozenset())


def reply_vocabulary(tokenizer: Tokenizer, format: Format, end_ids: Iterable[int] = ()) -> ReplyVocabulary:
    """Args: end_ids: those that the engine and the checkpoint name beside the tokenizer's own."""
    shown = {token_id for text, token_id in tokenizer.added_tokens.items() if format.needs_token(text)}
    stops = {tokenizer.added_tokens[text] for text in format.stop_tokens if text in tokenizer.added_tokens}
    return ReplyVocabulary(
        token_bytes=tokenizer.token_bytes,
        hidden=tokenizer.special_ids - shown,
        end_ids=frozenset(end_ids) | tokenizer.eos_token_ids | stops,
    )
