"""A SentencePiece vocabulary of byte-pair encoding, written as the ``tokenizer.json`` that fast encoders read.

Never reads a file, and never decides whether the result is exact: whoever encodes with it compares it with
`sentencepiece` (or llama.cpp, for a GGUF file) first. One invariant: a vocabulary always gives the same document.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paraserve.tokenizers.token_table import SPACE

# Kinds of pieces: SentencePiece's ModelProto.SentencePiece.Type, and GGUF's tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

FLAGS = ("lstrip", "rstrip", "single_word")


@dataclass(frozen=True, slots=True)
class MatchedToken:
    """A token that is found in text before SentencePiece sees it; flags as in Hugging Face's ``AddedToken``."""

    id: int
    text: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @property
    def flags(self) -> dict[str, bool]:
        return {name: getattr(self, name) for name in FLAGS}

    @property
    def document(self) -> dict[str, Any]:
        """Its entry among the added tokens of a ``tokenizer.json``."""
        return {"id": self.id, "content": self.text, "special": self.special, "normalized": False, **self.flags}


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float
    kind: int


def byte_pair_document(
    pieces: Sequence[Piece], matched: Sequence[MatchedToken], *, prefix: bool, byte_fallback: bool
) -> dict[str, Any]:
    """The document, without a post-processor.

    Args:
        pieces: by id.
        matched: found in text first; user-defined pieces that are none of them are kept whole by the pre-tokenizer.
        prefix: a blank stands in front of every text between matched tokens.
        byte_fallback: what no piece spells is spelled in bytes.
    """
    blanks: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    found = {token.id for token in matched}
    whole = [piece.text for number, piece in enumerate(pieces) if piece.kind == USER_DEFINED and number not in found]
    return {
        "added_tokens": [token.document for token in matched],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*([{"type": "Prepend", "prepend": SPACE}] if prefix else []), *blanks],
        },
        "pre_tokenizer": _whole(whole),
        "post_processor": None,
        "decoder": {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        "model": {
            "type": "BPE",
            "unk_token": next((piece.text for piece in pieces if piece.kind == UNKNOWN), None),
            "fuse_unk": True,
            "byte_fallback": byte_fallback,
            "ignore_merges": bool(whole),
            "vocab": {piece.text: number for number, piece in enumerate(pieces)},
            "merges": _merges(pieces),
        },
    }


def _whole(texts: Sequence[str]) -> dict[str, Any] | None:
    """Pieces that are never cut or merged with what stands beside them. SentencePiece finds none that has blanks."""
    longest_first = sorted((text for text in texts if " " not in text), key=len, reverse=True)
    if not longest_first:
        return None
    pattern = "|".join(map(re.escape, longest_first))
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _merges(pieces: Sequence[Piece]) -> list[list[str]]:
    """Every pair of pieces that makes a piece, the best score first, as SentencePiece merges them."""
    normal = {piece.text: (-piece.score, number) for number, piece in enumerate(pieces) if piece.kind == NORMAL}
    ranked = [
        (rank, text[:cut], text[cut:])
        for text, rank in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    return [[left, right] for _, left, right in sorted(ranked)]
