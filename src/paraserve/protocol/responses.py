"""``POST /v1/responses`` of OpenAI's Responses API: requests, the items of an input, and what a reply is made of.

An input item is decoded when its place is known (`read_item`), so that one of a kind that nobody here knows does not
refuse the request. Fields that change nothing here (``service_tier``, ``safety_identifier``, …) are not decoded. Never
knows how a request is served.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paraserve.protocol.body import decoder_of
from paraserve.protocol.chat import ReasoningEffort, TokenLogprobEntry
from paraserve.protocol.errors import from_validation
from paraserve.protocol.models import ModelName
from paraserve.protocol.sampling import Seed

Item = dict[str, Any]


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a message, of a call's output or of a reasoning item."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    input_audio: dict[str, Any] | None = None


class MessageItem(msgspec.Struct, frozen=True):
    role: Literal["user", "system", "developer", "assistant"]
    content: str | list[ContentPart]


class ReasoningItem(msgspec.Struct, frozen=True):
    summary: list[ContentPart] | None = None
    content: list[ContentPart] | None = None
    encrypted_content: str | None = None


class FunctionCallItem(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    arguments: str | None = ""
    namespace: str | None = None


class CustomToolCallItem(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    input: str = ""
    namespace: str | None = None


class CallOutputItem(msgspec.Struct, frozen=True):
    call_id: str
    output: str | list[ContentPart] | None = None


ItemType = TypeVar("ItemType", bound=msgspec.Struct)


def read_item(item: Item, type_: type[ItemType], place: str) -> ItemType:
    """Raises `RequestError` that names the field below ``place``."""
    try:
        return msgspec.convert(item, type_)
    except msgspec.ValidationError as error:
        raise from_validation(error, place) from None


class CustomFormat(msgspec.Struct, frozen=True):
    type: str
    syntax: str | None = None
    definition: str | None = None


class ResponsesTool(msgspec.Struct, frozen=True):
    """A tool of any kind; only functions, custom tools and namespaces of them are the client's own."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: CustomFormat | None = None
    tools: list[ResponsesTool] | None = None


class NamedTool(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    namespace: str | None = None


class ToolChoiceObject(NamedTool, frozen=True):
    """A tool that must be called, or (``allowed_tools``) those that may be."""

    mode: Literal["auto", "required"] = "auto"
    tools: list[NamedTool] | None = None


class Reasoning(msgspec.Struct, frozen=True):
    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    """The older name."""


class TextFormat(msgspec.Struct, frozen=True, omit_defaults=True, rename={"schema_": "schema"}):
    type: Literal["text", "json_object", "json_schema"]
    schema_: dict[str, Any] | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    format: TextFormat | None = None
    verbosity: str | None = None


class InputTokensRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a prompt: the body of ``input_tokens``, and the larger part of a response's."""

    model: ModelName | None = None
    input: Annotated[str | list[Item], Meta(description="A text of the user, or the items of a conversation.")]
    instructions: Annotated[str | None, Meta(description="The first system message.")] = None
    tools: Annotated[
        list[Item] | None,
        Meta(description="Functions, custom tools and namespaces of them; tools that OpenAI would run are left out."),
    ] = None
    tool_choice: Annotated[
        str | Item | None, Meta(description="none, auto, required, or an object that names one or several.")
    ] = None
    parallel_tool_calls: Annotated[bool | None, Meta(description="false gives the first call only.")] = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Annotated[
        Literal["auto", "disabled"] | None,
        Meta(description="auto leaves out the oldest turns of a conversation that does not fit."),
    ] = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    """A text that OpenAI keeps: refused, since the model would not read it."""
    chat_template_kwargs: Annotated[dict[str, Any] | None, Meta(description="Variables for the chat template.")] = None


class ResponsesRequest(InputTokensRequest, frozen=True, kw_only=True):
    stream: Annotated[bool | None, Meta(description="Send the reply as server-sent events.")] = None
    store: bool | None = None
    background: bool | None = None
    include: Annotated[
        list[str] | None,
        Meta(description="reasoning.encrypted_content and message.output_text.logprobs are served, others ignored."),
    ] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Most tokens of the reply, reasoning included; cut to the room that the context has left."),
    ] = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="How many alternatives for each token.")
    ] = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    seed: Seed | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None


decode_responses = decoder_of(ResponsesRequest)
decode_input_tokens = decoder_of(InputTokensRequest)
"""What only a reply needs is not looked at."""


class ConversationRequest(msgspec.Struct, frozen=True, kw_only=True):
    items: Annotated[list[Item] | None, Meta(description="What was said so far.")] = None
    metadata: dict[str, Any] | None = None


decode_conversation = decoder_of(ConversationRequest)


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, Any]


class Deleted(msgspec.Struct, frozen=True):
    id: str
    object: Literal["response", "conversation.deleted"]
    deleted: bool = True


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ResponseInputTokens(msgspec.Struct, frozen=True):
    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class OutputText(msgspec.Struct, frozen=True, tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprobEntry] = []


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text"):
    text: str


class SummaryText(msgspec.Struct, frozen=True, tag="summary_text"):
    text: str


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    id: str
    summary: list[SummaryText] = []
    content: list[ReasoningText] = []
    encrypted_content: str | UnsetType | None = UNSET
    status: ItemStatus


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]


class OutputFunctionCall(msgspec.Struct, frozen=True, kw_only=True, tag="function_call"):
    id: str
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    arguments: str
    status: ItemStatus


class OutputCustomToolCall(msgspec.Struct, frozen=True, kw_only=True, tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    input: str
    status: ItemStatus


OutputItem = OutputReasoning | OutputMessage | OutputFunctionCall | OutputCustomToolCall


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True, kw_only=True):
    """``input_tokens`` are all of the prompt's, those that were read from a cache included."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseFailure(msgspec.Struct, frozen=True):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """The response: whole, and in the first and last events of its stream. What a request said is echoed."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus = "in_progress"
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    instructions: str | None = None
    tools: list[Item] = []
    tool_choice: str | Item = "auto"
    parallel_tool_calls: bool = True
    reasoning: Reasoning = Reasoning()
    text: TextOptions = TextOptions(TextFormat("text"))
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int = 0
    max_output_tokens: int | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    previous_response_id: str | None = None
    conversation: dict[str, Any] | None = None
    store: bool = False
    background: bool = False
    metadata: dict[str, Any] = {}
    user: str | None = None
    service_tier: str = "default"


class ResponseEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a stream; which fields there are says its type."""

    type: str
    sequence_number: Annotated[int, Meta(description="From 0, without gaps.")]
    response: ResponseObject | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    summary_index: int | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    part: OutputText | ReasoningText | SummaryText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    input: str | UnsetType = UNSET
    logprobs: list[TokenLogprobEntry] | UnsetType = UNSET
