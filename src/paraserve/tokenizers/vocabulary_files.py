"""The tokenizer of a checkpoint that ships ``vocab.json`` and ``merges.txt`` and no ``tokenizer.json``.

The two files do not say how text is cut before it is merged: that is code in `transformers`, by ``tokenizer_class``, so
`transformers` makes the ``tokenizer.json``. It is no part of the base install, and imported when such a checkpoint is
read. Two invariants: every id of ``vocab.json`` is the tokenizer's, and on the corpus its ids are those that
`transformers` itself gives; else a `CheckpointError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.exactness import first_difference, probe_texts
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer

EXTRA = "paraserve[transformers]"
_INSTEAD = "give a directory that has a tokenizer.json with --tokenizer-path"


def has_vocabulary_files(directory: Path) -> bool:
    return (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file()


def read_vocabulary_files(directory: Path, config: Mapping[str, Any]) -> HuggingFaceTokenizer:
    """Args: config: ``tokenizer_config.json``, decoded. Raises `CheckpointError`."""
    path = directory / "vocab.json"
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise CheckpointError(
            f"{path} is read with the package transformers, which is not installed: pip install '{EXTRA}'"
        ) from error
    try:
        vocabulary = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        reference = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        document = reference.backend_tokenizer.to_str()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"transformers cannot read the tokenizer in {directory}: {said}") from error
    tokenizer = HuggingFaceTokenizer(document, config, source=str(path))
    _check_vocabulary(path, vocabulary, msgspec.json.decode(document)["model"].get("vocab"))
    difference = first_difference(
        lambda text: [tokenizer.encode(text, add_special_tokens=special) for special in (False, True)],
        lambda text: [reference.encode(text, add_special_tokens=special) for special in (False, True)],
        probe_texts(tokenizer.added_tokens),
    )
    if difference is not None:
        raise CheckpointError(f"the ids of {path} differ from those of transformers on {difference!r}; {_INSTEAD}")
    return tokenizer


def _check_vocabulary(path: Path, stated: Mapping[str, int], made: Any) -> None:
    if not isinstance(made, dict):
        raise CheckpointError(f"transformers made no byte-pair vocabulary of {path}; {_INSTEAD}")
    lost = next((text for text, number in stated.items() if made.get(text) != number), None)
    if lost is not None:
        raise CheckpointError(f"transformers gives {lost!r} another id than {path}; {_INSTEAD}")
