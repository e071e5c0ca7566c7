"""The images, videos and audio of a conversation, for engines that take them.

Never fetches anything: an engine gets URLs and data URLs as the client sent them. One invariant: items come in the
order of the prompt, and a kind that the engine does not take is refused, never left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.engines.base import MediaItem
from paraserve.prompt.errors import PromptError
from paraserve.prompt.parts import media_detail, media_kind, media_url


def collect_media(messages: Sequence[Mapping[str, Any]], kinds: frozenset[str]) -> tuple[MediaItem, ...]:
    """Every media part.

    Args:
        messages: the conversation as the client sent it.
        kinds: what the engine takes: ``image``, ``video``, ``audio``.

    Raises:
        PromptError: that names the part which the engine does not take, or which holds nothing.
    """
    items = []
    for place, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for number, part in enumerate(content):
            kind = media_kind(part)
            if kind is None:
                continue
            path = f"messages[{place}].content[{number}]"
            if kind not in kinds:
                raise PromptError(f"{path}: this model does not take {kind} input", path, "unsupported_content")
            items.append(MediaItem(kind, media_url(part, path), media_detail(part)))
    return tuple(items)
