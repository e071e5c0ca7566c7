"""Text to token ids and back, behind one small interface.

Never knows about messages or templates. Two invariants: `Tokenizer.encode` gives the ids of the checkpoint's own
reference tokenizer, and joining `Tokenizer.token_bytes` over ids gives the exact bytes of the text they stand for, the
blanks of `Tokenizer.blank_prefix` among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from paraserve.start_error import StartError
from paraserve.tokenizers.token_table import BlankPrefix, panicked


class CheckpointError(StartError):
    """A checkpoint's files cannot be used: what is missing or wrong, and what to do."""


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Whatever is raised while a file is read is a `CheckpointError` that names it: files are not trusted, and what
    libraries raise for one that they do not understand has no common kind.

    Args:
        what: the path, for the message.
    """
    try:
        yield
    except CheckpointError as error:
        if str(what) in str(error):
            raise
        raise CheckpointError(f"{what}: {error}") from error
    except BaseException as error:
        if not isinstance(error, Exception) and not panicked(error):
            raise
        raise CheckpointError(f"{what} cannot be read: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Of others, the text alone says too little: a KeyError's is the key.
    return str(error) if type(error) in (ValueError, Exception) else f"{type(error).__name__}: {error}"


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
