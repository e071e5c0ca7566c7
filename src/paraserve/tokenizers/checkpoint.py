"""What a checkpoint's own files say: tokenizer, chat templates, sampling defaults, end tokens, context length.

Never knows requests or engines, and loads no weights. Two invariants: a value that no file states is None or empty,
never a guess, and a file that is there but cannot be used is a `CheckpointError` that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paraserve.tokenizers.base import CheckpointError, Tokenizer, reading
from paraserve.tokenizers.gguf import GgufModel, gguf_model, gguf_tokenizer
from paraserve.tokenizers.huggingface import (
    HuggingFaceTokenizer,
    read_object,
    read_tokenizer_config,
    special_tokens,
    token_ids,
    whole_number,
)
from paraserve.tokenizers.sentencepiece import SentencePieceTokenizer
from paraserve.tokenizers.sentencepiece_files import model_file
from paraserve.tokenizers.tekken import TekkenTokenizer
from paraserve.tokenizers.tiktoken import TiktokenTokenizer
from paraserve.tokenizers.vocabulary_files import has_vocabulary_files, read_vocabulary_files

DEFAULT_TEMPLATE = "default"
TOOL_TEMPLATE = "tool_use"
"""The named template that is used when a request declares tools (a convention of Hugging Face)."""

CONTEXT_LENGTH_KEYS = (
    "max_position_embeddings",
    "model_max_length",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_positions",
)
"""The names under which ``config.json`` files state the context length, most usual first."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts of one checkpoint, read once at start."""

    path: Path
    tokenizer: Tokenizer
    templates: Mapping[str, str]
    """The texts of the chat templates by name; empty where the checkpoint ships none. `DEFAULT_TEMPLATE` is there
    whenever there is any."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """``bos_token`` and its like: variables of every template."""
    eos_token_ids: frozenset[int] = frozenset()
    """Every end token that any file names: tokenizer, ``config.json``, ``generation_config.json``."""
    context_length: int | None = None
    """Tokens of prompt and reply together that the model was made for."""
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    """``generation_config.json`` as it stands: the model's own sampling defaults."""
    response_template: Any = None
    """``response_template`` of the tokenizer config: the family's output format as data, where it has one."""
    template_files: Mapping[str, Path] = field(default_factory=dict)
    """Where each of the templates stands."""


def load_checkpoint(
    model_path: Path, *, tokenizer_path: Path | None = None, chat_template: str | None = None
) -> Checkpoint:
    """Read a checkpoint.

    Args:
        model_path: a directory in Hugging Face's layout, or a ``.gguf`` file.
        tokenizer_path: a directory (or ``.gguf`` file) to take tokenizer and templates from instead.
        chat_template: a file with a template, or the name of one of the checkpoint's templates.

    Raises:
        CheckpointError: with what is missing and what to do.
    """
    if not model_path.exists():
        raise CheckpointError(f"there is no model at {model_path}: give a directory of a checkpoint or a .gguf file")
    source = tokenizer_path or model_path
    if not source.exists():
        raise CheckpointError(f"there is no tokenizer at {source}: --tokenizer-path takes a directory or a .gguf file")
    gguf = {path: gguf_model(path) for path in {model_path, source} if path.is_file()}
    model = _read_model(model_path, gguf.get(model_path))
    config = {} if source.is_file() else read_tokenizer_config(source / _TOKENIZER_CONFIG)
    tokenizer, specials = _read_tokenizer(source, config, gguf.get(source))
    sources = _read_templates(source, gguf.get(source)) or _read_templates(model_path, gguf.get(model_path))
    templates = _choose_templates(sources, chat_template)
    return Checkpoint(
        path=model_path,
        tokenizer=tokenizer,
        templates={name: template.text for name, template in templates.items()},
        template_files={name: template.path for name, template in templates.items()},
        special_tokens=specials,
        eos_token_ids=tokenizer.eos_token_ids | model.eos_token_ids,
        context_length=model.context_length,
        generation_config=model.generation_config,
        response_template=config.get("response_template"),
    )


_TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True)
class _ModelFiles:
    context_length: int | None
    eos_token_ids: frozenset[int]
    generation_config: Mapping[str, Any] = field(default_factory=dict)


def _read_model(path: Path, model: GgufModel | None) -> _ModelFiles:
    if model is not None:
        return _ModelFiles(model.context_length, model.eos_token_ids)
    with reading(file := path / "config.json"):
        config = read_object(file)
        context_length, ends = context_length_of(config), _eos_ids(config)
    with reading(file := path / "generation_config.json"):
        generation = read_object(file)
        return _ModelFiles(context_length, ends | _eos_ids(generation), generation)


