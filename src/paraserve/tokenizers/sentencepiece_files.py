"""What the files of a SentencePiece checkpoint say: pieces, added tokens, and the rule for the blank in front of text.

Never encodes. Two invariants: an id or a rule that two files state differently is a `CheckpointError`, and so is
one that no file states where `transformers` and SentencePiece would not fill it in alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from paraserve.tokenizers.base import CheckpointError, reading
from paraserve.tokenizers.huggingface import (
    SPECIAL_TOKEN_NAMES,
    TokenId,
    declared_tokens,
    read_object,
    read_tokenizer_config,
    token_text,
)
from paraserve.tokenizers.sentencepiece_merges import (
    BYTE,
    CONTROL,
    FLAGS,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    MatchedToken,
)
from paraserve.tokenizers.token_table import PieceDecoder, metaspace_decoder

EXTRA = "paraserve[sentencepiece]"

PLAIN_CLASSES = frozenset({"LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizer", "TokenizersBackend"})
"""Values of ``tokenizer_class`` (``Fast`` left off) whose ids are SentencePiece's own, added tokens aside."""


@dataclass(frozen=True, slots=True)
class SentencePieceFiles:
    """One checkpoint's tokenizer as its files state it."""

    path: Path
    model: Any
    """SentencePiece's ``ModelProto``."""
    matched: tuple[MatchedToken, ...]
    special_tokens: Mapping[str, str]
    """Named special tokens, by the variable that templates read."""
    legacy: bool
    """Whether the dummy prefix stands in front of every text between matched tokens, or only of the first."""
    add_bos: bool
    add_eos: bool

    @property
    def dummy_prefix(self) -> bool:
        """Whether SentencePiece puts a blank in front of a text."""
        return bool(self.model.normalizer_spec.add_dummy_prefix)

    @property
    def user_defined(self) -> dict[str, int]:
        """Pieces that SentencePiece itself never cuts."""
        return {piece.piece: number for number, piece in enumerate(self.model.pieces) if piece.type == USER_DEFINED}

    def pieces(self) -> dict[int, bytes]:
        """The bytes of every piece."""
        metaspace: PieceDecoder = metaspace_decoder()
        return {
            number: metaspace(piece.piece) if piece.type in (NORMAL, USER_DEFINED, BYTE) else piece.piece.encode()
            for number, piece in enumerate(self.model.pieces)
        }


def model_file(directory: Path) -> Path | None:
    """``tokenizer.model``, or the one ``tokenizer.model.v*`` (Mistral's spelling); None where there is neither."""
    named = directory / "tokenizer.model"
    versions = sorted(directory.glob("tokenizer.model.v[0-9]*"))
    return named if named.is_file() else versions[0] if len(versions) == 1 else None


def read_files(path: Path) -> SentencePieceFiles:
    """The model at ``path``, and the tokenizer's configuration beside it. Raises `CheckpointError`."""
    model = _read_model(path)
    config = read_tokenizer_config(path.parent / "tokenizer_config.json")
    _check_class(path, config)
    _check_prefix(path, config, model)
    if "added_tokens_decoder" not in config:
        config |= read_object(path.parent / "special_tokens_map.json")
    named = _named_tokens(config, model)
    matched = _matched_tokens(path, config, model, named)
    return SentencePieceFiles(
        path=path,
        model=model,
        matched=matched,
        special_tokens=named,
        # Absent: what Transformers 4 took, and with it whoever trained a checkpoint that does not say.
        legacy=config.get("legacy") is not False,
        add_bos="bos_token" in named and config.get("add_bos_token") is not False,
        add_eos="eos_token" in named and config.get("add_eos_token") is True,
    )


def _read_model(path: Path) -> Any:
    try:
        import sentencepiece  # noqa: F401
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
    except ImportError as error:
        raise CheckpointError(
            f"{path} is read with the package sentencepiece, which is not installed: pip install '{EXTRA}'"
        ) from error
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError as error:
        raise CheckpointError(f"{path} is no SentencePiece model; {_INSTEAD}") from error
    if not model.pieces:
        raise CheckpointError(f"{path} is no SentencePiece model: it has no pieces; {_INSTEAD}")
    if model.trainer_spec.model_type not in (1, 2) or model.trainer_spec.treat_whitespace_as_suffix:
        raise CheckpointError(f"{path} is neither BPE nor Unigram with blanks in front of words; {_INSTEAD}")
    return model


_INSTEAD = "give a directory that has a tokenizer.json with --tokenizer-path"


