"""Text to token ids and back, behind one small interface.

Never knows about messages or templates. Two invariants: `Tokenizer.encode` gives the ids of the checkpoint's own
reference tokenizer, and joining `Tokenizer.token_bytes` over ids gives the exact bytes of the text they stand for, the
blanks of `Tokenizer.blank_prefix` among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from paraserve.start_error import StartError
from paraserve.tokenizers.token_table import BlankPrefix


class CheckpointError(StartError):
    """A checkpoint's files cannot be used: what is missing or wrong, and what to do."""


class Tokenizer(Protocol):
    """Safe to use from several threads at once."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this (added tokens included)."""
        ...

    @property
    def added_tokens(self) -> Mapping[str, int]:
        """Text to id of every token that is matched whole, special or not."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that ``skip_special_tokens`` drops from text."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """End tokens that the checkpoint's own files name."""
        ...

    @property
    def bos_token(self) -> str | None: ...

    @property
    def eos_token(self) -> str | None: ...

    @property
    def blank_prefix(self) -> BlankPrefix:
        """The blank that `encode` puts in front of text and `decode` takes away again; none for most tokenizers."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of ``text``; added tokens spelled in it become their single id, as the reference does.

        ``add_special_tokens`` puts the BOS (and whatever else the post-processor adds) around it: for plain
        completions, not for rendered templates.
        """
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that the id stands for. Raises `ValueError` for an id outside the vocabulary."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of whole ids; bytes that are no UTF-8 become U+FFFD."""
        ...
