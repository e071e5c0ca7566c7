"""Whether a rendered prompt still holds the texts that templates are known to drop: those beside tool calls.

Never renders and never refuses. One invariant: texts are looked for in the order of the conversation, each behind the
one before it, so that a text that was said twice has to be there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paraserve.prompt.parts import part_text
from paraserve.prompt.state import StartMarkers


def shows_text_beside_calls(messages: Sequence[Mapping[str, Any]], prompt: str, markers: StartMarkers) -> bool:
    """``messages`` as the client sent them. Reasoning spelled in a text may be dropped, as templates do."""
    place = 0
    for text in _texts_beside_calls(messages):
        for _, closing in markers.reasoning:
            text = text.rpartition(closing.strip())[2]
        text = text.strip()
        place = prompt.find(text, place)
        if place < 0:
            return False
        place += len(text)
    return True


def _texts_beside_calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message.get("tool_calls"):
            content = message.get("content")
            if isinstance(content, str):
                yield content
            else:
                yield from (text for part in content or () if (text := part_text(part)) is not None)
