"""SentencePiece vocabularies in GGUF files, rebuilt from their scores, against llama.cpp's own reading of the file."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from paraserve.engines.llama_cpp.embedded import EmbeddedOptions
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.exactness import CORPUS
from paraserve.tokenizers.gguf import difference_from_llama_cpp, gguf_tokenizer
from tests.engines.embedded import embedded
from tests.fakes.sentencepiece_models import CONTROL, llama_of, train

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as most": ({}, {}),
    "without a blank in front": ({"add_dummy_prefix": False}, {"add_space_prefix": False}),
    "without a BOS": ({"control_symbols": []}, {"add_bos_token": False}),
}
"""How the model was trained, and what the file says of it."""


@pytest.fixture(scope="module", params=FILES)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    trained, keys = FILES[request.param]
    path: Path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    path.write_bytes(llama_of(train(model_type="bpe", **trained), **keys))
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(file: Path) -> AsyncIterator[LlamaCppEngine]:
    options = EmbeddedOptions(str(file), 256, slots=1, threads=1)
    async with embedded(gguf_tokenizer(file).token_bytes, options) as engine:
        yield engine


async def test_ids_and_text_are_llama_cpps(file: Path, engine: LlamaCppEngine) -> None:
    tokenizer, lot = gguf_tokenizer(file), random.Random(3)
    assert await difference_from_llama_cpp(tokenizer, engine.tokenize) is None
    assert tokenizer.encode("Hi", add_special_tokens=True) == await engine.tokenize("Hi", add_special=True)
    letters, tokens = "".join(CORPUS), [*CONTROL, "</s>", "<tool>", " ", "  ", "a"]
    for _ in range(200):
        choices = [lot.choice((lot.choice(letters), lot.choice(tokens))) for _ in range(lot.randint(1, 60))]
        text = "".join(choices)
        ids = tokenizer.encode(text)
        assert ids == await engine.tokenize(text), text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "changes",
    [{"scores": None}, {"precompiled_charsmap": "x"}, {"remove_extra_whitespaces": True}, {"model": "t5"}],
)
async def test_a_vocabulary_that_normalizes_or_is_not_whole_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "tiny.gguf"
    whole = {name: value for name, value in changes.items() if value is not None}
    data = llama_of(train(model_type="bpe"), **whole)
    path.write_bytes(data if whole else data.replace(b"tokenizer.ggml.scores", b"tokenizer.ggml.scored"))
    with pytest.raises(CheckpointError, match="cannot be rebuilt exactly"):
        gguf_tokenizer(path)
