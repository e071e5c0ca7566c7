"""Tiny SentencePiece models, trained on the spot, and a llama without knowledge that has such a vocabulary."""

from __future__ import annotations

import io
import itertools
import math
import struct
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from paraserve.tokenizers.exactness import CORPUS

CONTROL, USER_DEFINED = ["<|user|>", "<|reply|>"], ["<tool>", "\u2581\u2581", "   "]
LINES = [line for text in CORPUS for line in text.splitlines() if line.strip() and len(line) < 400]


def train(**changes: Any) -> bytes:
    """A tiny model, spelled as those of large models are."""
    options = {
        "vocab_size": 700,
        "byte_fallback": True,
        "add_dummy_prefix": True,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
        "control_symbols": CONTROL,
        "user_defined_symbols": USER_DEFINED,
    }
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **options | changes,
    )
    return model.getvalue()


_USER_DEFINED_TYPE = 4
_WIDTH, _INNER = 32, 64
_TENSORS = {
    "output_norm.weight": (_WIDTH,),
    "blk.0.attn_norm.weight": (_WIDTH,),
    "blk.0.attn_q.weight": (_WIDTH, _WIDTH),
    "blk.0.attn_k.weight": (_WIDTH, _WIDTH),
    "blk.0.attn_v.weight": (_WIDTH, _WIDTH),
    "blk.0.attn_output.weight": (_WIDTH, _WIDTH),
    "blk.0.ffn_norm.weight": (_WIDTH,),
    "blk.0.ffn_gate.weight": (_WIDTH, _INNER),
    "blk.0.ffn_up.weight": (_WIDTH, _INNER),
    "blk.0.ffn_down.weight": (_INNER, _WIDTH),
}


def llama_of(trained: bytes, **keys: Any) -> bytes:
    """A GGUF file: one layer of zeros, and the vocabulary as llama.cpp's converter writes it.

    ``keys`` replace those of the tokenizer, by the name behind ``tokenizer.ggml.``.
    """
    pieces = ModelProto.FromString(trained).pieces
    texts = [p.piece.replace("\u2581", " ") if p.type == _USER_DEFINED_TYPE else p.piece for p in pieces]
    tokenizer = {
        "model": "llama",
        "pre": "default",
        "tokens": texts,
        "scores": [float(piece.score) for piece in pieces],
        "token_type": [piece.type for piece in pieces],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 256,
        "llama.embedding_length": _WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": _INNER,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": len(pieces),
        **{f"tokenizer.ggml.{name}": value for name, value in (tokenizer | keys).items()},
    }
    tensors = {"token_embd.weight": (_WIDTH, len(pieces)), "output.weight": (_WIDTH, len(pieces)), **_TENSORS}
    sizes = [4 * math.prod(shape) for shape in tensors.values()]  # each a multiple of the alignment, 32
    offsets = itertools.accumulate(sizes, initial=0)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    for (name, shape), offset in zip(tensors.items(), offsets, strict=False):
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
    return head + bytes(-len(head) % 32) + bytes(sum(sizes))


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(content: Any) -> bytes:
    match content:
        case bool():
            return struct.pack("<I?", 7, content)
        case int():
            return struct.pack("<II", 4, content)
        case float():
            return struct.pack("<If", 6, content)
        case str():
            return struct.pack("<I", 8) + _text(content)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(map(_text, content))
        case [float(), *_]:
            return struct.pack(f"<IIQ{len(content)}f", 9, 6, len(content), *content)
    return struct.pack(f"<IIQ{len(content)}i", 9, 5, len(content), *content)
