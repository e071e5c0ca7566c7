"""Content parts: what a part of a message's content holds, whichever of its usual spellings a client used.

Never knows templates. One invariant: a part is either text, or
a thought, or media of one kind; others were refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.protocol.messages import MEDIA_TYPES, TEXT_FIELDS, THOUGHT_FIELDS, MediaKind

Part = Mapping[str, Any]

TEXT_JOINER = ""
"""What stands between the joined texts of parts. Every chat template seen that takes a list writes its texts with
nothing between (33 of 33 for user messages, docs/prompt.md), so that a joined list reads as it would there."""


def part_text(part: Part) -> str | None:
    """The text of a text part, None for a part of another kind."""
    field = TEXT_FIELDS.get(part.get("type", "text"))
    text = part.get(field) if field else None
    return text if isinstance(text, str) else None


def thought_text(part: Part) -> str | None:
    """The text of a part that holds reasoning, None for a part of another kind."""
    fields = THOUGHT_FIELDS.get(part.get("type", ""), ())
    value = next((part[field] for field in fields if part.get(field) is not None), None)
    return joined_text(value) if isinstance(value, list) else value


def joined_contents(contents: Sequence[Any], joiner: str) -> Any:
    """Contents, each a text or a list of parts, as one; ``joiner`` stands between those that hold something. A text
    where none holds media."""
    said = [content for content in contents if content]
    if all(isinstance(content, str) or all(part_text(part) is not None for part in content) for content in said):
        texts = (content if isinstance(content, str) else joined_text(content) for content in said)
        return joiner.join(filter(None, texts))
    joined: list[Part] = []
    for content in said:
        between = [{"type": "text", "text": joiner}] if joined else []
        joined += [*between, *([{"type": "text", "text": content}] if isinstance(content, str) else content)]
    return joined


def media_kind(part: Part) -> MediaKind | None:
    return MEDIA_TYPES.get(part.get("type", ""))


def joined_text(parts: Sequence[Part]) -> str:
    return TEXT_JOINER.join(text for text in map(part_text, parts) if text is not None)
