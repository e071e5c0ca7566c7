"""Content parts: what a part of a message's content holds, whichever of its usual spellings a client used.

Never knows templates. One invariant: a part is either text, or media of one kind, or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from paraserve.prompt.errors import PromptError

MediaKind = Literal["image", "video", "audio"]
Part = Mapping[str, Any]

TEXT_FIELDS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Part types that hold text, and the field they hold it in."""

MEDIA_TYPES: Mapping[str, MediaKind] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "video_url": "video",
    "input_video": "video",
    "video": "video",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio": "audio",
}

THINKING_TYPE = "thinking"
"""A part that holds reasoning, in templates that take it so."""

TEXT_JOINER = ""
"""What stands between the joined texts of parts. Every chat template seen that takes a list writes its texts with
nothing between (33 of 33 for user messages, docs/prompt.md), so that a joined list reads as it would there."""


def part_text(part: Part) -> str | None:
    """The text of a text part, None for a part of another kind."""
    field = TEXT_FIELDS.get(part.get("type", "text"))
    text = part.get(field) if field else None
    return text if isinstance(text, str) else None


def media_kind(part: Part) -> MediaKind | None:
    return MEDIA_TYPES.get(part.get("type", ""))


def joined_text(parts: Sequence[Part]) -> str:
    return TEXT_JOINER.join(text for text in map(part_text, parts) if text is not None)


def check_part(part: object, path: str) -> None:
    """Refuse what is neither text nor media. Raises `PromptError` that names the part."""
    if not isinstance(part, Mapping):
        raise PromptError(f"{path}: a content part must be an object", path)
    kind = part.get("type", "text")
    if kind in TEXT_FIELDS:
        if part_text(part) is None:
            raise PromptError(
                f"{path}.{TEXT_FIELDS[kind]}: a {kind} part needs a string", f"{path}.{TEXT_FIELDS[kind]}"
            )
    elif kind == THINKING_TYPE:
        if not isinstance(part.get(THINKING_TYPE), str):
            raise PromptError(f"{path}.thinking: a thinking part needs a string", f"{path}.thinking")
    elif kind not in MEDIA_TYPES:
        raise PromptError(f"{path}.type: parts of this type are not supported", f"{path}.type")
