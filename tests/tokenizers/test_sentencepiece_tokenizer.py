"""SentencePiece checkpoints: the ids of `sentencepiece`, added tokens as files put them, text that comes back."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from paraserve.formats.spec import Format
from paraserve.generation.detokenize import reply_vocabulary
from paraserve.tokenizers import sentencepiece as sentencepiece_tokenizer
from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.exactness import CORPUS
from paraserve.tokenizers.sentencepiece import SentencePieceTokenizer
from tests.fakes.sentencepiece_models import CONTROL, LINES, USER_DEFINED, train

MODELS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe"},
    "bpe without symbols": {"model_type": "bpe", "control_symbols": [], "user_defined_symbols": []},
    "bpe without prefix": {"model_type": "bpe", "add_dummy_prefix": False},
    "bpe that drops blanks": {"model_type": "bpe", "remove_extra_whitespaces": True},
    "bpe that normalizes": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc"},
    "bpe without bytes": {"model_type": "bpe", "byte_fallback": False},
    "unigram": {"model_type": "unigram"},
    "unigram without prefix": {"model_type": "unigram", "add_dummy_prefix": False},
    "unigram of defaults": {
        "model_type": "unigram",
        "normalization_rule_name": "nmt_nfkc",
        "remove_extra_whitespaces": True,
        "byte_fallback": False,
    },
}
EXACT = ["bpe", "bpe without symbols", "bpe without prefix", "unigram", "unigram without prefix"]
"""Models that lose no character of a text."""


@pytest.fixture(scope="module")
def models() -> dict[str, bytes]:
    return {name: train(**changes) for name, changes in MODELS.items()}


@pytest.fixture(scope="module")
def loaded(models, tmp_path_factory) -> dict[tuple[str, bool], SentencePieceTokenizer]:
    made = {}
    for (name, model), legacy in itertools.product(models.items(), (True, False)):
        directory = checkpoint(tmp_path_factory.mktemp("sentencepiece"), model, legacy=legacy)
        made[name, legacy] = SentencePieceTokenizer(directory / "tokenizer.model")
    return made


def checkpoint(directory: Path, model: bytes, name: str = "tokenizer.model", **config: Any) -> Path:
    (directory / name).write_bytes(model)
    if config:
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def reference(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


TEXT = st.one_of(st.text(max_size=40), st.text("ab <>▁\n|tol", max_size=40), st.sampled_from(LINES))
SPELLED = ("<s>", "</s>", "<unk>", *CONTROL)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_text_has_the_ids_of_sentencepiece(models, loaded, name, legacy):
    tokenizer, expected = loaded[name, legacy], reference(models[name])

    @settings(max_examples=60)
    @given(TEXT)
    def holds(text):
        if not any(token in text for token in SPELLED):
            assert tokenizer.encode(text) == expected.encode(text)

    holds()
    assert all(tokenizer.encode(text) == expected.encode(text) for text in CORPUS if "<s>" not in text)
    assert tokenizer.vocab_size == expected.get_piece_size()


@pytest.mark.parametrize("name", MODELS)
def test_with_legacy_every_text_between_tokens_is_encoded_on_its_own(models, loaded, name):
    tokenizer, expected = loaded[name, True], reference(models[name])

    @settings(max_examples=40)
    @given(st.lists(TEXT, max_size=5))
    def holds(texts):
        texts = [text for text in texts if not any(token in text for token in SPELLED)]
        ids = [token for text in texts for token in (2, *expected.encode(text))]
        assert tokenizer.encode("</s>".join(texts)) == ids[1:]

    holds()


@pytest.mark.parametrize("name", MODELS)
def test_without_legacy_only_the_first_text_has_a_prefix(models, loaded, name):
    tokenizer, expected = loaded[name, False], reference(models[name])
    first, second = expected.encode("hello"), expected.encode("quick fox")
    assert tokenizer.encode("hello</s>quick fox")[: len(first) + 1] == [*first, 2]
    later = tokenizer.encode("</s>quick fox")[1:]
    assert tokenizer.encode("hello</s>quick fox") == [*first, 2, *later]
    spelled = "".join(expected.id_to_piece(number) for number in later)
    assert spelled == "quick\u2581fox"
    assert (later == second) is ("without prefix" in name)


@pytest.mark.parametrize("name", ["bpe", "bpe that drops blanks", "unigram of defaults"])
def test_without_legacy_a_blank_behind_a_token_is_one_blank(models, loaded, name):
    expected = reference(models[name])
    assert loaded[name, False].encode("</s> quick fox")[1:] == expected.encode("quick fox")


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", EXACT)
def test_text_and_tokens_come_back(loaded, name, legacy):
    tokenizer = loaded[name, legacy]

    @settings(max_examples=60)
    @given(st.lists(st.one_of(TEXT, st.sampled_from([*CONTROL, *USER_DEFINED, "</s>", " "])), max_size=6))
    def holds(parts):
        text = "".join(parts).replace("\u2581", " ")
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=True)) in ("<s>" + text, text, "<s> " + text)

    holds()
    assert tokenizer.decode(tokenizer.encode("hi", add_special_tokens=True), skip_special_tokens=True) == "hi"


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", EXACT)
def test_a_reply_has_the_blanks_of_its_text_and_no_others(loaded, name, legacy):
    """Whatever the prompt ends with: a model is trained on the ids of the whole conversation."""
    tokenizer = loaded[name, legacy]
    vocabulary = reply_vocabulary(tokenizer, Format("plain"))

    @settings(max_examples=60)
    @given(st.sampled_from(["<|reply|>", "hello <|reply|>", "a\n"]), st.lists(TEXT, min_size=1, max_size=3))
    def holds(prompt, parts):
        reply = CONTROL[0].join(part.replace("\u2581", " ") for part in parts)
        whole, before = tokenizer.encode(prompt + reply), tokenizer.encode(prompt)
        if whole[: len(before)] == before:
            detokenizer = vocabulary.detokenizer(False, before=before[-1])
            assert "".join(detokenizer.feed([token]) for token in whole[len(before) :]) + detokenizer.finish() == reply

    holds()


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("name", ["bpe", "bpe without prefix", "bpe without symbols"])
def test_ids_are_those_of_transformers_where_it_reads_such_a_model(models, loaded, tmp_path, name, legacy):
    checkpoint(tmp_path, models[name], legacy=legacy)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path, local_files_only=True)
    ours = loaded[name, legacy]
    for text in (*LINES, *("a<|user|>b</s>c <s>d".join(pair) for pair in itertools.pairwise(LINES))):
        if not text.startswith(" ") and "<|user|> " not in text:
            assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_a_model_of_byte_pairs_is_encoded_by_fastokens_and_others_by_sentencepiece(loaded):
    fast = {name for (name, _), tokenizer in loaded.items() if tokenizer.backend == "fastokens"}
    assert fast == {"bpe", "bpe without symbols", "bpe without prefix", "bpe without bytes"}
    assert {tokenizer.backend for tokenizer in loaded.values()} == {"fastokens", "sentencepiece"}


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_one_tokenizer_serves_many_threads(models, loaded, name):
    tokenizer, expected = loaded[name, True], reference(models[name])
    texts = [f"{number} {line}" for number, line in enumerate(LINES * 4) if "<s>" not in line]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(tokenizer.encode, texts))
    assert found == [expected.encode(text) for text in texts]


def test_a_fast_encoder_that_differs_is_not_used(models, tmp_path, monkeypatch, caplog):
    right = sentencepiece_tokenizer.byte_pair_document  # type: ignore[attr-defined]

    def wrong(*args, **options):
        document = right(*args, **options)
        document["model"]["merges"] = document["model"]["merges"][1:]
        return document

    monkeypatch.setattr(sentencepiece_tokenizer, "byte_pair_document", wrong)
    tokenizer = SentencePieceTokenizer(checkpoint(tmp_path, models["bpe"]) / "tokenizer.model")
    assert tokenizer.backend == "sentencepiece"
    assert "fastokens differs from sentencepiece on" in caplog.text
    assert tokenizer.encode("hello") == reference(models["bpe"]).encode("hello")


def test_blanks_that_are_a_symbol_of_their_own_are_blanks_in_text(loaded):
    tokenizer = loaded["bpe", True]
    assert tokenizer.token_bytes(tokenizer.encode("a   b")[1]) == b"  "
    assert tokenizer.decode(tokenizer.encode("a   b")) == "a   b"


@pytest.mark.parametrize("legacy", [True, False])
def test_tokens_that_the_config_adds_are_matched_with_their_flags(models, tmp_path, legacy):
    model = models["bpe"]
    size = reference(model).get_piece_size()
    tokens = {
        str(size): {"content": "<|end|>", "special": True, "rstrip": True},
        str(size + 1): {"content": "<think>", "special": False},
        str(size + 2): {"content": "word", "special": False, "single_word": True, "lstrip": True},
    }
    config = {"legacy": legacy, "added_tokens_decoder": tokens, "eos_token": "<|end|>", "bos_token": None}
    made = load_checkpoint(checkpoint(tmp_path, model, **config))
    tokenizer = made.tokenizer
    assert tokenizer.vocab_size == size + 3
    assert tokenizer.eos_token_ids == {size} == made.eos_token_ids
    assert size in tokenizer.special_ids
    assert size + 1 not in tokenizer.special_ids
    assert made.special_tokens == {"eos_token": "<|end|>", "unk_token": "<unk>"}
    assert tokenizer.encode("<|end|> \n<think>") == [size, size + 1]
    assert tokenizer.encode("a  word") == [*reference(model).encode("a"), size + 2]
    assert size + 2 not in tokenizer.encode("a swords")
    assert tokenizer.encode("a", add_special_tokens=True) == tokenizer.encode("a")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path, local_files_only=True)
    assert {text: tokenizer.added_tokens[text] for text in ("<|end|>", "<think>", "word", *CONTROL)} == {
        text: theirs.convert_tokens_to_ids(text) for text in ("<|end|>", "<think>", "word", *CONTROL)
    }


def test_older_checkpoints_name_them_in_two_files(models, tmp_path):
    size = reference(models["bpe"]).get_piece_size()
    checkpoint(tmp_path, models["bpe"], bos_token="<s>", add_eos_token=True)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|end|>": size, "<think>": size + 1}))
    special = {"eos_token": {"content": "<|end|>", "lstrip": True}, "additional_special_tokens": ["<tool>"]}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(special))
    tokenizer = SentencePieceTokenizer(tmp_path / "tokenizer.model")
    assert tokenizer.special_ids >= {size, tokenizer.added_tokens["<tool>"], 1}
    assert size + 1 not in tokenizer.special_ids
    assert tokenizer.encode("a", add_special_tokens=True) == [1, *tokenizer.encode("a"), size]
    assert tokenizer.encode("<s>a<|end|>", add_special_tokens=True) == [1, *tokenizer.encode("a"), size]


@pytest.mark.parametrize(("flag", "first"), [(None, 1), (True, 1), (False, None)])
def test_the_config_says_whether_plain_text_gets_a_bos(models, tmp_path, flag, first):
    config = {} if flag is None else {"add_bos_token": flag}
    tokenizer = SentencePieceTokenizer(checkpoint(tmp_path, models["bpe"], **config) / "tokenizer.model")
    plain = tokenizer.encode("hello")
    assert tokenizer.encode("hello", add_special_tokens=True) == ([first] if first else []) + plain


def test_a_placeholder_takes_the_name_that_the_config_gives_it(models, tmp_path):
    place = reference(models["bpe"]).piece_to_id("<|user|>")
    checkpoint(tmp_path, models["bpe"], added_tokens_decoder={str(place): {"content": "<|new|>", "special": True}})
    tokenizer = SentencePieceTokenizer(tmp_path / "tokenizer.model")
    assert tokenizer.encode("<|new|>") == [place]
    assert tokenizer.token_bytes(place) == b"<|new|>"
    assert place not in tokenizer.encode("<|user|>")


def test_mistrals_spelling_of_the_file_is_found(models, tmp_path):
    made = load_checkpoint(checkpoint(tmp_path, models["bpe"], "tokenizer.model.v3"))
    assert made.tokenizer.encode("hello") == reference(models["bpe"]).encode("hello")
    assert made.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "code of the checkpoint": ({"auto_map": {"AutoTokenizer": ["tokenization.Own", None]}}, "Python code"),
    "another class": ({"tokenizer_class": "XLMRobertaTokenizer"}, "XLMRobertaTokenizer, whose ids"),
    "contrary prefix": ({"add_prefix_space": False}, "add_prefix_space is false"),
    "contrary id": ({"added_tokens_decoder": {"9": {"content": "<s>"}}}, "'<s>' has the id 9"),
    "name of a piece": ({"added_tokens_decoder": {"650": {"content": "<|x|>"}}}, r"'<\|x\|>' has the id 650"),
    "no id": ({"eos_token": "<|nowhere|>"}, r"'<\|nowhere\|>' has an id in no file"),
    "one id twice": ({"eos_token": "<|a|>", "added_tokens_decoder": {}}, "in no file"),
    "odd added tokens": (
        {"added_tokens_decoder": {"x": {}}},
        r"tokenizer_config\.json cannot be read: .*added_tokens_decoder",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_for_sure_is_refused(models, tmp_path, case):
    config, message = REFUSED[case]
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(checkpoint(tmp_path, models["bpe"], **config))


@pytest.mark.parametrize("content", [b"", b"IQ== 0\nIg== 1\n", b"\x0a\x05"])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    with pytest.raises(CheckpointError, match=r"tokenizer\.model is no SentencePiece model"):
        load_checkpoint(checkpoint(tmp_path, content))


def test_a_model_of_words_is_refused(tmp_path):
    model = train(model_type="word", byte_fallback=False, vocab_size=300)
    with pytest.raises(CheckpointError, match="neither BPE nor Unigram"):
        load_checkpoint(checkpoint(tmp_path, model))


def test_without_the_package_the_extra_to_install_is_named(models, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(CheckpointError, match=r"pip install 'paraserve\[sentencepiece\]'"):
        load_checkpoint(checkpoint(tmp_path, models["bpe"]))


def test_neither_package_is_imported_for_checkpoints_that_do_not_need_it(tmp_path):
    code = (
        "import sys, paraserve.deploy, paraserve.serving.server\n"
        "print(sorted({'sentencepiece', 'transformers', 'google', 'mistral_common', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
