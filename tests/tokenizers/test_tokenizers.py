"""Exactness of tokenizers: against references, against goldens, across threads, with the cache of segments."""

import base64
import json
import threading
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from paraserve.formats.spec import Format
from paraserve.generation.detokenize import reply_vocabulary
from paraserve.tokenizers import huggingface as hf_tokenizer
from paraserve.tokenizers import tiktoken as tiktoken_tokenizer
from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.exactness import CORPUS, first_difference, probe_texts
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer
from paraserve.tokenizers.tiktoken import MAX_RUN_CHARS, RankEncoder, TiktokenTokenizer, _cut

HUGGING_FACE = ("glm-4.5", "qwen3", "deepseek-v3.1", "llama-3.1")


@pytest.fixture(scope="module")
def small_json() -> str:
    """A byte-level BPE tokenizer trained here, with a special token and one that is only added."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([*CORPUS] * 2, trainer)
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.add_tokens(["<think>"])
    return tokenizer.to_str()


@pytest.fixture(scope="module")
def small(small_json: str) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(small_json, {"eos_token": "<|end|>"})


@pytest.fixture(scope="module")
def rank_file(tmp_path_factory) -> Path:
    """A tiny vocabulary of ranks: all bytes and some merges."""
    pieces = [bytes([byte]) for byte in range(256)]
    pieces += [b"he", b"ll", b"hell", b"hello", b" w", b" wo", b"rl", b"  ", "北".encode()[:2], "北".encode()]
    path = tmp_path_factory.mktemp("ranks") / "tiktoken.model"
    path.write_text("".join(f"{base64.b64encode(piece).decode()} {rank}\n" for rank, piece in enumerate(pieces)))
    return path


@pytest.fixture(scope="module")
def ranked(rank_file: Path) -> TiktokenTokenizer:
    end, tool = len(rank_file.read_text().splitlines()), len(rank_file.read_text().splitlines()) + 3
    tokens = {str(end): {"content": "[EOS]", "special": True}, str(tool): {"content": "<tool>", "special": False}}
    return TiktokenTokenizer(rank_file, {"added_tokens_decoder": tokens, "eos_token": "[EOS]"})


@given(st.text())
@settings(max_examples=150, deadline=None)
def test_text_comes_back_and_ids_are_the_references(small, small_json, text):
    ids = small.encode(text)
    assert ids == tokenizers.Tokenizer.from_str(small_json).encode(text, add_special_tokens=False).ids
    assert small.decode(ids) == text
    assert b"".join(map(small.token_bytes, ids)) == text.encode()


@given(st.lists(st.text(max_size=60), max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_growing_conversation_has_the_ids_of_the_whole_although_segments_are_cached(small, small_json, turns):
    reference = tokenizers.Tokenizer.from_str(small_json)
    text = ""
    for turn in turns:
        text += f"<|end|>{turn}<think>"
        assert small.encode(text) == reference.encode(text, add_special_tokens=False).ids


def test_the_fast_encoder_is_used_and_special_tokens_are_known(small):
    assert small.backend == "fastokens"
    assert small.special_ids == {small.added_tokens["<|end|>"]} == small.eos_token_ids
    assert small.encode("<think>") == [small.added_tokens["<think>"]]
    assert small.decode(small.encode("a<|end|>b<think>"), skip_special_tokens=True) == "ab<think>"
    with pytest.raises(ValueError, match="outside the vocabulary"):
        small.token_bytes(small.vocab_size)


def test_an_encoder_that_differs_on_one_text_is_not_used(small_json, monkeypatch, caplog):
    class Wrong(hf_tokenizer.FastEncoder):
        def encode(self, text, add_special_tokens):
            return super().encode(text, add_special_tokens)[:-1] if "北京" in text else super().encode(text, False)

    monkeypatch.setattr(hf_tokenizer, "FastEncoder", Wrong)
    tokenizer = HuggingFaceTokenizer(small_json)
    assert tokenizer.backend == "tokenizers"  # type: ignore[attr-defined]
    assert "differs from tokenizers" in caplog.text
    assert tokenizer.decode(tokenizer.encode("北京")) == "北京"


def test_a_model_that_fastokens_lacks_is_encoded_by_tokenizers(caplog):
    tokenizer = tokenizers.Tokenizer(
        models.Unigram([("<unk>", 0.0), ("\u2581", -1.0), ("a", -1.0), ("<0x0A>", -2.0)], 0)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    made = HuggingFaceTokenizer(tokenizer.to_str())
    assert made.backend == "tokenizers"
    assert "cannot read" in caplog.text
    assert made.token_bytes(1) == b" "
    assert made.token_bytes(3) == b"\n"


PREFIXES = {
    "every text": {"normalizer": {"type": "Prepend", "prepend": "\u2581"}},
    "every text, by cutting": {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"}},
    "every text, in an older spelling": {"pre_tokenizer": {"type": "Metaspace", "add_prefix_space": True}},
    "the first text": {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}},
    "none": {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}},
}
"""How files say what text gets a blank of the tokenizer's own in front."""


