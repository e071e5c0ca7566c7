"""The tokenizer of a checkpoint that ships a SentencePiece model and no ``tokenizer.json``.

Never knows about messages or templates. Two invariants: between matched tokens the ids are those of `sentencepiece`
itself (the fast encoder is used only after it has agreed with it on a corpus), and nothing here changes after
construction.

`sentencepiece` is no part of the base install; it is imported when such a checkpoint is read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from paraserve.tokenizers.base import reading
from paraserve.tokenizers.exactness import choose_encoder, probe_texts
from paraserve.tokenizers.huggingface import FastEncoder
from paraserve.tokenizers.sentencepiece_files import SentencePieceFiles, read_files
from paraserve.tokenizers.sentencepiece_merges import MatchedToken, Piece, byte_pair_document
from paraserve.tokenizers.token_table import SPACE, AddedToken, BlankPrefix, TableTokenizer, TokenTable


class SentencePieceTokenizer(TableTokenizer):
    """A `paraserve.tokenizers.base.Tokenizer` over ``tokenizer.model`` and the configuration beside it."""

    def __init__(self, path: Path) -> None:
        """
        Args:
            path: the model; what the checkpoint adds to it is read from the same directory.

        Raises:
            CheckpointError: a file is broken, files contradict each other, or the extra is not installed.
        """
        with reading(path):
            self._read(read_files(path))

    def _read(self, files: SentencePieceFiles) -> None:
        added = [AddedToken(token.id, token.text, token.special, blanks=True) for token in files.matched]
        matched = {token.id for token in added}
        added += [
            AddedToken(number, text.replace(SPACE, " "), special=False)
            for text, number in files.user_defined.items()
            if number not in matched
        ]
        table = TokenTable.from_bytes(files.pieces(), added)
        super().__init__(table, files.special_tokens, _blank_prefix(files))
        self._encoder = choose_encoder(
            lambda: FastPieceEncoder(files),
            SentencePieceEncoder(files),
            probe_texts([*(token.text for token in files.matched), *files.user_defined]),
            source=files.path,
            name="sentencepiece",
        )
        self._bos = [table.added_tokens[self.bos_token]] if files.add_bos and self.bos_token else []
        self._eos = [table.added_tokens[self.eos_token]] if files.add_eos and self.eos_token else []

    @property
    def backend(self) -> str:
        """The library that encodes: ``fastokens``, or ``sentencepiece`` where it did not pass."""
        return self._encoder.name

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """``add_special_tokens`` puts BOS and EOS around it, as the config says, unless the text has them already."""
        ids = self._encoder.encode(text)
        if not add_special_tokens:
            return ids
        bos = self._bos if ids[:1] != self._bos else []
        return [*bos, *ids, *(self._eos if ids[-1:] != self._eos else [])]


def _blank_prefix(files: SentencePieceFiles) -> BlankPrefix:
    if not files.dummy_prefix:
        return BlankPrefix()
    after = {token.id for token in files.matched} if files.legacy else ()
    return BlankPrefix(at_start=True, after=frozenset(after))


class SentencePieceEncoder:
    """`sentencepiece`, which defines the ids, between matched tokens, which Hugging Face's matching finds."""

    name = "sentencepiece"

    def __init__(self, files: SentencePieceFiles) -> None:
        self._splitter = _splitter(files.matched)
        self._ids = {self._splitter.token_to_id(token.text): token.id for token in files.matched}
        self._first = _processor(files, dummy_prefix=files.dummy_prefix)
        self._later = _processor(files, dummy_prefix=files.dummy_prefix and files.legacy)
        # SentencePiece drops blanks at a text's start; inside a longer text it leaves one of them.
        one_left = not files.legacy and files.model.normalizer_spec.remove_extra_whitespaces
        self._after_blanks = _processor(files, dummy_prefix=True) if one_left else self._later

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        split = self._splitter.encode(text)
        for number, (start, end) in zip(split.ids, split.offsets, strict=True):
            if number:
                ids.append(self._ids[number])
            elif segment := text[start:end]:
                ids.extend(self._processor_of(start, segment).encode(segment))
        return ids

    def _processor_of(self, start: int, segment: str) -> Any:
        if start == 0:
            return self._first
        return self._after_blanks if segment.startswith((" ", SPACE)) else self._later


_TEXT = "\0text"


def _splitter(matched: Sequence[MatchedToken]) -> tokenizers.Tokenizer:
    """Finds matched tokens as Hugging Face does; all text between two of them is the token 0."""
    splitter = tokenizers.Tokenizer(tokenizers.models.WordLevel({_TEXT: 0}, unk_token=_TEXT))
    flags = {"normalized": False}
    splitter.add_tokens([tokenizers.AddedToken(token.text, **flags, **token.flags) for token in matched])
    return splitter


def _processor(files: SentencePieceFiles, *, dummy_prefix: bool) -> Any:
    from sentencepiece import SentencePieceProcessor

    model = type(files.model)()
    model.CopyFrom(files.model)
    model.normalizer_spec.add_dummy_prefix = dummy_prefix
    return SentencePieceProcessor(model_proto=model.SerializeToString())


class FastPieceEncoder:
    """`fastokens`, over the merges that the model's scores amount to."""

    name = "fastokens"

    def __init__(self, files: SentencePieceFiles) -> None:
        """Raises `ValueError` for a model that has no such merges, or that fastokens cannot read."""
        self._encoder = FastEncoder(json.dumps(_document(files), ensure_ascii=False))
        self._blank_first = files.dummy_prefix and not files.legacy
        self._matched = tuple(token.text for token in files.matched)

    def encode(self, text: str) -> list[int]:
        if self._blank_first and text and not text.startswith(self._matched):
            text = " " + text
        return self._encoder.encode(text, False)


_BYTE_PAIRS = 2  # SentencePiece's TrainerSpec.ModelType


def _document(files: SentencePieceFiles) -> dict[str, Any]:
    """Raises `ValueError` for a model with a step that the document has no exact word for."""
    trainer, normalizer = files.model.trainer_spec, files.model.normalizer_spec
    if trainer.model_type != _BYTE_PAIRS:
        raise ValueError("it is no model of byte-pair encoding")
    if normalizer.precompiled_charsmap or normalizer.remove_extra_whitespaces or not normalizer.escape_whitespaces:
        raise ValueError("it normalizes text")
    if files.dummy_prefix and not files.legacy and any(any(token.flags.values()) for token in files.matched):
        raise ValueError("its added tokens take blanks or words around them into account")
    return byte_pair_document(
        [Piece(piece.piece, piece.score, piece.type) for piece in files.model.pieces],
        files.matched,
        prefix=files.dummy_prefix and files.legacy,
        byte_fallback=trainer.byte_fallback,
    )
