"""`tekken.json`: special tokens first, ranks after them, the file's own pattern."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.tekken import TekkenTokenizer

SPECIALS = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
PIECES = [*(bytes([byte]) for byte in range(256)), b"he", b"ll", b"hell", b"hello", b" w", b" wo", b"12", b"unused"]
COUNT = 8
"""Special ids: the five named ones, and three that have a place only."""


def tekken(**changes) -> dict:
    config = {"pattern": r"\p{N}| ?[^\s\p{N}]+|\s+", "default_num_special_tokens": COUNT, "version": "v11"}
    config["default_vocab_size"] = COUNT + len(PIECES) - 1
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(piece).decode()} for rank, piece in enumerate(PIECES)]
    specials = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(SPECIALS)]
    return {"config": config, "vocab": vocab, "special_tokens": specials} | changes


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tekken")
    (directory / "tekken.json").write_text(json.dumps(tekken()))
    return directory


@pytest.fixture(scope="module")
def tokenizer(directory) -> TekkenTokenizer:
    return TekkenTokenizer(directory / "tekken.json")


def test_ids_of_the_vocabulary_come_after_all_special_ids(tokenizer):
    hello, world = (COUNT + PIECES.index(piece) for piece in (b"hello", b" wo"))
    assert tokenizer.backend == "fastokens"
    assert tokenizer.encode("[INST]hello wo[/INST]") == [3, hello, world, 4]
    assert tokenizer.encode("hello", add_special_tokens=True) == [1, hello]
    assert tokenizer.encode("<s>hello", add_special_tokens=True) == [1, hello]
    assert tokenizer.token_bytes(hello) == b"hello"
    assert tokenizer.token_bytes(7) == b"<SPECIAL_7>"
    assert tokenizer.special_ids == set(range(COUNT))
    assert tokenizer.eos_token_ids == {2}


def test_the_files_own_pattern_cuts_the_text(tokenizer):
    assert tokenizer.encode("12") == [COUNT + ord("1"), COUNT + ord("2")]


def test_entries_past_the_models_vocabulary_are_not_used(tokenizer):
    assert tokenizer.vocab_size == COUNT + len(PIECES) - 1
    assert len(tokenizer.encode("unused")) == len("unused")


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("version", ["v3", "v7"])
def test_a_file_that_lists_no_special_tokens_has_those_of_its_time(tmp_path, version):
    file = tekken(special_tokens=None)
    file["config"] |= {"version": version, "default_num_special_tokens": 30, "default_vocab_size": 30 + len(PIECES)}
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    tokenizer = TekkenTokenizer(tmp_path / "tekken.json")
    assert tokenizer.encode("[TOOL_CALLS][/SYSTEM_PROMPT]<SPECIAL_29>") == [9, 18, 29]


@pytest.mark.parametrize("version", ["v11", "v13", "v99", None])
def test_a_later_file_that_lists_no_special_tokens_is_refused(tmp_path, version):
    file = tekken(special_tokens=None)
    file["config"]["version"] = version
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    with pytest.raises(CheckpointError, match=f"version {version} has to list its special tokens"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_with_tekken_alone_loads(directory):
    checkpoint = load_checkpoint(directory)
    assert checkpoint.special_tokens["bos_token"] == "<s>"
    assert checkpoint.eos_token_ids == {2}


@pytest.mark.parametrize("file", ["{", "{}", json.dumps(tekken(vocab=[])), json.dumps(tekken(special_tokens=[{}]))])
def test_a_broken_file_is_named(tmp_path, file):
    (tmp_path / "tekken.json").write_text(file)
    with pytest.raises(CheckpointError, match=r"tekken\.json cannot be read: "):
        load_checkpoint(tmp_path)