def _check_class(path: Path, config: Mapping[str, Any]) -> None:
    """Another class may shift ids or cut text in ways that only its code states."""
    name = config.get("tokenizer_class")
    custom = config.get("auto_map")
    if isinstance(custom, dict) and custom.get("AutoTokenizer"):
        raise CheckpointError(f"the tokenizer of {path} is Python code of the checkpoint, not run here; {_INSTEAD}")
    if name is not None and str(name).removesuffix("Fast") not in PLAIN_CLASSES:
        raise CheckpointError(f"{path} is read by a {name}, whose ids are not known to be its own; {_INSTEAD}")


def _check_prefix(path: Path, config: Mapping[str, Any], model: Any) -> None:
    stated, own = config.get("add_prefix_space"), bool(model.normalizer_spec.add_dummy_prefix)
    if stated is not None and stated is not own:
        raise CheckpointError(
            f"add_prefix_space is {str(stated).lower()} in the tokenizer config, and {path} itself says the opposite "
            f"(add_dummy_prefix); {_INSTEAD}"
        )


def _named_tokens(config: Mapping[str, Any], model: Any) -> dict[str, str]:
    """Those of the config; where it does not speak of one, the model's own beginning, end and unknown."""
    spec, count = model.trainer_spec, len(model.pieces)
    own = {"bos_token": spec.bos_id, "eos_token": spec.eos_id, "unk_token": spec.unk_id}
    named = {name: model.pieces[number].piece for name, number in own.items() if 0 <= number < count}
    stated = {name: token_text(config[name]) or "" for name in SPECIAL_TOKEN_NAMES if name in config}
    return {name: text for name, text in (named | stated).items() if text}


def _matched_tokens(
    path: Path, config: Mapping[str, Any], model: Any, named: Mapping[str, str]
) -> tuple[MatchedToken, ...]:
    """What the config adds, and what the model holds as control symbols: a template writes both to mean the token."""
    pieces = {piece.piece: number for number, piece in enumerate(model.pieces)}
    found: dict[str, MatchedToken] = {
        piece.piece: MatchedToken(number, piece.piece, special=True)
        for number, piece in enumerate(model.pieces)
        if piece.type == CONTROL
    }
    for token in _stated_tokens(path, config):
        renamed = token.id < len(model.pieces) and model.pieces[token.id].piece != token.text
        if pieces.get(token.text, token.id) != token.id or (
            renamed and model.pieces[token.id].type not in (CONTROL, USER_DEFINED, UNUSED)
        ):
            raise CheckpointError(f"{token.text!r} has the id {token.id} in the tokenizer config, not in {path}")
        if renamed:
            found.pop(model.pieces[token.id].piece, None)
        found[token.text] = token
    for text, spelled in _special_spellings(config, named):
        number = found[text].id if text in found else pieces.get(text)
        if number is None:
            raise CheckpointError(f"the special token {text!r} has an id in no file beside {path}; {_INSTEAD}")
        flags = found.get(text, spelled)
        found[text] = MatchedToken(number, text, True, *(_flag(flags, name) for name in FLAGS))
    if len({token.id for token in found.values()}) < len(found):
        raise CheckpointError(f"two added tokens of the checkpoint at {path.parent} have one id; {_INSTEAD}")
    return tuple(sorted(found.values(), key=lambda token: token.id))


def _stated_tokens(path: Path, config: Mapping[str, Any]) -> Iterator[MatchedToken]:
    """``added_tokens_decoder``; in checkpoints from before it, ``added_tokens.json``."""
    if "added_tokens_decoder" in config:
        for number, token in declared_tokens(config).items():
            yield MatchedToken(number, token.content, bool(token.special), *(_flag(token, name) for name in FLAGS))
        return
    file = path.parent / "added_tokens.json"
    with reading(file):
        added = msgspec.convert(read_object(file), dict[str, TokenId])
    for text, number in added.items():
        yield MatchedToken(number, text, False)


def _special_spellings(config: Mapping[str, Any], named: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Texts of special tokens, with the flags that the config gives them where it gives any."""
    for name, text in named.items():
        yield text, config.get(name)
    for name in ("additional_special_tokens", "extra_special_tokens"):
        listed = config.get(name) or ()
        for spelled in listed.values() if isinstance(listed, dict) else listed:
            if token := token_text(spelled):
                yield token, spelled


def _flag(token: Any, name: str) -> bool:
    return bool(token.get(name)) if isinstance(token, dict) else bool(getattr(token, name, False))
