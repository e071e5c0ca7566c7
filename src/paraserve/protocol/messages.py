"""Chat messages: checked by type, kept as the client sent them.

A chat template may read fields that no API names, so a message travels as the decoded JSON object. The structs here
exist to check it. The one rewrite is a repair of the protocol: an ``image_url`` (``video_url``, ``audio_url``) that
is a bare string becomes the object form.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, from_validation

Message = dict[str, Any]
Part = dict[str, Any]


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

_URL_PARTS = ("image_url", "video_url", "audio_url")
_PART_FIELDS = ("text", *_URL_PARTS)
"""A part of one of these types carries its value in the field of the same name."""


def check_messages(messages: list[Message], param: str = "messages") -> list[Message]:
    """Check every message and repair bare URLs.

    Returns:
        The same list when nothing was repaired, else a new one that shares the untouched messages.

    Raises:
        RequestError: 400, ``param`` names the message and field.
    """
    if not messages:
        raise RequestError(f"{param}: at least one message is required", param=param, code=ErrorCode.INVALID_VALUE)
    repaired = [_repair(message) for message in messages]
    try:
        msgspec.convert(repaired, list[AnyMessage])
    except msgspec.ValidationError as error:
        raise from_validation(error, param) from None
    for i, message in enumerate(repaired):
        _check_parts(message.get("content"), f"{param}[{i}].content")
    return repaired


def _repair(message: Message) -> Message:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or not any(_bare_url(part) for part in content):
        return message
    return {**message, "content": [_wrap_url(part) if _bare_url(part) else part for part in content]}


def _bare_url(part: Any) -> bool:
    return isinstance(part, dict) and any(isinstance(part.get(key), str) for key in _URL_PARTS)


def _wrap_url(part: Part) -> Part:
    return {
        key: {"url": value} if key in _URL_PARTS and isinstance(value, str) else value for key, value in part.items()
    }


def _check_parts(content: Any, param: str) -> None:
    for j, part in enumerate(content if isinstance(content, list) else ()):
        field = part["type"]
        if field in _PART_FIELDS and field not in part:
            where = f"{param}[{j}].{field}"
            raise RequestError(f"{where}: field required", param=where, code=ErrorCode.MISSING_REQUIRED_PARAMETER)
