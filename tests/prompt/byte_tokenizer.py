"""The smallest exact tokenizer."""

from collections.abc import Mapping, Sequence

from paraserve.tokenizers.token_table import BlankPrefix


class ByteTokenizer:
    """One id a byte."""

    vocab_size = 256
    added_tokens: Mapping[str, int] = {}
    special_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()
    blank_prefix = BlankPrefix()
    bos_token: str | None = None
    eos_token: str | None = None

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return bytes(token_ids).decode("utf-8", "replace")
