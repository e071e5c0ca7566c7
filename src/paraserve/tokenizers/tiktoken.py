"""The tokenizer of a checkpoint that ships ``tiktoken.model`` and no ``tokenizer.json``.

Never knows about messages or templates. Two invariants: the ids are those of the checkpoint's own Python tokenizer
(pattern, special tokens and the cuts that it makes in very long text), and nothing here changes after construction.
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fastokens  # type: ignore[import-untyped]
import tokenizers

from paraserve.tokenizers.base import CheckpointError, reading
from paraserve.tokenizers.exactness import choose_encoder, probe_texts
from paraserve.tokenizers.huggingface import SEGMENT_CACHE_BYTES, declared_tokens, special_tokens
from paraserve.tokenizers.token_table import AddedToken, TableTokenizer, TokenTable

_CASE_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
PATTERN = "|".join(
    (
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CASE_TAIL}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CASE_TAIL}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
"""How Moonshot's tokenizer cuts text into words (``tokenization_kimi.py``, ``pat_str``)."""

RESERVED_TOKENS = 256
"""Ids after the ranks that are special, named in the config or not. Moonshot's class makes two more for some
checkpoints, whose ids the model has no row for: spelled in a prompt they would be out of the vocabulary."""

MAX_PIECE_CHARS = 400_000
MAX_RUN_CHARS = 25_000
"""Moonshot's tokenizer cuts text at these lengths before it encodes (the second: a run without, or of, blanks)."""

_LONG_RUN = re.compile(rf"(?<!\s)\s{{{MAX_RUN_CHARS + 1},}}|(?<!\S)\S{{{MAX_RUN_CHARS + 1},}}")


class RankEncoder:
    """Byte-pair encoding straight from the ranks: slow, obvious, and what the fast encoder is checked against."""

    name = "ranks"

    def __init__(self, ranks: Mapping[bytes, int], special: Mapping[str, int], pattern: str = PATTERN) -> None:
        """
        Args:
            ranks: ids of the vocabulary's byte strings; the lower merges first.
            special: ids of the texts that are matched whole.
            pattern: how text is cut into words.
        """
        self._ranks = ranks
        self._absent = max(ranks.values()) + 1
        self._special = special
        longest_first = sorted(special, key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._words = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for place, part in enumerate(self._special_pattern.split(text)):
            if place % 2:
                ids.append(self._special[part])
            elif part:
                for word, _ in self._words.pre_tokenize_str(part):
                    ids.extend(self._merge(word.encode()))
        return ids

    def _merge(self, word: bytes) -> list[int]:
        whole = self._ranks.get(word)
        if whole is not None:
            return [whole]
        parts = [word[place : place + 1] for place in range(len(word))]
        while len(parts) > 1:
            pairs = [self._ranks.get(left + right, self._absent) for left, right in itertools.pairwise(parts)]
            best = min(pairs)
            if best == self._absent:
                break
            place = pairs.index(best)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self._ranks[part] for part in parts]


class FastRankEncoder:
    """`fastokens` over the rank file."""

    name = "fastokens"

    def __init__(self, path: Path, special: Mapping[str, int], pattern: str = PATTERN) -> None:
        """Raises `ValueError` for a file that fastokens cannot read."""
        self._tokenizer = fastokens.Tokenizer.from_tiktoken(str(path), pattern=pattern, special_tokens=dict(special))
        self._tokenizer.enable_segment_cache(SEGMENT_CACHE_BYTES)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)


class RankTokenizer(TableTokenizer):
    """What tokenizers over ranks share beside the table: an encoder that was checked."""

    def __init__(
        self, table: TokenTable, encoder: FastRankEncoder | RankEncoder, special_tokens: Mapping[str, str]
    ) -> None:
        super().__init__(table, special_tokens)
        self._encoder = encoder

    @property
    def backend(self) -> str:
        """What encodes: ``fastokens``, or ``ranks`` where it did not pass."""
        return self._encoder.name


class TiktokenTokenizer(RankTokenizer):
    """A `paraserve.tokenizers.base.Tokenizer` over ``tiktoken.model`` and ``tokenizer_config.json``."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        """
        Args:
            path: the rank file: a base64 token and its rank on each line.
            config: ``tokenizer_config.json``, decoded; its ``added_tokens_decoder`` names the special tokens.

        Raises:
            CheckpointError: the file is no rank file, or its ids have holes.
        """
        with reading(path):
            self._read(path, config)

    def _read(self, path: Path, config: Mapping[str, Any]) -> None:
        ranks = _read_ranks(path)
        added = _added_tokens(len(ranks), config)
        table = TokenTable.from_bytes({rank: piece for piece, rank in ranks.items()}, added)
        super().__init__(table, rank_encoder(path, ranks, table.added_tokens), special_tokens(config))

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Moonshot's tokenizer adds no token around text: ``add_special_tokens`` changes nothing."""
        if len(text) <= MAX_RUN_CHARS:
            return self._encoder.encode(text)
        ids: list[int] = []
        for piece in _cut(text):
            ids.extend(self._encoder.encode(piece))
        return ids


def _cut(text: str) -> Iterator[str]:
    """The pieces that the checkpoint's own tokenizer encodes one by one."""
    for start in range(0, len(text), MAX_PIECE_CHARS):
        chunk = text[start : start + MAX_PIECE_CHARS]
        done = 0
        for run in _LONG_RUN.finditer(chunk):
            for cut in range(run.start() + MAX_RUN_CHARS, run.end(), MAX_RUN_CHARS):
                yield chunk[done:cut]
                done = cut
        yield chunk[done:]


def _read_ranks(path: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for line in path.read_bytes().splitlines():
        if line:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
    if not ranks or set(ranks.values()) != set(range(len(ranks))):
        raise CheckpointError(f"{path} is no tiktoken rank file: its ranks have holes")
    return ranks


def _added_tokens(first: int, config: Mapping[str, Any]) -> list[AddedToken]:
    named = declared_tokens(config)
    return [
        AddedToken(
            id=number,
            text=named[number].content if number in named else f"<|reserved_token_{number}|>",
            special=bool(named[number].special) if number in named else True,
        )
        for number in range(first, first + RESERVED_TOKENS)
    ]


def rank_encoder(
    path: Path, ranks: Mapping[bytes, int], special: Mapping[str, int], pattern: str = PATTERN
) -> FastRankEncoder | RankEncoder:
    """The fast encoder over the rank file where it may be trusted, else the ranks, which are slow."""
    return choose_encoder(
        lambda: FastRankEncoder(path, special, pattern),
        RankEncoder(ranks, special, pattern),
        probe_texts(special),
        source=path,
        name="the ranks",
    )
