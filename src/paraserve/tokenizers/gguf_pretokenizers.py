"""How byte-pair vocabularies in GGUF files cut text before merging, by the name in ``tokenizer.ggml.pre``.

Data alone: the names are values of that key (llama.cpp, src/llama-vocab.cpp), the patterns those of the tokenizer
files that such vocabularies were converted from. Where the two differ in what they mean, the tokenizer file counts. A
name that is not here is refused, because a wrong cut gives wrong ids for some texts and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns are applied one after the other, each to the pieces that the last one left.

    ``ignore_merges``: a piece that is in the vocabulary is taken whole, without merging.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_THREE_DIGITS = r"\p{N}{1,3}"


def _words(digits: str, *, letters: str = r"\p{L}", not_other: str = r"\s\p{L}\p{N}") -> str:
    """The pattern that most vocabularies since 2023 share, but for how digits are grouped."""
    return rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?[^{not_other}]+[\r\n]*|{_REST}"


_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _cased_words(digits: str, contractions: str) -> str:
    """Words are also cut where lower case meets upper case."""
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{contractions}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{contractions}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
    )


_LLAMA3 = _words(_THREE_DIGITS)
_QWEN2 = _words(_DIGIT)
_QWEN35 = _words(_DIGIT, letters=r"[\p{L}\p{M}]", not_other=r"\s\p{L}\p{M}\p{N}")
_GPT4O = _cased_words(_THREE_DIGITS, _CONTRACTIONS + "?")
_TEKKEN = _cased_words(_DIGIT, "")
_DEEPSEEK3 = (
    _THREE_DIGITS,
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_REST}",
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_SEED = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_REST}"

_BY_PATTERNS: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (
        PreTokenizer((_GPT2,)),
        ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "mellum"),
    ),
    (
        PreTokenizer((_DIGIT, _GPT2)),
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
    ),
    (
        PreTokenizer((_LLAMA3,), ignore_merges=True),
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "glm4", "glm5"),
    ),
    (PreTokenizer((_LLAMA3,)), ("dbrx", "smaug-bpe", "chatglm-bpe")),
    (
        PreTokenizer((_QWEN2,)),
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2", "solar-open", "kormo", "f2llmv2"),
    ),
    (PreTokenizer((_QWEN35,)), ("qwen35",)),
    (PreTokenizer(_DEEPSEEK3), ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4")),
    (PreTokenizer((_GPT4O,)), ("gpt-4o", "llama4", "kanana2", "minimax-m2")),
    (PreTokenizer((_TEKKEN,), ignore_merges=True), ("tekken",)),
    (PreTokenizer((_BAILING,)), ("bailingmoe", "bailingmoe2", "llada-moe")),
    (PreTokenizer((_SEED,)), ("seed-coder",)),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: pre_tokenizer for pre_tokenizer, names in _BY_PATTERNS for name in names
}