def blank_spelling(steps: dict) -> HuggingFaceTokenizer:
    """A vocabulary in SentencePiece's spelling, with a run of blanks as an added token, as in large models."""
    letters = {letter: number for number, letter in enumerate("\u2581abc<>/|d")}
    normalizers = [steps["normalizer"]] if "normalizer" in steps else []
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    cut = steps.get("pre_tokenizer")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    document = {
        "added_tokens": [
            {"id": 20, "content": "<|b|>", "special": True, **flags},
            {"id": 21, "content": "\u2581\u2581", "special": False, **flags},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [*normalizers, replaced]},
        "pre_tokenizer": cut and {**cut, "replacement": "\u2581", "split": False},
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {"type": "BPE", "vocab": letters | {"<|b|>": 20, "\u2581\u2581": 21}, "merges": []},
    }
    return HuggingFaceTokenizer(json.dumps(document), {"eos_token": "<|b|>"})


@pytest.mark.parametrize("kind", PREFIXES)
@pytest.mark.parametrize("text", ["ab", "ab c", "<|b|>ab", "ab<|b|>c<|b|>d", "<|b|>"])
def test_a_blank_that_the_tokenizer_puts_in_front_is_no_part_of_the_text(kind, text):
    tokenizer = blank_spelling(PREFIXES[kind])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    before, _, reply = text.partition("<|b|>")
    if reply:
        ids = tokenizer.encode(text)
        cut = ids.index(20) + 1
        detokenizer = reply_vocabulary(tokenizer, Format("plain")).detokenizer(False, before=20)
        assert detokenizer.feed(ids[cut:]) == reply
        assert tokenizer.decode(ids[:cut]) == f"{before}<|b|>"


@pytest.mark.parametrize("kind", [kind for kind in PREFIXES if kind != "none"])
def test_a_hidden_token_leaves_the_beginning_of_a_text_where_it_was(kind):
    tokenizer = blank_spelling(PREFIXES[kind])
    assert tokenizer.decode([20, *tokenizer.encode("ab")], skip_special_tokens=True) == "ab"


def test_blanks_that_are_an_added_token_are_blanks_in_text():
    assert blank_spelling(PREFIXES["none"]).token_bytes(21) == b"  "
    assert blank_spelling(PREFIXES["none"]).token_bytes(20) == b"<|b|>"


def test_tokens_that_only_the_config_names_are_added(small_json):
    count = HuggingFaceTokenizer(small_json).vocab_size
    config = {"added_tokens_decoder": {str(count): {"content": "<new>", "special": True}}}
    tokenizer = HuggingFaceTokenizer(small_json, config)
    assert tokenizer.encode("a<new>")[-1] == count
    assert count in tokenizer.special_ids


@pytest.mark.parametrize(("flag", "first"), [(True, True), (None, False)])
def test_the_config_says_whether_plain_text_gets_a_bos(small_json, flag, first):
    tokenizer = HuggingFaceTokenizer(small_json, {"bos_token": "<|end|>", "add_bos_token": flag})
    ids = tokenizer.encode("hi", add_special_tokens=True)
    assert (ids[0] == tokenizer.added_tokens["<|end|>"]) is first
    assert tokenizer.encode("hi")[0] != tokenizer.added_tokens["<|end|>"]


@pytest.mark.parametrize("text", ["nope", "{}", '{"model": {"vocab": {}}, "decoder": {"type": "WordPiece"}}'])
def test_a_file_that_is_no_tokenizer_is_named(text):
    with pytest.raises(CheckpointError, match=r"^mine"):
        HuggingFaceTokenizer(text, source="mine.json")