def _read_tokenizer(path: Path, config: Mapping[str, Any], gguf: GgufModel | None) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer, and its named special tokens."""
    if gguf is not None:
        return gguf_tokenizer(path, gguf.metadata), dict(gguf.special_tokens)
    if (file := path / "tokenizer.json").is_file():
        with reading(file):
            text = file.read_text(encoding="utf-8")
        tokenizer: Tokenizer = HuggingFaceTokenizer(text, config, source=str(file))
    elif (path / "tiktoken.model").is_file():
        if not config:
            raise CheckpointError(
                f"there is no {path / _TOKENIZER_CONFIG}, to name the special tokens of tiktoken.model"
            )
        tokenizer = TiktokenTokenizer(path / "tiktoken.model", config)
    elif (path / "tekken.json").is_file():
        tokenizer = TekkenTokenizer(path / "tekken.json")
        return tokenizer, dict(tokenizer.special_tokens)
    elif (model := model_file(path)) is not None:
        tokenizer = SentencePieceTokenizer(model)
        return tokenizer, dict(tokenizer.special_tokens)
    elif has_vocabulary_files(path):
        tokenizer = read_vocabulary_files(path, config)
    else:
        raise CheckpointError(
            f"{path} has no tokenizer.json, tiktoken.model, tekken.json, tokenizer.model or vocab.json: "
            "give a directory that has one with --tokenizer-path"
        )
    return tokenizer, special_tokens(config)


class _Template(NamedTuple):
    text: str
    path: Path


def _read_templates(path: Path, gguf: GgufModel | None) -> dict[str, _Template]:
    """Template files win over the tokenizer config, as in `transformers`."""
    if gguf is not None:
        return {name: _Template(text, path) for name, text in gguf.chat_templates.items()}
    config = path / _TOKENIZER_CONFIG
    declared = read_tokenizer_config(config).get("chat_template") or {}
    if isinstance(declared, str):
        declared = {DEFAULT_TEMPLATE: declared}
    elif isinstance(declared, list):
        declared = {entry["name"]: entry["template"] for entry in declared}
    templates = {name: _Template(text, config) for name, text in declared.items()}
    for file in sorted((path / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = _template_file(file)
    if (file := path / "chat_template.jinja").is_file():
        templates[DEFAULT_TEMPLATE] = _template_file(file)
    elif (file := path / "chat_template.json").is_file():
        # The layout of processors of 2024: one key.
        templates[DEFAULT_TEMPLATE] = _Template(str(read_object(file).get("chat_template", "")), file)
    return templates


def _template_file(path: Path) -> _Template:
    with reading(path):
        return _Template(path.read_text(encoding="utf-8"), path)


def _choose_templates(sources: Mapping[str, _Template], wanted: str | None) -> dict[str, _Template]:
    """All of the checkpoint's, or the one that the operator asked for, which then serves every request."""
    if wanted is not None and wanted in sources:
        return {DEFAULT_TEMPLATE: sources[wanted]}
    if wanted is not None:
        path = Path(wanted)
        if not path.is_file():
            known = ", ".join(sorted(sources)) or "none"
            raise CheckpointError(
                f"--chat-template {wanted}: there is no such file, and the checkpoint's templates are: {known}"
            )
        return {DEFAULT_TEMPLATE: _template_file(path)}
    if sources and DEFAULT_TEMPLATE not in sources:
        raise CheckpointError(
            f"{next(iter(sources.values())).path}: there is no default chat template; choose one with --chat-template: "
            + ", ".join(sorted(sources))
        )
    return dict(sources)


def context_length_of(config: Mapping[str, Any]) -> int | None:
    """Tokens that ``config.json`` says the model was made for, looked for at its top and in the text model's part.

    YaRN states how far it stretches the positions it started from, and that product is the length (the convention of
    vLLM and SGLang; some configs keep the length before stretching in ``max_position_embeddings``).
    """
    for part in (config, *(config.get(name) for name in ("text_config", "llm_config", "language_config"))):
        if not isinstance(part, Mapping):
            continue
        for key in CONTEXT_LENGTH_KEYS:
            if length := whole_number(part.get(key)):
                return _scaled(length, part.get("rope_scaling") or part.get("rope_parameters"))
    return None


def _scaled(length: int, scaling: Any) -> int:
    if not isinstance(scaling, Mapping) or scaling.get("rope_type", scaling.get("type")) != "yarn":
        return length
    factor = scaling.get("factor")
    if not isinstance(factor, (int, float)):
        return length
    return max(length, int(scaling.get("original_max_position_embeddings", length) * factor))


def _eos_ids(config: Mapping[str, Any]) -> frozenset[int]:
    value = config.get("eos_token_id")
    if value is None and isinstance(config.get("text_config"), Mapping):
        value = config["text_config"].get("eos_token_id")
    return token_ids(value if isinstance(value, list) else [value])
