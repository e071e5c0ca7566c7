"""Tool results in text parts, as the one string that templates of some models want.

The texts are joined without a separator: that is what the templates of GLM and Kimi do with a list of parts
themselves, and it adds nothing that the tool did not say.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paraserve.policies.base import Policy, PolicyContext
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.messages import Message


def flatten_tool_text(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """Join the content of tool messages that is a list of plain text parts only."""
    messages = [_flat(message) for message in request.messages]
    if all(flat is message for flat, message in zip(messages, request.messages, strict=True)):
        return request
    return msgspec.structs.replace(request, messages=messages)


def _flat(message: Message) -> Message:
    content = message.get("content")
    if message["role"] != "tool" or not isinstance(content, list) or not all(map(_is_plain_text, content)):
        return message
    return {**message, "content": "".join(part["text"] for part in content)}


def _is_plain_text(part: dict[str, Any]) -> bool:
    return part.keys() == {"type", "text"} and part["type"] == "text"


POLICY = Policy(
    setting="openai_flatten_tool_role_text_content",
    summary="A tool message's list of text parts reaches the template as one string.",
    apply=flatten_tool_text,
)
