"""The images, videos and audio of a conversation, for engines that take them.

Never fetches anything: an engine gets web addresses and data URLs, and does. Three invariants: items come in the order
of the prompt; a kind that the engine does not take is refused, never left out; and nothing but a web address or data
reaches an engine, which might open a path of its own machine otherwise.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paraserve.engines.base import MediaItem
from paraserve.prompt.errors import PromptError
from paraserve.prompt.parts import Part, media_kind
from paraserve.protocol.error_codes import ErrorCode

WEB_ADDRESSES = ("http://", "https://")

MEDIA_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
"""Where in a file which bytes say what it is (the formats' own specifications)."""

WHOLE_DETAIL = ("auto", "high", "original")
"""Values of ``detail`` that are served; ``low`` would cost the tokens of the whole image."""

_HEAD_CHARS = 64
"""Base64 that is looked at: enough for every signature, however large the file."""


def collect_media(messages: Sequence[Mapping[str, Any]], kinds: frozenset[str]) -> tuple[MediaItem, ...]:
    """Every media part.

    Args:
        messages: the conversation as the client sent it.
        kinds: what the engine takes: ``image``, ``video``, ``audio``.

    Raises:
        PromptError: that names the part which the engine does not take, or which holds nothing that it may have.
    """
    items = []
    for part, path in _parts(messages):
        kind = media_kind(part)
        if kind is None:
            continue
        if kind not in kinds:
            raise PromptError(f"{path}: this model does not take {kind} input", path, ErrorCode.UNSUPPORTED_CONTENT)
        _check_detail(part, path)
        items.append(MediaItem(kind, _url(part, path)))
    return tuple(items)


def _parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Part, str]]:
    for place, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            for number, part in enumerate(content):
                yield part, f"messages[{place}].content[{number}]"


def _url(part: Part, path: str) -> str:
    """The web address or data URL of a media part, however it is spelled."""
    kind: str = part["type"]
    field = {"input_image": "image_url", "input_video": "video_url"}.get(kind, kind)
    value: Any = part.get(field, part.get("url"))
    declared: Any = None
    if isinstance(value, Mapping):
        declared = value.get("format")
        value = value.get("data") or value.get("url")
    if not isinstance(value, str) or not value:
        raise PromptError(f"{path}: this {kind} part holds no URL and no data", path)
    scheme = value[:8].lower()
    if scheme.startswith(WEB_ADDRESSES) or (scheme.startswith("data:") and "," in value):
        return value
    found = _content_type(value)
    if found is None:
        raise PromptError(f"{path}: this {kind} part holds no http or https URL, no data URL and no base64", path)
    if isinstance(declared, str) and declared.isalnum():
        found = f"{media_kind(part)}/{declared}"
    return f"data:{found};base64,{value}"


def _content_type(text: str) -> str | None:
    """What base64 holds, as far as its first bytes say; None for text that is no base64."""
    try:
        head = base64.b64decode(text[:_HEAD_CHARS], validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(text) % 4:
        return None
    named = (name for at, signature, name in MEDIA_SIGNATURES if head[at:].startswith(signature))
    return next(named, "application/octet-stream")


def _check_detail(part: Part, path: str) -> None:
    """Every engine takes an image in the detail that the model's own processor gives it: there is no less of it."""
    value = part.get(part["type"])
    detail = part.get("detail", value.get("detail") if isinstance(value, Mapping) else None)
    if detail is not None and detail not in WHOLE_DETAIL:
        named = f"{path}.{part['type']}.detail"
        raise PromptError(f"{named}: the engine has no such detail: leave it out, or say auto", named)
