"""Which bytes every token id stands for.

Never knows how text becomes ids. Three invariants: an id below `TokenTable.size` has exactly one byte string (empty for
an id that the vocabulary leaves unused), an added token's bytes are what it stands for in UTF-8, and no id is beyond
`MAX_IDS`, whatever a file says.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

MAX_IDS = 2**24
"""Ids are below it: a table has a row for each, used or not. The largest vocabularies have a sixtieth of that."""

PieceDecoder = Callable[[str], bytes]
"""Bytes of one vocabulary entry as the tokenizer file spells it."""

SPACE = "\u2581"
"""How SentencePiece spells a blank."""


class TokenizerPanic(RuntimeError):
    """A library gave up on a text."""


def panicked(error: BaseException) -> bool:
    """Whether a library in Rust gave up. Each has a class of its own for it, none of which is an `Exception`, so that
    it would pass all nets; it is no more than the failure of one call."""
    return type(error).__name__ == "PanicException"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is matched whole in text, before anything else looks at it."""

    id: int
    text: str
    special: bool
    blanks: bool = False
    """Whether ``text`` spells blanks as SentencePiece does: its vocabularies have runs of blanks as added tokens."""

    @property
    def spelled(self) -> bytes:
        """What it stands for. A special token is a name, and means itself."""
        return (self.text.replace(SPACE, " ") if self.blanks and not self.special else self.text).encode()


@dataclass(frozen=True, slots=True)
class BlankPrefix:
    """The blank that some tokenizers put in front of text that they encode, and that decoding takes away again."""

    at_start: bool = False
    """In front of a whole text."""
    after: frozenset[int] = frozenset()
    """The added tokens behind which text gets it."""


class OwnBlank:
    """Goes along tokens, and tells where the blank of a `BlankPrefix` stands.

    Args:
        before: the id that the first token stands behind; None at the beginning of a text.
    """

    __slots__ = ("_after", "due")

    def __init__(self, prefix: BlankPrefix, before: int | None = None) -> None:
        self._after = prefix.after
        self.due = prefix.at_start if before is None else before in prefix.after
        """Whether the next token begins with it."""

    def passes(self, token_id: int, *, shown: bool) -> bool:
        """Whether ``token_id`` begins with it. A token that is not shown changes nothing for those behind it."""
        added = token_id in self._after
        own = self.due and not added
        self.due = added or (self.due and not shown)
        return own


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE: 188 bytes stand for themselves, the rest from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in set(own)]
    return {chr(byte): byte for byte in own} | {chr(0x100 + place): byte for place, byte in enumerate(shifted)}


def byte_level_decoder() -> PieceDecoder:
    """For vocabularies whose entries are spelled in the byte-level alphabet (GPT-2 and most after it)."""
    alphabet = _byte_level_alphabet()

    def decode(piece: str) -> bytes:
        try:
            return bytes([alphabet[letter] for letter in piece])
        except KeyError:
            # An entry outside the alphabet is literal text: the reference decoder passes it through too.
            return piece.encode()

    return decode


def metaspace_decoder(space: str = SPACE) -> PieceDecoder:
    """For SentencePiece vocabularies: ``space`` is a blank, and ``<0x0A>`` is one raw byte."""
    raw_byte = re.compile(r"<0x([0-9A-Fa-f]{2})>")

    def decode(piece: str) -> bytes:
        if match := raw_byte.fullmatch(piece):
            return bytes([int(match[1], 16)])
        return piece.replace(space, " ").encode()

    return decode


class TokenTable:
    """Immutable once built, and so safe to share between threads."""

    def __init__(
        self, pieces: Iterable[tuple[str, int]], decode_piece: PieceDecoder, added: Sequence[AddedToken]
    ) -> None:
        """
        Args:
            pieces: vocabulary entries and their ids, in any order.
            decode_piece: how an entry's spelling becomes bytes.
            added: added tokens; they win over a vocabulary entry of the same id.

        Raises:
            ValueError: an id is negative, or beyond `MAX_IDS`.
        """
        self._adopt({number: decode_piece(piece) for piece, number in pieces}, added)

    @classmethod
    def from_bytes(cls, pieces: Mapping[int, bytes], added: Sequence[AddedToken]) -> TokenTable:
        """From a vocabulary that is bytes already (tiktoken rank files, GGUF)."""
        table = cls.__new__(cls)
        table._adopt(dict(pieces), added)
        return table

    def _adopt(self, by_id: dict[int, bytes], added: Sequence[AddedToken]) -> None:
        by_id.update((token.id, token.spelled) for token in added)
        self.size = max(by_id, default=-1) + 1
        if self.size > MAX_IDS or min(by_id, default=0) < 0:
            raise ValueError(f"it has the token id {self.size - 1 if self.size > MAX_IDS else min(by_id)}")
        self._bytes = tuple(by_id.get(number, b"") for number in range(self.size))
        self.added_tokens: Mapping[str, int] = {token.text: token.id for token in added}
        self.special_ids = frozenset(token.id for token in added if token.special)

    def token_bytes(self, token_id: int) -> bytes:
        """Raises `ValueError` for an id outside the vocabulary."""
        if 0 <= token_id < self.size:
            return self._bytes[token_id]
        raise ValueError(f"token id {token_id} is outside the vocabulary (0 to {self.size - 1})")

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of whole ids; bytes that are no UTF-8 become U+FFFD. Raises `ValueError` like `token_bytes`."""
        if skip_special_tokens:
            token_ids = [number for number in token_ids if number not in self.special_ids]
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")


class TableTokenizer(ABC):
    """What every tokenizer over a table does alike; a subclass adds how text becomes ids (`_encode`)."""

    def __init__(
        self, table: TokenTable, special_tokens: Mapping[str, str], blank_prefix: BlankPrefix | None = None
    ) -> None:
        """
        Args:
            special_tokens: named special tokens, by the variable that templates read.
        """
        self._table = table
        self.special_tokens = special_tokens
        self.blank_prefix = blank_prefix or BlankPrefix()
        eos = table.added_tokens.get(special_tokens.get("eos_token", ""))
        self.eos_token_ids = frozenset(() if eos is None else (eos,))

    @property
    def vocab_size(self) -> int:
        return self._table.size

    @property
    def added_tokens(self) -> Mapping[str, int]:
        return self._table.added_tokens

    @property
    def special_ids(self) -> frozenset[int]:
        return self._table.special_ids

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """As `paraserve.tokenizers.base.Tokenizer`. Raises `TokenizerPanic`."""
        try:
            return self._encode(text, add_special_tokens)
        except BaseException as error:
            if panicked(error):
                raise TokenizerPanic(f"the tokenizer gave up: {error}") from error
            raise

    @abstractmethod
    def _encode(self, text: str, add_special_tokens: bool) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes:
        return self._table.token_bytes(token_id)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        if self.blank_prefix.at_start:
            return self._decode_without_prefix(token_ids, self.special_ids if skip_special_tokens else frozenset())
        return self._table.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def _decode_without_prefix(self, token_ids: Sequence[int], hidden: frozenset[int]) -> str:
        blank, pieces = OwnBlank(self.blank_prefix), []
        for token_id in token_ids:
            piece, shown = self.token_bytes(token_id), token_id not in hidden
            own = blank.passes(token_id, shown=shown)
            if shown:
                pieces.append(piece.removeprefix(b" ") if own else piece)
        return b"".join(pieces).decode("utf-8", "replace")
