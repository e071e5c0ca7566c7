"""Tool-call ids of the history in the form that Kimi was trained on: ``functions.NAME:INDEX``.

The index counts over the whole conversation from 0. With other ids in its prompt the model tends to think and then
end the turn with nothing. Only the prompt changes: the client keeps the ids that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paraserve.policies.base import Policy, PolicyContext
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.messages import Message


def canonical_tool_call_ids(messages: Sequence[Message]) -> list[Message]:
    """Messages with canonical ids on calls and on the results that answer them; untouched ones are the same objects.

    A result answers the latest call before it that has its id, so clients that start their ids over in every turn
    are understood.
    """
    renamed: dict[str, str] = {}
    index = 0
    rewritten = []
    for message in messages:
        calls = message.get("tool_calls")
        if message["role"] == "assistant" and calls:
            message, index = _rename_calls(message, index, renamed)
        elif message["role"] == "tool" and (known := renamed.get(message.get("tool_call_id") or "")):
            message = message if message["tool_call_id"] == known else {**message, "tool_call_id": known}
        rewritten.append(message)
    return rewritten


def _rename_calls(message: Message, index: int, renamed: dict[str, str]) -> tuple[Message, int]:
    calls: list[dict[str, Any]] = message["tool_calls"]
    canonical = [f"functions.{call['function']['name']}:{index + i}" for i, call in enumerate(calls)]
    renamed.update({call["id"]: new for call, new in zip(calls, canonical, strict=True) if call.get("id")})
    if any(call.get("id") != new for call, new in zip(calls, canonical, strict=True)):
        calls = [{**call, "id": new} for call, new in zip(calls, canonical, strict=True)]
        message = {**message, "tool_calls": calls}
    return message, index + len(canonical)


def kimi_tool_call_ids(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """Canonical ids in the history."""
    messages = canonical_tool_call_ids(request.messages)
    if all(new is old for new, old in zip(messages, request.messages, strict=True)):
        return request
    return msgspec.structs.replace(request, messages=messages)


POLICY = Policy(
    setting="openai_kimi_tool_call_ids",
    summary="On Kimi models the history's tool-call ids reach the template as functions.NAME:INDEX.",
    model="kimi",
    apply=kimi_tool_call_ids,
)
