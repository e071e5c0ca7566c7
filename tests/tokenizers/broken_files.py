"""Checkpoints that are broken, by a seed: small ones of every kind of tokenizer, one of whose files is changed."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
from tokenizers import decoders, models, pre_tokenizers

from tests.fuzz import changed, damaged
from tests.tokenizers.test_gguf_reader import FILE, gguf
from tests.toy import TEMPLATE

Files = dict[str, Any]
"""What a checkpoint's directory holds: bytes, or what is written as JSON."""

CONFIG = {
    "bos_token": "<s>",
    "eos_token": {"content": "</s>"},
    "additional_special_tokens": ["<|end|>"],
    "added_tokens_decoder": {"257": {"content": "<s>", "special": True}, "260": {"content": "<new>", "lstrip": False}},
    "add_bos_token": True,
    "chat_template": TEMPLATE,
    "response_template": {
        "version": 1,
        "start_anchor": "<|assistant|>",
        "fields": {
            "content": {"close": "<|end|>"},
            "thinking": {"open": "<think>", "close": "</think>"},
            "tool_calls": {
                "open_pattern": "<call>(?P<name>\\w+)",
                "close": "</call>",
                "content": "json",
                "content_args": {"allow_non_json": False},
                "repeats": True,
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
        },
    },
}
MODEL: Files = {
    "config.json": {
        "max_position_embeddings": 4096,
        "eos_token_id": 257,
        "text_config": {"max_position_embeddings": 1, "eos_token_id": [3]},
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    },
    "generation_config.json": {"temperature": 0.7, "top_k": 20, "eos_token_id": [258, 257], "do_sample": True},
}


def _hugging_face() -> Files:
    letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = tokenizers.Tokenizer(models.BPE(letters | {"he": 256}, [("h", "e")]))
    words = pre_tokenizers.Split(tokenizers.Regex(r"\s+(?!\S)|\p{L}+"), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>", "</s>", "<|end|>"])
    return MODEL | {"tokenizer_config.json": CONFIG, "tokenizer.json": json.loads(made.to_str())}


def _tekken() -> Files:
    vocabulary = [{"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode()} for byte in range(256)]
    specials = [{"rank": number, "token_str": text} for number, text in enumerate(("<unk>", "<s>", "</s>"))]
    config = {"pattern": r"\p{L}+|\p{N}|\s+|.", "default_vocab_size": 266, "default_num_special_tokens": 10}
    return MODEL | {"tekken.json": {"config": config, "vocab": vocabulary, "special_tokens": specials}}


def _ranks() -> Files:
    lines = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))
    return MODEL | {"tokenizer_config.json": CONFIG, "tiktoken.model": lines}


def _sentencepiece() -> Files:
    model = ModelProto()
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback = 2, True
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = 0, 1, 2, -1
    normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces = True, False, True
    for text, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3), *((f"<0x{byte:02X}>", 6) for byte in range(256))):
        model.pieces.add(piece=text, score=0, type=kind)
    for place, text in enumerate(["▁", "a", "b", "c", "ab", "abc", "h", "e", "he", "▁h"]):
        model.pieces.add(piece=text, score=-place, type=1)
    added = {"1": {"content": "<s>", "special": True}, "300": {"content": "<new>"}}
    config = {"bos_token": "<s>", "added_tokens_decoder": added, "chat_template": TEMPLATE}
    return MODEL | {"tokenizer_config.json": config, "tokenizer.model": model.SerializeToString()}


def _of_gguf() -> Files:
    return {"model.gguf": FILE | {"tokenizer.chat_template": TEMPLATE}}


KINDS: dict[str, Callable[[], Files]] = {
    "tokenizer.json": _hugging_face,
    "tekken.json": _tekken,
    "tiktoken.model": _ranks,
    "tokenizer.model": _sentencepiece,
    "model.gguf": _of_gguf,
}


def broken(kind: str, seed: int, directory: Path) -> Path:
    """The checkpoint to load. One in ten is whole."""
    lot = random.Random(f"{kind} {seed}")
    files = KINDS[kind]()
    target = lot.choice([*files, kind, kind, *(["tokenizer_config.json"] if "tokenizer_config.json" in files else [])])
    for name, content in files.items():
        wrong = name == target and lot.random() < 0.9
        data = _encoded(name, changed(content, lot) if wrong and not isinstance(content, bytes) else content)
        (directory / name).write_bytes(
            damaged(data, lot) if wrong and (data is content or lot.random() < 0.2) else data
        )
    return directory / kind if kind.endswith(".gguf") else directory


def _encoded(name: str, content: Any) -> bytes:
    if isinstance(content, bytes):
        return content
    if not name.endswith(".gguf"):
        return json.dumps(content).encode()
    try:
        return gguf(content)
    except (TypeError, struct.error, AttributeError, UnicodeEncodeError):  # a value that the format has no kind for
        return gguf(FILE)
