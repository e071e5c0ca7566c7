"""The tokenizer that is rebuilt from the default model's file, against llama.cpp's own on the same file."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.tokenizers.exactness import probe_texts
from paraserve.tokenizers.gguf import difference_from_llama_cpp, gguf_model, gguf_tokenizer
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer
from tests.engines.embedded import embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

POOLS = (
    "abc XYZ 0123 ",
    "äöüßñç é'sT've",
    "日本語漢字かなカナ 한국어",
    "🦜🧬👩‍👩‍👧‍👦🇳🇴 ❤️",
    "\n\t\r  \u00a0\u2003\u200b\ufeff",
    "<|im_start|><|im_end|><repo_name>'s't!?.,;:\"(){}[]",
    "अआइ ا ب ت ไทย עברית ᚠᛇᚻ 𝔘𠜎",
)


@pytest.fixture(scope="module")
def tokenizer() -> HuggingFaceTokenizer:
    return gguf_tokenizer(default_model_path())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tokenizer: HuggingFaceTokenizer) -> AsyncIterator[LlamaCppEngine]:
    options = EmbeddedOptions(str(default_model_path()), 256, slots=1, threads=1)
    async with embedded(tokenizer.token_bytes, options) as engine:
        yield engine


def texts() -> list[str]:
    lot = random.Random(20)
    mixed = ["".join(lot.choice(lot.choice(POOLS)) for _ in range(lot.randrange(1, 90))) for _ in range(600)]
    rare = [chr(lot.choice([lot.randrange(0x20, 0xD800), lot.randrange(0xE000, 0x30000)])) * 2 for _ in range(600)]
    return mixed + ["".join(rare[place : place + 12]) for place in range(0, len(rare), 12)]


async def test_the_ids_are_llama_cpps(tokenizer: HuggingFaceTokenizer, engine: LlamaCppEngine) -> None:
    for text in [*probe_texts(tokenizer.added_tokens), *texts()]:
        if text:
            assert tokenizer.encode(text) == await engine.tokenize(text), repr(text)


async def test_the_text_of_ids_is_the_text(tokenizer: HuggingFaceTokenizer) -> None:
    for text in texts():
        assert tokenizer.decode(tokenizer.encode(text)) == text


async def test_the_bytes_of_every_token_are_llama_cpps(tokenizer: HuggingFaceTokenizer, engine: LlamaCppEngine) -> None:
    everything = range(0, tokenizer.vocab_size, 1)
    for begin in range(0, len(everything), 512):
        ids = [t for t in everything[begin : begin + 512] if _is_text(tokenizer.token_bytes(t))]
        reply = await engine._ask("/detokenize", {"tokens": ids})
        assert reply["content"] == tokenizer.decode(ids)


async def test_special_tokens_are_added_as_llama_cpp_adds_them(
    tokenizer: HuggingFaceTokenizer, engine: LlamaCppEngine
) -> None:
    assert tokenizer.encode("Hi", add_special_tokens=True) == await engine.tokenize("Hi", add_special=True)


async def test_the_guard_finds_nothing_here_and_something_in_another_vocabulary(
    tokenizer: HuggingFaceTokenizer, engine: LlamaCppEngine
) -> None:
    assert await difference_from_llama_cpp(tokenizer, engine.tokenize) is None
    metadata = dict(gguf_model(default_model_path()).metadata) | {"tokenizer.ggml.pre": "llama-bpe"}
    other = gguf_tokenizer(default_model_path(), metadata)
    assert await difference_from_llama_cpp(other, engine.tokenize) is not None


async def test_the_facts_of_the_file_are_those_of_the_engine(engine: LlamaCppEngine) -> None:
    model = gguf_model(default_model_path())
    assert model.eos_token_ids <= engine.info.eos_token_ids
    assert model.context_length == 8192
    assert engine.info.vocab_size == len(model.metadata["tokenizer.ggml.tokens"])
    assert "<|im_start|>" in model.chat_templates["default"]


def _is_text(spelled: bytes) -> bool:
    try:
        return bool(spelled.decode())
    except UnicodeDecodeError:
        return False
