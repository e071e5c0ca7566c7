"""A `ChatPrompt` for each real template, made once a session: probing one is the dear part."""

from functools import cache
from pathlib import Path

from paraserve.formats.registry import detect
from paraserve.formats.spec import PLAIN
from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.state import StartMarkers
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


@cache
def real_prompt(path: Path) -> ChatPrompt:
    """An engine behind it takes every kind of media."""
    source = path.read_text()
    format = detect(source, ()) or PLAIN
    checkpoint = Checkpoint(path, ByteTokenizer(), {"default": source}, SPECIAL_TOKENS)
    media = frozenset({"image", "video", "audio"})
    return ChatPrompt(checkpoint, markers=StartMarkers.of(format), media=media, ids=format.ids)


def real_prompts(shared_assets: Path) -> dict[Path, ChatPrompt]:
    made = {path: real_prompt(path) for path in sorted((shared_assets / "templates").glob("*.jinja"))}
    assert len(made) > 70
    return made