def test_one_tokenizer_serves_many_threads(small, small_json):
    reference = tokenizers.Tokenizer.from_str(small_json)
    texts = [text + f" {number} <|end|> {text}" for number, text in enumerate(CORPUS * 2)]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    wrong = []

    def work(offset):
        for step in range(len(texts)):
            place = (step + offset) % len(texts)
            ids = small.encode(texts[place], add_special_tokens=offset % 2 == 0)
            if ids != expected[place] or small.decode(ids, skip_special_tokens=False) != texts[place]:
                wrong.append(place)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@given(st.text())
@settings(max_examples=150, deadline=None)
def test_ranks_give_the_ids_of_plain_byte_pair_encoding(ranked, text):
    ids = ranked.encode(text)
    ranks = {ranked.token_bytes(number): number for number in range(266)}
    assert ids == RankEncoder(ranks, ranked.added_tokens).encode(text)
    assert ranked.decode(ids) == text


def test_rank_files_reserve_special_tokens(ranked):
    assert ranked.backend == "fastokens"
    assert ranked.vocab_size == 266 + 256
    assert ranked.encode("hello[EOS]<tool><|reserved_token_267|>") == [259, 266, 269, 267]
    assert 269 not in ranked.special_ids
    assert {266, 267} <= ranked.special_ids


def test_a_rank_encoder_that_differs_is_not_used(rank_file, monkeypatch):
    class Wrong(tiktoken_tokenizer.FastRankEncoder):
        def encode(self, text):
            return [*super().encode(text), 0]

    monkeypatch.setattr(tiktoken_tokenizer, "FastRankEncoder", Wrong)
    made = TiktokenTokenizer(rank_file, {})
    assert made.backend == "ranks"
    assert made.encode("hello") == [259]


@pytest.mark.parametrize("content", ["", "AA== 0\nAQ== 2\n", "!! 0\n", "AA==\n"])
def test_a_file_that_holds_no_ranks_is_refused(tmp_path, content):
    path = tmp_path / "tiktoken.model"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=r"tiktoken\.model"):
        TiktokenTokenizer(path, {})


def test_long_runs_are_cut_where_the_checkpoints_own_tokenizer_cuts_them():
    text = "a" * (2 * MAX_RUN_CHARS + 5) + " b"
    assert [len(piece) for piece in _cut(text)] == [MAX_RUN_CHARS, MAX_RUN_CHARS, 7]
    assert "".join(_cut(" " * 60_000 + "x" * 800_001)) == " " * 60_000 + "x" * 800_001
    assert list(_cut("short text")) == ["short text"]


@pytest.mark.heavy
@pytest.mark.parametrize("name", HUGGING_FACE)
def test_real_tokenizers_pass_the_check_and_match_the_goldens(name, shared_assets: Path):
    tokenizer = load_checkpoint(shared_assets / "tokenizers" / name).tokenizer
    assert tokenizer.backend == "fastokens"  # type: ignore[attr-defined]
    assert_goldens(name, tokenizer, shared_assets)


@pytest.mark.heavy
def test_kimis_tokenizer_matches_the_goldens(shared_assets: Path):
    tokenizer = load_checkpoint(shared_assets / "tokenizers" / "kimi-k2").tokenizer
    assert tokenizer.backend == "fastokens"  # type: ignore[attr-defined]
    assert tokenizer.vocab_size == 163_840
    assert_goldens("kimi-k2", tokenizer, shared_assets)


def assert_goldens(name, tokenizer, shared_assets):
    lines = (shared_assets / "examples.jsonl").read_text().splitlines()
    goldens = [example for example in map(json.loads, lines) if example.get("tokenizer") == name]
    assert goldens
    for example in goldens:
        assert tokenizer.encode(example["raw"]) == example["ids"]
        assert tokenizer.decode(example["ids"]) == example["raw"]


def test_a_hundred_thousand_tokens_come_back_as_the_text_they_were(small):
    text = "".join(f"word{number} 北京 <|end|>\n" for number in range(20_000))
    ids = small.encode(text)
    assert len(ids) > 100_000
    assert small.decode(ids) == text


def test_the_corpus_finds_a_difference():
    assert (
        first_difference(lambda text: [len(text)], lambda text: [len(text.encode())], probe_texts(["<x>"])) is not None
    )
    assert first_difference(lambda text: [1], lambda text: [1], CORPUS) is None
