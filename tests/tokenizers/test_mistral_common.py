"""Both kinds of files that Mistral ships, against `mistral-common` on the files that it carries itself."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import mistral_common
import pytest
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer as TheirSentencePiece
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from paraserve.tokenizers.base import Tokenizer
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.exactness import CORPUS

DATA = Path(mistral_common.__file__).parent / "data"
MODELS = sorted(path.name for path in DATA.glob("*.model.v*"))
TEKKEN = sorted(path.name for path in DATA.glob("tekken_*.json"))


def texts(tokenizer: Tokenizer) -> list[str]:
    """Plain text alone: what spells a special token means it here, and is text to `mistral-common`."""
    rng, letters = random.Random(7), "".join(CORPUS)
    mixed = ["".join(rng.choice(letters) for _ in range(rng.randint(1, 120))) for _ in range(400)]
    cuts = [letters[place : place + 200] for place in range(0, len(letters), 50)]
    return [text for text in (*CORPUS, *mixed, *cuts) if not any(token in text for token in tokenizer.added_tokens)]


def test_both_kinds_are_there():
    assert len(MODELS) >= 4
    assert len(TEKKEN) >= 2


@pytest.mark.heavy
@pytest.mark.parametrize("name", MODELS)
def test_sentencepiece_files_have_its_ids(tmp_path, name):
    shutil.copy(DATA / name, tmp_path / "tokenizer.model.v3")
    ours, theirs = load_checkpoint(tmp_path).tokenizer, TheirSentencePiece(str(DATA / name))
    assert ours.backend == "fastokens"  # type: ignore[attr-defined]
    assert (ours.vocab_size, ours.bos_token, ours.eos_token_ids) == (theirs.n_words, "<s>", {theirs.eos_id})
    for text in texts(ours):
        assert ours.encode(text, add_special_tokens=True) == theirs.encode(text, bos=True, eos=False)
        assert ours.decode(ours.encode(text)) == text.replace("\u2581", " ")


@pytest.mark.heavy
@pytest.mark.parametrize("name", TEKKEN)
def test_tekken_files_have_its_ids(tmp_path, name):
    shutil.copy(DATA / name, tmp_path / "tekken.json")
    ours, theirs = load_checkpoint(tmp_path).tokenizer, Tekkenizer.from_file(DATA / name)
    assert (ours.vocab_size, ours.special_ids) == (theirs.n_words, theirs.special_ids)
    for text in texts(ours):
        assert ours.encode(text, add_special_tokens=True) == theirs.encode(text, bos=True, eos=False)
    first = theirs.num_special_tokens
    assert all(ours.token_bytes(i) == theirs.id_to_byte_piece(i) for i in range(first, theirs.n_words, 7))


def test_the_tokens_of_a_templated_prompt_are_where_it_puts_them(tmp_path):
    """`[INST]` is a token, and the text behind it is encoded on its own, with its dummy prefix."""
    name = "mistral_instruct_tokenizer_240323.model.v3"
    shutil.copy(DATA / name, tmp_path / "tokenizer.model.v3")
    ours, theirs = load_checkpoint(tmp_path).tokenizer, TheirSentencePiece(str(DATA / name))
    expected = [theirs.bos_id, 3, *theirs.encode("What is 3+4?", bos=False, eos=False), 4]
    assert ours.encode("<s>[INST]What is 3+4?[/INST]") == expected
    assert ours.decode(expected) == "<s>[INST]What is 3+4?[/INST]"
