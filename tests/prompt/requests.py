"""Chat requests as the prompt's room sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.protocol.chat import ChatCompletionRequest


def asked(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ChatCompletionRequest:
    """A request that was decoded; nothing of it is checked here."""
    return ChatCompletionRequest(
        messages=messages,  # type: ignore[arg-type]
        tools=tools,  # type: ignore[arg-type]
        chat_template_kwargs=template_kwargs,  # type: ignore[arg-type]
        **fields,
    )
