"""A SentencePiece model of byte-pair encoding, written as the ``tokenizer.json`` that fast encoders read.

Never decides whether the two agree: whoever encodes with the result compares it with `sentencepiece` first. One
invariant: a model with a step that this form has no exact word for is a `ValueError`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paraserve.prompt.sentencepiece_files import NORMAL, SentencePieceFiles
from paraserve.prompt.token_table import SPACE

_BYTE_PAIRS = 2  # SentencePiece's TrainerSpec.ModelType


def byte_pair_document(files: SentencePieceFiles) -> dict[str, Any]:
    """Without decoder and post-processor. Raises `ValueError`."""
    trainer, normalizer = files.model.trainer_spec, files.model.normalizer_spec
    if trainer.model_type != _BYTE_PAIRS:
        raise ValueError("it is no model of byte-pair encoding")
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces or not normalizer.escape_whitespaces:
        raise ValueError("it normalizes text")
    if files.dummy_prefix and not files.legacy and any(any(token.flags.values()) for token in files.matched):
        raise ValueError("its added tokens take blanks or words around them into account")
    steps: list[Mapping[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    if files.dummy_prefix and files.legacy:
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
    return {
        "added_tokens": [
            {"id": token.id, "content": token.text, "special": token.special, "normalized": False, **token.flags}
            for token in files.matched
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": _whole(files.user_defined),
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "unk_token": trainer.unk_piece,
            "fuse_unk": True,
            "byte_fallback": trainer.byte_fallback,
            "ignore_merges": bool(files.user_defined),
            "vocab": {piece.piece: number for number, piece in enumerate(files.model.pieces)},
            "merges": _merges(files),
        },
    }


def _whole(user_defined: Mapping[str, int]) -> dict[str, Any] | None:
    """Pieces that are never cut or merged with what stands beside them. SentencePiece finds none that has blanks."""
    longest_first = sorted((text for text in user_defined if " " not in text), key=len, reverse=True)
    if not longest_first:
        return None
    pattern = "|".join(map(re.escape, longest_first))
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _merges(files: SentencePieceFiles) -> list[list[str]]:
    """Every pair of pieces that makes a piece, the best score first, as SentencePiece merges them."""
    normal = {
        piece.piece: (-piece.score, number) for number, piece in enumerate(files.model.pieces) if piece.type == NORMAL
    }
    ranked = [
        (rank, text[:cut], text[cut:])
        for text, rank in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    return [[left, right] for _, left, right in sorted(ranked)]
