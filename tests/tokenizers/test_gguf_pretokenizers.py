"""The table of pre-tokenizers, against the tokenizer files that the vocabularies come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.exactness import CORPUS
from paraserve.tokenizers.gguf import gguf_tokenizer
from paraserve.tokenizers.gguf_pretokenizers import PRE_TOKENIZERS

CONVERTED = {"deepseek-v3.1": "deepseek-v3", "glm-4.5": "glm4", "llama-3.1": "llama-bpe", "qwen3": "qwen2"}
"""Directories of the shared tokenizers, and the name that a converter writes for them."""


def as_gguf_metadata(document: dict[str, Any], pre: str) -> dict[str, Any]:
    """The keys that a converter writes for a byte-pair ``tokenizer.json``."""
    vocabulary: dict[str, int] = document["model"]["vocab"]
    added = {token["id"]: token for token in document["added_tokens"]}
    size = max([*vocabulary.values(), *added]) + 1
    tokens, types = [f"[PAD{number}]" for number in range(size)], [5] * size
    for text, number in vocabulary.items():
        tokens[number], types[number] = text, 1
    for number, token in added.items():
        tokens[number], types[number] = token["content"], 3 if token["special"] else 4
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }


@pytest.mark.heavy
@pytest.mark.parametrize(("directory", "pre"), CONVERTED.items())
def test_a_converted_vocabulary_gives_the_ids_of_its_checkpoint(shared_assets: Path, directory: str, pre: str) -> None:
    source = shared_assets / "tokenizers" / directory
    document = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    original = load_checkpoint(source).tokenizer
    rebuilt = gguf_tokenizer(Path("model.gguf"), as_gguf_metadata(document, pre))
    # GGUF knows no normalizer, and neither does llama.cpp: texts that one changes are read as they are.
    normal = document.get("normalizer") or {}
    texts = [text for text in CORPUS if normal.get("type") != "NFC" or _is_nfc(text)]
    assert len(texts) > 20
    for text in texts:
        assert rebuilt.encode(text) == original.encode(text), text
        assert rebuilt.decode(rebuilt.encode(text)) == text


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pattern_compiles_and_loses_nothing(pre: str) -> None:
    alphabet = [chr(code) for code in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]]
    alphabet += [chr(0x100 + place) for place in range(256 - len(alphabet))]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": alphabet,
        "tokenizer.ggml.token_type": [1] * len(alphabet),
        "tokenizer.ggml.merges": [],
    }
    tokenizer = gguf_tokenizer(Path("model.gguf"), metadata)
    for text in CORPUS:
        ids = tokenizer.encode(text)
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def _is_nfc(text: str) -> bool:
    import unicodedata

    return unicodedata.is_normalized("NFC", text)
