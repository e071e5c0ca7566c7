"""The GGUF header: what it says comes out, and a file that is none is told apart."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.gguf import gguf_model, gguf_tokenizer, read_gguf_metadata


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(content: Any) -> bytes:
    match content:
        case bool():
            return struct.pack("<I?", 7, content)
        case int():
            return struct.pack("<Iq", 11, content)
        case float():
            return struct.pack("<If", 6, content)
        case str():
            return struct.pack("<I", 8) + text(content)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(content)) + b"".join(map(text, content))
        case list():
            return struct.pack(f"<IIQ{len(content)}i", 9, 5, len(content), *content)
    raise TypeError(content)


def gguf(pairs: dict[str, Any], version: int = 3) -> bytes:
    body = b"".join(text(key) + value(content) for key, content in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + body


def byte_alphabet() -> list[str]:
    """One entry for every byte, as byte-level BPE spells them (entry i is not byte i)."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*map(chr, own), *(chr(0x100 + place) for place in range(256 - len(own)))]


TOKENS = [*byte_alphabet(), "he", "Ġh", "<|end|>", "<tool>"]
HE, BLANK_H, END, TOOL = 256, 257, 258, 259
FILE: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 64,
    "llama.rope.freq_base": 0.5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "llama-bpe",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [1] * 258 + [3, 4],
    "tokenizer.ggml.merges": ["h e", "Ġ h"],
    "tokenizer.ggml.bos_token_id": END,
    "tokenizer.ggml.eos_token_id": END,
    "tokenizer.ggml.eot_token_id": TOOL,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.chat_template.tool_use": "{{ tools }}",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(gguf(FILE))
    return file


@pytest.mark.parametrize("version", [2, 3])
def test_every_key_comes_out_with_its_type(tmp_path: Path, version: int) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(FILE, version) + b"tensors follow")
    assert read_gguf_metadata(file) == FILE


def test_the_facts_of_the_model_are_named(path: Path) -> None:
    model = gguf_model(path)
    assert (model.name, model.context_length, model.eos_token_ids) == ("Tiny", 64, frozenset({END, TOOL}))
    assert model.chat_templates == {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    assert model.special_tokens == {"bos_token": "<|end|>", "eos_token": "<|end|>"}


def test_what_no_key_states_is_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "bare.gguf"
    file.write_bytes(gguf({"general.architecture": "llama"}))
    model = gguf_model(file)
    assert (model.name, model.context_length, model.eos_token_ids) == ("bare", None, frozenset())
    assert model.chat_templates == {}


def test_the_tokenizer_merges_matches_added_tokens_whole_and_knows_bytes(path: Path) -> None:
    tokenizer = gguf_tokenizer(path)
    plain = {letter: TOKENS.index(letter) for letter in "elo"}
    hello = [HE, plain["l"], plain["l"], plain["o"]]
    assert tokenizer.encode("hello ho<tool><|end|>") == [*hello, BLANK_H, plain["o"], TOOL, END]
    assert tokenizer.encode(" he") == [TOKENS.index("Ġ"), HE], "the earlier merge comes first"
    assert tokenizer.encode("he", add_special_tokens=True) == [END, HE]
    assert tokenizer.token_bytes(BLANK_H) == b" h"
    assert tokenizer.special_ids == {END}
    assert tokenizer.added_tokens == {"<|end|>": END, "<tool>": TOOL}
    assert tokenizer.decode([BLANK_H, plain["e"], END, TOOL], skip_special_tokens=True) == " he<tool>"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tokenizer.ggml.model": "llama"}, "'llama'"),
        ({"tokenizer.ggml.model": "t5"}, "'t5'"),
        ({"tokenizer.ggml.pre": "kimi-k2"}, "'kimi-k2'"),
        ({"tokenizer.ggml.pre": "default"}, "'default'"),
    ],
)
def test_a_vocabulary_that_cannot_be_rebuilt_is_refused_with_what_to_do(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    file = tmp_path / "other.gguf"
    file.write_bytes(gguf(FILE | changes))
    with pytest.raises(CheckpointError, match=told) as caught:
        gguf_tokenizer(file)
    assert "--tokenizer-path" in str(caught.value)


def test_a_file_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    file = tmp_path / "none.gguf"
    file.write_bytes(gguf({"general.architecture": "llama"}))
    with pytest.raises(CheckpointError, match="no tokenizer"):
        gguf_tokenizer(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGU",
        b"PK\x03\x04 something else",
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0),
        b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**50),
    ],
)
def test_a_file_that_is_no_gguf_is_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_gguf_metadata(file)
    assert "bad.gguf" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_cut_anywhere_is_told_and_never_read_as_less(tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    whole = gguf(FILE)
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            read_gguf_metadata(file)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_gguf_metadata(tmp_path / "none.gguf")
