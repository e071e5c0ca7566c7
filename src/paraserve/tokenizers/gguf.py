"""What a GGUF file says of its model: tokenizer, chat templates, end tokens, context length.

Reads the header alone and never a tensor. Two invariants: a tokenizer is built only for vocabularies whose every step
is known (anything else is a `CheckpointError` that says what to give instead), and `difference_from_llama_cpp` is
there to prove the ids against llama.cpp's own.

The layout of the file: ggml, docs/gguf.md.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from paraserve.tokenizers.base import CheckpointError, Tokenizer, reading
from paraserve.tokenizers.exactness import probe_texts
from paraserve.tokenizers.gguf_pretokenizers import PRE_TOKENIZERS, PreTokenizer
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer, token_ids, whole_number
from paraserve.tokenizers.sentencepiece_merges import (
    BYTE,
    CONTROL,
    UNKNOWN,
    USER_DEFINED,
    MatchedToken,
    Piece,
    byte_pair_document,
)
from paraserve.tokenizers.token_table import MAX_IDS

GGUF_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The facts of a file that a server needs before any engine has loaded it."""

    metadata: Mapping[str, Any]
    """Every key of the file, arrays as lists."""
    name: str
    context_length: int | None
    """Tokens that the model was trained for."""
    chat_templates: Mapping[str, str]
    """By name, the usual one being ``default``."""
    eos_token_ids: frozenset[int]
    """End of text, of turn and of message, as far as the file names them."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """``bos_token`` and its like, as templates read them."""


def read_gguf_metadata(path: Path) -> dict[str, Any]:
    """Every key of the header. Raises `CheckpointError` for a file that is no whole GGUF header."""
    with reading(path), path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Header(data).read()
        except (struct.error, KeyError, IndexError, OverflowError, UnicodeDecodeError, RecursionError) as error:
            raise CheckpointError(f"{path} is cut off or damaged: its GGUF header cannot be read") from error


def gguf_model(path: Path, metadata: Mapping[str, Any] | None = None) -> GgufModel:
    """The facts of the file at ``path``, read from it where ``metadata`` is None. Raises `CheckpointError`."""
    data = read_gguf_metadata(path) if metadata is None else metadata
    with reading(path):
        return _facts(path, data)


def _facts(path: Path, data: Mapping[str, Any]) -> GgufModel:
    tokens = _texts(data.get("tokenizer.ggml.tokens", []))
    named = {
        f"{name}_token": tokens[data[key]]
        for name in ("bos", "eos", "unk", "sep", "pad", "mask")
        if 0 <= data.get(key := _token_key(name), -1) < len(tokens)
    }
    ends = (data.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    templates = {"default": data["tokenizer.chat_template"]} if "tokenizer.chat_template" in data else {}
    prefix = "tokenizer.chat_template."
    templates |= {key.removeprefix(prefix): text for key, text in data.items() if key.startswith(prefix)}
    _texts(list(templates.values()))
    return GgufModel(
        metadata=data,
        name=str(data.get("general.name") or path.stem),
        context_length=whole_number(data.get(f"{data.get('general.architecture')}.context_length")),
        chat_templates=templates,
        eos_token_ids=token_ids(ends),
        special_tokens=named,
    )


def _texts(values: Any) -> list[str]:
    """Raises `ValueError` where they are something else."""
    return msgspec.convert(values, list[str])


def gguf_tokenizer(path: Path, metadata: Mapping[str, Any] | None = None) -> HuggingFaceTokenizer:
    """The tokenizer of the file at ``path``.

    Raises:
        CheckpointError: it is of a kind that cannot be rebuilt exactly; the message names it.
    """
    model = gguf_model(path, metadata)
    with reading(path):
        document, config = _document(path, model), _config(model)
    try:
        return HuggingFaceTokenizer(json.dumps(document, ensure_ascii=False), config, source=str(path))
    except CheckpointError as error:
        raise CheckpointError(f"the tokenizer in {path} cannot be used: {error}; {_INSTEAD}") from error


async def difference_from_llama_cpp(
    tokenizer: Tokenizer, tokenize: Callable[[str], Awaitable[list[int]]]
) -> str | None:
    """The first text whose ids differ from llama.cpp's, None where there is none.

    Args:
        tokenize: llama.cpp's own encoder of the same file, special tokens parsed and none added.
    """
    for text in probe_texts(tokenizer.added_tokens, limit=64):
        if text and tokenizer.encode(text) != await tokenize(text):
            return text
    return None


_INSTEAD = "give the original checkpoint's tokenizer with --tokenizer-path"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def _kind(data: Mapping[str, Any]) -> str | None:
    """``gpt2`` for byte-level BPE, ``llama`` for SentencePiece's BPE, and kinds that are refused."""
    if data.get("tokenizer.ggml.precompiled_charsmap") or data.get("tokenizer.ggml.remove_extra_whitespaces"):
        return "sentencepiece that normalizes"
    return data.get("tokenizer.ggml.model")


