"""The tokenizer of a checkpoint that ships Mistral's ``tekken.json`` and no ``tokenizer.json``.

Never knows about messages or templates. Two invariants: the ids are those of `mistral-common` on the same file (special
tokens first, the vocabulary's ranks after them), and nothing here changes after construction.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from paraserve.tokenizers.base import reading
from paraserve.tokenizers.huggingface import TokenId
from paraserve.tokenizers.tiktoken import FastRankEncoder, RankEncoder, RankTokenizer, rank_encoder
from paraserve.tokenizers.token_table import AddedToken, TokenTable


class TekkenEntry(msgspec.Struct):
    rank: TokenId
    token_bytes: str
    """Base64."""


class TekkenSpecial(msgspec.Struct):
    rank: TokenId
    token_str: str


class TekkenConfig(msgspec.Struct):
    pattern: str
    default_vocab_size: TokenId
    """Special tokens counted in; the file may list more entries, which the model has no row for."""
    default_num_special_tokens: TokenId
    version: str | None = None


class TekkenFile(msgspec.Struct):
    config: TekkenConfig
    vocab: list[TekkenEntry]
    special_tokens: list[TekkenSpecial] | None = None


UNLISTED_SPECIALS = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The special tokens, by id, of files from before files listed them."""

UNLISTED_VERSIONS = ("v1", "v2", "v3", "v7")
"""The versions that may leave them out (`mistral-common` refuses a later one, too)."""

NAMED_SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class TekkenTokenizer(RankTokenizer):
    """A `paraserve.tokenizers.base.Tokenizer` over ``tekken.json``."""

    def __init__(self, path: Path) -> None:
        """Raises `CheckpointError`: the file cannot be read, or its ids have holes."""
        with reading(path):
            self._read(msgspec.json.decode(path.read_bytes(), type=TekkenFile))

    def _read(self, file: TekkenFile) -> None:
        specials = _specials(file)
        ranks = _ranks(file, len(specials))
        encoder = _encoder(ranks, specials, file.config.pattern)
        added = [AddedToken(id=number, text=text, special=True) for text, number in specials.items()]
        pieces = {rank + len(specials): piece for piece, rank in ranks.items()}
        named = {name: text for name, text in NAMED_SPECIALS.items() if text in specials}
        super().__init__(TokenTable.from_bytes(pieces, added), encoder, named)
        # The encoder counts ranks from 0 and special tokens after them; the checkpoint has them the other way round.
        self._ids = (*range(len(specials), self.vocab_size), *range(len(specials)))

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """``add_special_tokens`` puts the BOS token in front, unless the text has it already."""
        ids = [self._ids[number] for number in self._encoder.encode(text)]
        bos = self._table.added_tokens.get(self.bos_token or "")
        return [bos, *ids] if add_special_tokens and bos is not None and ids[:1] != [bos] else ids


def _specials(file: TekkenFile) -> dict[str, int]:
    """Ids of all special tokens, those included that only have a place."""
    count = file.config.default_num_special_tokens
    listed = file.special_tokens
    if listed is None and file.config.version not in UNLISTED_VERSIONS:
        raise ValueError(f"a file of version {file.config.version} has to list its special tokens")
    by_id = dict(enumerate(UNLISTED_SPECIALS)) if listed is None else {token.rank: token.token_str for token in listed}
    if by_id and not 0 <= min(by_id) <= max(by_id) < count:
        raise ValueError(f"a special token's id is outside 0 to {count - 1}")
    specials = {by_id.get(number, f"<SPECIAL_{number}>"): number for number in range(count)}
    if len(specials) != count:
        raise ValueError("two special tokens have one text")
    return specials


def _ranks(file: TekkenFile, special_count: int) -> dict[bytes, int]:
    size = file.config.default_vocab_size - special_count
    ranks = {
        base64.b64decode(entry.token_bytes, validate=True): entry.rank for entry in file.vocab if entry.rank < size
    }
    if not ranks or set(ranks.values()) != set(range(size)):
        raise ValueError("its ranks have holes")
    return ranks


def _encoder(ranks: Mapping[bytes, int], specials: Mapping[str, int], pattern: str) -> FastRankEncoder | RankEncoder:
    """fastokens reads ranks only from a file of lines, and only where they start at 0."""
    behind = {text: number + len(ranks) for text, number in specials.items()}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tekken.ranks"
        path.write_text("".join(f"{base64.b64encode(piece).decode()} {rank}\n" for piece, rank in ranks.items()))
        return rank_encoder(path, ranks, behind, pattern)
