"""Token ids to text, as they come.

Never emits half a character: bytes of a character that is spread over tokens wait for the rest. What is still
incomplete at the end is released once, as U+FFFD.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from paraserve.formats.spec import Format
from paraserve.tokenizers.base import Tokenizer
from paraserve.tokenizers.token_table import BlankPrefix, OwnBlank

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """One reply's decoder.

    Args:
        token_bytes: the exact bytes of an id.
        hidden: ids that add nothing to the text.
        texts: what is known of ids that are whole characters; filled as they come, and shared by replies that hide
            the same ids.
    """

    __slots__ = ("_decoder", "_hidden", "_inside", "_text_of", "_texts", "_token_bytes")

    def __init__(
        self, token_bytes: Callable[[int], bytes], hidden: Collection[int], texts: dict[int, str] | None = None
    ) -> None:
        self._token_bytes = token_bytes
        self._hidden = hidden
        self._texts = {} if texts is None else texts
        self._text_of = self._texts.__getitem__
        self._decoder: codecs.IncrementalDecoder | None = None  # made for the first id that is new or cut
        self._inside = False
        """Whether the last token left a character incomplete."""

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that the ids complete."""
        return "".join(self.pieces(token_ids))

    def whole(self, token_ids: Sequence[int]) -> str:
        """The text of ids that are all known as whole characters, which changes nothing here; else nothing."""
        if self._inside:
            return ""
        try:
            return "".join(map(self._text_of, token_ids))
        except KeyError:
            return ""

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """What each of the ids adds to the text."""
        if self._inside:
            return [self._slowly(token_id) for token_id in token_ids]
        try:
            return [self._texts[token_id] for token_id in token_ids]
        except KeyError:
            return [self._slowly(token_id) for token_id in token_ids]

    def _slowly(self, token_id: int) -> str:
        if not self._inside and (known := self._texts.get(token_id)) is not None:
            return known
        if token_id in self._hidden:
            return ""
        if self._decoder is None:
            self._decoder = _new_decoder("replace")
        whole = not self._inside
        text: str = self._decoder.decode(self._token_bytes(token_id))
        self._inside = bool(self._decoder.getstate()[0])
        if whole and not self._inside:
            self._texts[token_id] = text
        return text

    def finish(self) -> str:
        """What an incomplete character at the end leaves."""
        if not self._inside or self._decoder is None:
            return ""
        self._inside = False
        return self._decoder.decode(b"", True)


class PrefixedDetokenizer(Detokenizer):
    """Leaves out the blanks that the tokenizer itself puts in front of text, and so a model that was trained on it.

    Args:
        prefix: where it puts them.
        before: the id that the first stands behind; None at a text's beginning.
    """

    __slots__ = ("_after", "_blank")

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        hidden: Collection[int],
        texts: dict[int, str] | None,
        *,
        prefix: BlankPrefix,
        before: int | None,
    ) -> None:
        super().__init__(token_bytes, hidden, texts)
        self._after = prefix.after
        self._blank = OwnBlank(prefix, before)

    def whole(self, token_ids: Sequence[int]) -> str:
        if self._blank.due or not self._after.isdisjoint(token_ids):
            return ""
        return super().whole(token_ids)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        pieces = super().pieces(token_ids)
        for place, token_id in enumerate(token_ids):
            if self._blank.passes(token_id, shown=token_id not in self._hidden):
                pieces[place] = pieces[place].removeprefix(" ")
        return pieces


@dataclass(frozen=True, slots=True)
class ReplyVocabulary:
    """What a reply needs to know of the tokenizer, worked out once for a model and its output format.

    Args:
        token_bytes: the exact bytes of an id; raises `ValueError` for an id that does not exist.
        hidden: special ids that ``skip_special_tokens`` leaves out of the text: never those that spell a marker of
            the output format.
        end_ids: ids that end a reply and are no part of its text.
        blank_prefix: where the tokenizer puts a blank of its own.
    """

    token_bytes: Callable[[int], bytes]
    hidden: frozenset[int] = frozenset()
    end_ids: frozenset[int] = frozenset()
    blank_prefix: BlankPrefix = field(default_factory=BlankPrefix)
    _texts: dict[int, str] = field(default_factory=dict, repr=False, compare=False)
    """Of the ids that are not hidden."""

    def detokenizer(self, skip_special_tokens: bool, before: int | None = None) -> Detokenizer:
        """Args: before: the id that the reply's first stands behind, the prompt's last; None at a text's beginning."""
        hidden, texts = (self.hidden, self._texts) if skip_special_tokens else (frozenset[int](), None)
        prefix = self.blank_prefix
        if prefix.after or (prefix.at_start and before is None):
            return PrefixedDetokenizer(self.token_bytes, hidden, texts, prefix=prefix, before=before)
        return Detokenizer(self.token_bytes, hidden, texts)


def reply_vocabulary(tokenizer: Tokenizer, format: Format, end_ids: Iterable[int] = ()) -> ReplyVocabulary:
    """Args: end_ids: those that the engine and the checkpoint name beside the tokenizer's own."""
    shown = {token_id for text, token_id in tokenizer.added_tokens.items() if format.needs_token(text)}
    stops = {tokenizer.added_tokens[text] for text in format.stop_tokens if text in tokenizer.added_tokens}
    return ReplyVocabulary(
        token_bytes=tokenizer.token_bytes,
        hidden=tokenizer.special_ids - shown,
        end_ids=frozenset(end_ids) | tokenizer.eos_token_ids | stops,
        blank_prefix=tokenizer.blank_prefix,
    )