def _is_sentencepiece(data: Mapping[str, Any]) -> bool:
    return _kind(data) == "llama" and {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"} <= data.keys()


def _document(path: Path, model: GgufModel) -> dict[str, Any]:
    data = model.metadata
    return _sentencepiece_document(data) if _is_sentencepiece(data) else _byte_level_document(path, data)


def _config(model: GgufModel) -> dict[str, Any]:
    data = model.metadata
    return dict(model.special_tokens) | {
        # llama.cpp puts a BOS before text of SentencePiece vocabularies unless the file says not to.
        "add_bos_token": data.get("tokenizer.ggml.add_bos_token", True if _is_sentencepiece(data) else None),
        "add_eos_token": data.get("tokenizer.ggml.add_eos_token"),
    }


def _matched(data: Mapping[str, Any]) -> list[MatchedToken]:
    kinds = zip(data["tokenizer.ggml.tokens"], data["tokenizer.ggml.token_type"], strict=True)
    return [
        MatchedToken(number, text, special=kind != USER_DEFINED)
        for number, (text, kind) in enumerate(kinds)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED) and text
    ]


def _sentencepiece_document(data: Mapping[str, Any]) -> dict[str, Any]:
    """As llama.cpp reads it: a blank in front of every text between tokens, unless the file says not to."""
    columns = (data[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    pieces = [Piece(*row) for row in zip(*columns, strict=True)]
    return byte_pair_document(
        pieces,
        _matched(data),
        prefix=data.get("tokenizer.ggml.add_space_prefix") is not False,
        byte_fallback=any(piece.kind == BYTE for piece in pieces),
    )


def _byte_level_document(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    pre_tokenizer = _pre_tokenizer(path, data)
    return {
        "added_tokens": [token.document for token in _matched(data)],
        "normalizer": None,
        "pre_tokenizer": _splits(pre_tokenizer),
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {text: number for number, text in enumerate(data["tokenizer.ggml.tokens"])},
            "merges": [_merge(line) for line in data["tokenizer.ggml.merges"]],
            "ignore_merges": pre_tokenizer.ignore_merges,
            "byte_fallback": False,
            "fuse_unk": False,
        },
    }


def _token_key(name: str) -> str:
    spelled: Mapping[str, Literal["unknown", "seperator", "padding"]] = {
        "unk": "unknown",
        "sep": "seperator",  # spelled so in the format
        "pad": "padding",
    }
    return f"tokenizer.ggml.{spelled.get(name, name)}_token_id"


def _pre_tokenizer(path: Path, data: Mapping[str, Any]) -> PreTokenizer:
    kind = _kind(data)
    if kind is None:
        raise CheckpointError(f"{path} has no tokenizer in it; {_INSTEAD}")
    if kind != "gpt2" or "tokenizer.ggml.merges" not in data:
        raise CheckpointError(
            f"the vocabulary in {path} is of the kind {kind!r}, which cannot be rebuilt exactly from a GGUF file; "
            f"{_INSTEAD}"
        )
    name = data.get("tokenizer.ggml.pre", "default")
    if name not in PRE_TOKENIZERS:
        raise CheckpointError(f"the vocabulary in {path} has the unknown pre-tokenizer {name!r}; {_INSTEAD}")
    return PRE_TOKENIZERS[name]


def _splits(pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in pre_tokenizer.patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*steps, _BYTE_LEVEL]}


def _merge(line: str) -> list[str]:
    """Both halves; the first one may begin with the blank that else divides them."""
    cut = line.index(" ", 1)
    return [line[:cut], line[cut + 1 :]]


class _Header:
    """Reads values from the front of the file, one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def read(self) -> dict[str, Any]:
        if self._data[:4] != GGUF_MAGIC:
            raise ValueError("it is no GGUF file")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"its GGUF version is {version if version < 1 << 16 else 'big-endian'}, known are 2 and 3")
        self._scalar("Q")  # tensors
        return {self._string(): self._value(self._scalar("I")) for _ in range(self._scalar("Q"))}

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, count = self._scalar("I"), self._scalar("Q")
            if count > MAX_IDS:
                raise OverflowError
            if element in (_STRING, _ARRAY):
                return [self._value(element) for _ in range(count)]
            layout = f"<{count}{_SCALARS[element]}"
            values = list(struct.unpack_from(layout, self._data, self._at))
            self._at += struct.calcsize(layout)
            return values
        return self._scalar(_SCALARS[kind])

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self._data, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        begin, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise IndexError
        return self._data[begin : self._at].decode("utf-8")
