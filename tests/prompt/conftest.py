"""The way from a template's text to a `ChatPrompt`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.state import StartMarkers
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer


@pytest.fixture
def make_prompt() -> Callable[..., ChatPrompt]:
    """`ChatPrompt` of a template's text; keyword arguments go through."""

    def make(source: str, *, tokenizer: Any = None, special_tokens: Any = None, **arguments: Any) -> ChatPrompt:
        checkpoint = Checkpoint(
            path=Path("model"),
            tokenizer=tokenizer or ByteTokenizer(),
            templates={"default": source},
            special_tokens=special_tokens or {"bos_token": "<s>", "eos_token": "</s>"},
        )
        return ChatPrompt(checkpoint, markers=StartMarkers((("<think>", "</think>"),)), **arguments)

    return make
