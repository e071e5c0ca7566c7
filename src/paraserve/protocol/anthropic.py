"""``POST /v1/messages``: Anthropic's request and reply.

Fields that say nothing to a model of ours (``cache_control``, ``metadata``, ``service_tier``, ``container``, betas) are
not decoded. Never knows how a request is served.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paraserve.protocol.body import decoder_of
from paraserve.protocol.models import ModelName


class Base64Source(msgspec.Struct, frozen=True, tag="base64"):
    media_type: str
    data: str


class URLSource(msgspec.Struct, frozen=True, tag="url"):
    url: str


class TextSource(msgspec.Struct, frozen=True, tag="text"):
    data: str


class FileSource(msgspec.Struct, frozen=True, tag="file"):
    file_id: str


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    text: str


class ImageBlock(msgspec.Struct, frozen=True, tag="image"):
    source: Base64Source | URLSource | FileSource


class ContentSource(msgspec.Struct, frozen=True, tag="content"):
    content: str | list[TextBlock | ImageBlock]


class DocumentBlock(msgspec.Struct, frozen=True, tag="document"):
    source: Base64Source | URLSource | TextSource | FileSource | ContentSource
    title: str | None = None
    context: str | None = None


class SearchResultBlock(msgspec.Struct, frozen=True, tag="search_result"):
    source: str
    title: str
    content: list[TextBlock]


class ToolReferenceBlock(msgspec.Struct, frozen=True, tag="tool_reference"):
    tool_name: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(msgspec.Struct, frozen=True, tag="redacted_thinking"):
    data: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any] | None = None


ResultBlock = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock


class ToolResultBlock(msgspec.Struct, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str | list[ResultBlock] | None = None
    is_error: bool | None = None


Block = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
)


class InputMessage(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class AnthropicTool(msgspec.Struct, frozen=True):
    """One of the client's own (``custom``, or no type), or one that Anthropic's servers run."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @property
    def ours(self) -> bool:
        """Whether the client runs it, by a schema that it gives."""
        return self.type in (None, "custom")


class AnthropicToolChoice(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, Meta(ge=1024)] | None = None


class OutputFormat(msgspec.Struct, frozen=True, rename={"schema_": "schema"}):
    type: Literal["json_schema"]
    schema_: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountTokensRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a prompt: the body of ``count_tokens``, and the larger part of a message's."""

    model: ModelName | None = None
    messages: Annotated[list[InputMessage], Meta(description="The conversation.")]
    system: str | list[TextBlock] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Annotated[
        Thinking | None, Meta(description="Whether the model thinks, and for how many tokens; its own way by default.")
    ] = None
    output_config: OutputConfig | None = None
    thread: Any = None
    """A conversation that the server would keep: refused in words after which the SDKs send all of it."""


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    max_tokens: Annotated[
        int, Meta(ge=1, description="Most tokens of the reply; cut to the room that the context has left.")
    ]
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None


decode_messages = decoder_of(MessagesRequest)
decode_count_tokens = decoder_of(CountTokensRequest)
"""What only a reply needs is not looked at."""


class InputTokens(msgspec.Struct, frozen=True):
    input_tokens: int


UNSIGNED = "unsigned"
"""The ``signature`` of every thought: the AI SDK and pydantic-ai give a thought back as one only if it has some."""


class ThinkingContent(msgspec.Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str = UNSIGNED


class TextContent(msgspec.Struct, frozen=True, tag="text"):
    text: str


class ToolUseContent(msgspec.Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw | dict[str, Any]


class OutputTokensDetails(msgspec.Struct, frozen=True):
    thinking_tokens: int


class AnthropicUsage(msgspec.Struct, frozen=True, kw_only=True):
    """``input_tokens`` are those that were not read from a cache: the prompt is the sum of the three."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET


class AnthropicMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[ThinkingContent | TextContent | ToolUseContent]
    stop_reason: str | None
    stop_sequence: str | None
    usage: AnthropicUsage


class AnthropicErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    message: str
    details: dict[str, Any] | None = None


class AnthropicError(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["error"] = "error"
    error: AnthropicErrorDetail
    request_id: str | None


ANTHROPIC_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""``error.type`` of a status; ``api_error`` for all others."""
