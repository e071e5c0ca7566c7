"""The tokenizer of a checkpoint that ships ``tokenizer.json``.

Never knows about messages or templates. Two invariants: the ids are those of the `tokenizers` library on the same
file (the fast encoder is used only after it has agreed with it on a corpus), and nothing here changes after
construction, so that every method may run in several threads at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import fastokens  # type: ignore[import-untyped]
import msgspec
import tokenizers

from paraserve.tokenizers.base import CheckpointError, reading
from paraserve.tokenizers.exactness import choose_encoder, probe_texts
from paraserve.tokenizers.token_table import (
    MAX_IDS,
    SPACE,
    AddedToken,
    BlankPrefix,
    PieceDecoder,
    TableTokenizer,
    TokenTable,
    byte_level_decoder,
    metaspace_decoder,
)

SEGMENT_CACHE_BYTES = 64 << 20
"""Room for the ids of text segments that growing conversations repeat. Segments end at added tokens, which no
pre-tokenizer looks across, so that cached ids are the ids (tests/tokenizers/test_tokenizers.py proves it)."""

SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The named special tokens of ``tokenizer_config.json``; templates read them as variables of these names."""


TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MAX_IDS)]


class FastEncoder:
    """`fastokens`."""

    name = "fastokens"

    def __init__(self, text: str) -> None:
        """Raises `ValueError` for a file that needs a feature which fastokens lacks."""
        self._tokenizer = fastokens.Tokenizer.from_json_str(text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.enable_segment_cache(SEGMENT_CACHE_BYTES)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)


class ReferenceEncoder:
    """`tokenizers`, which defines the ids."""

    name = "tokenizers"

    def __init__(self, text: str) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_str(text)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = False

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids


class HuggingFaceTokenizer(TableTokenizer):
    """A `paraserve.tokenizers.base.Tokenizer` over ``tokenizer.json`` and ``tokenizer_config.json``."""

    def __init__(self, tokenizer_json: str, config: Mapping[str, Any] | None = None, *, source: str = "") -> None:
        """
        Args:
            tokenizer_json: the text of ``tokenizer.json``.
            config: ``tokenizer_config.json``, decoded.
            source: a name for error messages, the file's.

        Raises:
            CheckpointError: the file is no tokenizer, or of a kind that has no exact byte table.
        """
        with reading(source or "tokenizer.json"):
            self._read(tokenizer_json, config or {}, source or "tokenizer.json")

    def _read(self, tokenizer_json: str, config: Mapping[str, Any], source: str) -> None:
        document = msgspec.json.decode(tokenizer_json)
        if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
            raise CheckpointError(f"{source} is no tokenizer file: it has no model")
        missing = _missing_tokens(document, config)
        if missing:
            document["added_tokens"] = [*document.get("added_tokens", []), *missing]
            tokenizer_json = json.dumps(document, ensure_ascii=False)
        table = TokenTable(_pieces(document, source), _piece_decoder(document, source), _added_tokens(document, config))
        super().__init__(table, special_tokens(config), _blank_prefix(document))
        self._encoder = choose_encoder(
            lambda: FastEncoder(tokenizer_json),
            ReferenceEncoder(tokenizer_json),
            probe_texts(table.added_tokens),
            source=source,
            name="tokenizers",
            encode=lambda encoder, text: [encoder.encode(text, special) for special in (False, True)],
        )
        self._add_bos = config.get("add_bos_token")
        self._add_eos = config.get("add_eos_token")

    @property
    def backend(self) -> str:
        """The library that encodes: ``fastokens``, or ``tokenizers`` where it did not pass."""
        return self._encoder.name

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids = self._encoder.encode(text, add_special_tokens)
        return self._with_config_tokens(ids) if add_special_tokens else ids

    def _with_config_tokens(self, ids: list[int]) -> list[int]:
        """``add_bos_token`` and ``add_eos_token`` of the config win over the file's post-processor."""
        bos = self._table.added_tokens.get(self.bos_token or "")
        eos = self._table.added_tokens.get(self.eos_token or "")
        if bos is not None and self._add_bos is True and ids[:1] != [bos]:
            ids = [bos, *ids]
        if bos is not None and self._add_bos is False and ids[:1] == [bos]:
            ids = ids[1:]
        if eos is not None and self._add_eos is True and ids[-1:] != [eos]:
            ids = [*ids, eos]
        return ids


def read_object(path: Path) -> dict[str, Any]:
    """A file's JSON object, empty where there is no such file."""
    if not path.is_file():
        return {}
    with reading(path):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])


class ConfigToken(msgspec.Struct):
    """An added token as ``added_tokens_decoder`` states it. Flags that are None are not stated."""

    content: str
    special: bool | None = None
    lstrip: bool | None = None
    rstrip: bool | None = None
    single_word: bool | None = None
    normalized: bool | None = None


class NamedTemplate(msgspec.Struct):
    name: str
    template: str


