"""`vocab.json` and `merges.txt`: what `transformers` makes of them, held to the files and to `transformers` itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.exactness import CORPUS
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A byte-level vocabulary trained here, saved as its two files."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    directory = tmp_path_factory.mktemp("vocabulary")
    trained.model.save(str(directory))
    return directory


def checkpoint(files: Path, directory: Path, **config: Any) -> Path:
    for name in ("vocab.json", "merges.txt"):
        (directory / name).write_bytes((files / name).read_bytes())
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"} | config))
    return directory


def test_ids_are_those_of_transformers_and_of_the_file(files, tmp_path):
    size = len(json.loads((files / "vocab.json").read_text()))
    tokens = {
        str(size): {"content": "<|endoftext|>", "special": True},
        str(size + 1): {"content": "<think>", "special": False},
    }
    directory = checkpoint(files, tmp_path, added_tokens_decoder=tokens, eos_token="<|endoftext|>")
    made = load_checkpoint(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
    for text in (*CORPUS, "a<think>b<|endoftext|> 12"):
        assert made.tokenizer.encode(text) == theirs.encode(text)
        assert made.tokenizer.decode(made.tokenizer.encode(text)) == theirs.decode(theirs.encode(text))
    assert made.tokenizer.encode("<think>") == [size + 1]
    assert made.eos_token_ids == {size}
    assert made.special_tokens["eos_token"] == "<|endoftext|>"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["qwen3"])
def test_a_real_vocabulary_has_the_ids_of_its_own_tokenizer_json(shared_assets, tmp_path, name):
    source = shared_assets / "tokenizers" / name
    model = json.loads((source / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    config = (source / "tokenizer_config.json").read_text()
    (tmp_path / "tokenizer_config.json").write_text(config)
    made, original = load_checkpoint(tmp_path).tokenizer, load_checkpoint(source).tokenizer
    assert made.added_tokens == original.added_tokens
    assert all(made.encode(text) == original.encode(text) for text in (*CORPUS, *original.added_tokens))


def test_an_id_that_comes_out_another_stops_the_start(files, tmp_path, monkeypatch):
    load = transformers.AutoTokenizer.from_pretrained

    def shifted(directory, **options):
        vocabulary = json.loads((directory / "vocab.json").read_text())
        moved = {text: number + 1 for text, number in vocabulary.items()}
        (directory / "vocab.json").write_text(json.dumps(moved))
        return load(directory, **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", shifted)
    with pytest.raises(CheckpointError, match="another id than"):
        load_checkpoint(checkpoint(files, tmp_path))


def test_text_that_comes_out_otherwise_than_in_transformers_stops_the_start(files, tmp_path, monkeypatch):
    encode = HuggingFaceTokenizer.encode

    def wrong(self, text, *, add_special_tokens=False):
        return encode(self, text.replace("12,345", "12"), add_special_tokens=add_special_tokens)

    monkeypatch.setattr(HuggingFaceTokenizer, "encode", wrong)
    with pytest.raises(CheckpointError, match=r"differ from those of transformers on .The quick"):
        load_checkpoint(checkpoint(files, tmp_path))


@pytest.mark.parametrize("config", [{"tokenizer_class": "NoSuchTokenizer"}, {"tokenizer_class": "T5Tokenizer"}])
def test_what_transformers_cannot_read_is_one_line(files, tmp_path, config):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(checkpoint(files, tmp_path, **config))
    assert "\n" not in str(caught.value)


def test_without_the_package_the_extra_to_install_is_named(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(CheckpointError, match=r"pip install 'paraserve\[transformers\]'"):
        load_checkpoint(checkpoint(files, tmp_path))
