"""Chat messages: checked once, kept as the client sent them.

A chat template may read fields that no API names, so a message travels as the decoded JSON object. The structs here
exist to check it. The one rewrite is a repair of the protocol: an ``image_url`` (``video_url``, ``audio_url``) that
is a bare string becomes the object form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error, from_validation

Message = dict[str, Any]
Part = dict[str, Any]
MediaKind = Literal["image", "video", "audio"]


class MediaUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class ContentPart(msgspec.Struct):
    type: str
    text: str | msgspec.UnsetType = msgspec.UNSET
    image_url: MediaUrl | msgspec.UnsetType = msgspec.UNSET
    video_url: MediaUrl | msgspec.UnsetType = msgspec.UNSET
    audio_url: MediaUrl | msgspec.UnsetType = msgspec.UNSET


Content = str | list[ContentPart] | None


class PastFunctionCall(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | list[Any] | None = None
    """A JSON text by the API. What else may stand here, and what becomes of it, is ``prompt``'s rule."""


class PastToolCall(msgspec.Struct):
    function: PastFunctionCall
    id: str | None = None
    type: Literal["function"] = "function"


class MessageFields(msgspec.Struct, tag_field="role"):
    content: Content = None


class SystemMessage(MessageFields, tag="system"):
    pass


class DeveloperMessage(MessageFields, tag="developer"):
    pass


class UserMessage(MessageFields, tag="user"):
    pass


class AssistantTurn(MessageFields, tag="assistant"):
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[PastToolCall] | None = None
    refusal: str | None = None
    function_call: None = None
    """OpenAI's form before ``tool_calls``: no template reads it, and the call would be lost."""


class ToolMessage(MessageFields, tag="tool"):
    tool_call_id: str | None = None


AnyMessage = SystemMessage | DeveloperMessage | UserMessage | AssistantTurn | ToolMessage

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

THOUGHT_FIELDS: Mapping[str, tuple[str, ...]] = {THINKING_TYPE: (THINKING_TYPE,), "reasoning": ("text", "reasoning")}
"""Part types that hold reasoning, and the field they hold it in: a text, or a list of text parts (Mistral's chunks)."""

_URL_PARTS = ("image_url", "video_url", "audio_url")
_PART_FIELDS = ("text", *_URL_PARTS)
"""A part of one of these types carries its value in the field of the same name."""


def check_messages(messages: list[Message]) -> list[Message]:
    """Check that every message is whole, that all belong together, and repair bare URLs.

    Returns:
        The same list when nothing was repaired, else a new one that shares the untouched messages.

    Raises:
        RequestError: 400, ``param`` names the message and field (``messages[2].tool_calls[0].function.name``).
    """
    if not messages:
        raise field_error("messages", "at least one message is required")
    for place, message in enumerate(messages):
        if message.get("role") == "function":
            why = "the function role is not supported; send the result with role tool and a tool_call_id"
            raise field_error(f"messages[{place}].role", why)
    repaired = [_repair(message) for message in messages]
    try:
        msgspec.convert(repaired, list[AnyMessage])
    except msgspec.ValidationError as error:
        raise from_validation(error, "messages", list[AnyMessage]) from None
    call_ids: set[str] = set()
    for place, message in enumerate(repaired):
        _check_message(message, f"messages[{place}]", call_ids)
    return repaired


def _check_message(message: Message, path: str, call_ids: set[str]) -> None:
    """What the types do not say. ``call_ids`` are those of the calls so far."""
    role, content = message["role"], message.get("content")
    declares = role != "user" and bool(message.get("tools"))
    if content is None and role in ("user", "system", "developer") and not declares:
        raise field_error(f"{path}.content", f"a {role} message needs content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            _check_part(part, f"{path}.content[{place}]")
    if role == "assistant":
        for place, call in enumerate(message.get("tool_calls") or ()):
            if not call["function"]["name"]:
                raise field_error(f"{path}.tool_calls[{place}].function.name", "a tool call needs its function's name")
            if not call.get("id"):
                raise field_error(f"{path}.tool_calls[{place}].id", "a tool call needs an id")
            call_ids.add(call["id"])
    elif role == "tool":
        answers = message.get("tool_call_id")
        if not answers:
            raise field_error(f"{path}.tool_call_id", "a tool message needs the id of the call that it answers")
        if answers not in call_ids:
            why = "no assistant message before this one has a tool call with this id"
            raise field_error(f"{path}.tool_call_id", why)


def _check_part(part: Part, path: str) -> None:
    """Refuse what is neither text nor media."""
    kind = part["type"]
    if kind in _PART_FIELDS:
        if kind not in part:
            raise field_error(f"{path}.{kind}", "field required", ErrorCode.MISSING_REQUIRED_PARAMETER)
    elif kind in TEXT_FIELDS:
        if not isinstance(part.get(TEXT_FIELDS[kind]), str):
            raise field_error(f"{path}.{TEXT_FIELDS[kind]}", f"a {kind} part needs a string")
    elif kind in THOUGHT_FIELDS:
        field = next((name for name in THOUGHT_FIELDS[kind] if part.get(name) is not None), THOUGHT_FIELDS[kind][0])
        if not _is_thought(part.get(field)):
            raise field_error(f"{path}.{field}", f"a {kind} part needs a string, or a list of text parts")
    elif kind not in MEDIA_TYPES:
        raise field_error(f"{path}.type", "parts of this type are not supported")


def _is_thought(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in value)
    return isinstance(value, str)


def _repair(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(_bare_url(part) for part in content):
        return message
    return {**message, "content": [_wrap_url(part) if _bare_url(part) else part for part in content]}


def _bare_url(part: Any) -> bool:
    return isinstance(part, dict) and any(isinstance(part.get(key), str) for key in _URL_PARTS)


def _wrap_url(part: Part) -> Part:
    return {
        key: {"url": value} if key in _URL_PARTS and isinstance(value, str) else value for key, value in part.items()
    }