class TokenizerConfig(msgspec.Struct):
    """What of a ``tokenizer_config.json`` has to be as it should."""

    added_tokens_decoder: dict[TokenId, ConfigToken] = {}
    additional_special_tokens: list[Any] | dict[str, Any] | None = None
    extra_special_tokens: list[Any] | dict[str, Any] | None = None
    chat_template: str | list[NamedTemplate] | dict[str, str] | None = None


def read_tokenizer_config(path: Path) -> dict[str, Any]:
    """``tokenizer_config.json``, empty where there is no such file. Raises `CheckpointError`."""
    config = read_object(path)
    with reading(path):
        msgspec.convert(config, TokenizerConfig, str_keys=True)
    return config


def declared_tokens(config: Mapping[str, Any]) -> dict[int, ConfigToken]:
    """The added tokens of a ``tokenizer_config.json``, by id."""
    return msgspec.convert(config, TokenizerConfig, str_keys=True).added_tokens_decoder


def token_ids(values: Iterable[Any]) -> frozenset[int]:
    """Those of ``values`` that are ids. Raises `ValueError` for one beyond `MAX_IDS`."""
    ids = frozenset(value for value in values if isinstance(value, int) and not isinstance(value, bool) and value >= 0)
    if max(ids, default=0) >= MAX_IDS:
        raise ValueError(f"it has the token id {max(ids)}")
    return ids


def whole_number(value: Any) -> int | None:
    """A number of tokens, as far as it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def token_text(value: Any) -> str | None:
    """The text of a token as the config files spell it: a string, or an object with ``content``."""
    if isinstance(value, str):
        return value
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else None


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The named special tokens that a ``tokenizer_config.json`` states."""
    named = ((name, token_text(config.get(name))) for name in SPECIAL_TOKEN_NAMES)
    return {name: text for name, text in named if text}


def _missing_tokens(document: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Added tokens that only the config names."""
    known = {token["content"] for token in document.get("added_tokens", [])}
    return [
        {"id": number} | {name: value or False for name, value in msgspec.structs.asdict(token).items()}
        for number, token in declared_tokens(config).items()
        if token.content not in known
    ]


def _added_tokens(document: Mapping[str, Any], config: Mapping[str, Any]) -> list[AddedToken]:
    declared = declared_tokens(config)
    special = set(special_tokens(config).values())
    special.update(filter(None, map(token_text, config.get("additional_special_tokens") or ())))
    byte_level = any(step.get("type") == "ByteLevel" for step in _steps(document.get("decoder"), "decoders"))
    added = []
    for token in document.get("added_tokens", []):
        stated = declared.get(token["id"])
        said = token.get("special") if stated is None else stated.special
        added.append(
            AddedToken(token["id"], token["content"], bool(said) or token["content"] in special, not byte_level)
        )
    return added


def _pieces(document: Mapping[str, Any], source: str) -> Iterable[tuple[str, int]]:
    vocabulary = document["model"].get("vocab")
    if isinstance(vocabulary, dict):
        return vocabulary.items()
    if isinstance(vocabulary, list):
        return ((entry[0], number) for number, entry in enumerate(vocabulary))
    raise CheckpointError(f"{source} has no vocabulary")


def _piece_decoder(document: Mapping[str, Any], source: str) -> PieceDecoder:
    """From the file's ``decoder`` section, which says how entries are spelled."""
    steps = _steps(document.get("decoder"), "decoders")
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return byte_level_decoder()
    for step in steps:
        if step.get("type") == "Metaspace":
            return metaspace_decoder(step.get("replacement", "\u2581"))
        if step.get("type") == "Replace" and step.get("content") == " ":
            return metaspace_decoder(step["pattern"]["String"])
    if "ByteFallback" in kinds:
        return metaspace_decoder()
    raise CheckpointError(f"{source} has a decoder of a kind that is not supported: {sorted(map(str, kinds))}")


def _blank_prefix(document: Mapping[str, Any]) -> BlankPrefix:
    """From the steps that write it: both spell a blank as SentencePiece does."""
    added = document.get("added_tokens", [])
    for step in _steps(document.get("normalizer"), "normalizers"):
        if step.get("type") == "Prepend" and step.get("prepend") == SPACE:
            # A token that is matched in normalized text has no such step behind it.
            return BlankPrefix(True, frozenset(token["id"] for token in added if not token.get("normalized")))
    for step in _steps(document.get("pre_tokenizer"), "pretokenizers"):
        scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space") else "never")
        if step.get("type") == "Metaspace" and scheme != "never":
            return BlankPrefix(True, frozenset(token["id"] for token in added if scheme == "always"))
    return BlankPrefix()


def _steps(section: Any, of_sequence: str) -> list[dict[str, Any]]:
    if not isinstance(section, dict):
        return []
    return list(section.get(of_sequence, [])) if section.get("type") == "Sequence" else [section]
