"""``POST /v1/chat/completions``: request, response and stream chunk."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paraserve.protocol.body import decoder_of
from paraserve.protocol.errors import field_error
from paraserve.protocol.messages import Message, check_messages
from paraserve.protocol.sampling import SamplingFields, check_sampling
from paraserve.protocol.tools import Tool, ToolChoice, declared_functions
from paraserve.protocol.usage import UsageInfo

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "default", "auto"]
"""The last two leave it to the model."""


class ReasoningWish(msgspec.Struct, frozen=True):
    """OpenRouter's field, as SGLang reads it. ``effort`` wins over ``enabled``, and over ``reasoning_effort``."""

    effort: ReasoningEffort | None = None
    reasoning_effort: ReasoningEffort | None = None
    enabled: bool | str | None = None
    enable: bool | str | None = None
    exclude: bool | None = None
    max_tokens: int | None = None

    @property
    def asked_effort(self) -> ReasoningEffort | None:
        return self.effort or self.reasoning_effort

    @property
    def switch(self) -> bool | str | None:
        return self.enable if self.enabled is None else self.enabled


class ChatCompletionRequest(SamplingFields, frozen=True, kw_only=True):
    messages: Annotated[
        list[Message], Meta(description="The conversation. Fields that no API names reach the chat template as well.")
    ]
    max_tokens: Annotated[
        int | None,
        Meta(description="Most tokens of the reply; the room that the context has left by default (completions: 16)."),
    ] = None
    max_completion_tokens: Annotated[int | None, Meta(description="Wins over max_tokens.")] = None
    logprobs: Annotated[bool | None, Meta(description="Log probabilities of the reply's tokens.")] = None
    top_logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="How many alternatives for each token.")
    ] = None
    tools: Annotated[list[Tool] | None, Meta(description="Functions that the model may call.")] = None
    tool_choice: Annotated[
        ToolChoice | None, Meta(description="none, auto, required, or an object that names a function.")
    ] = None
    parallel_tool_calls: Annotated[bool | None, Meta(description="false gives the first call only.")] = None
    reasoning_effort: Annotated[
        ReasoningEffort | None, Meta(description="How much to think, where the model's template knows such a thing.")
    ] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, Meta(description="Variables for the chat template.")] = None
    add_generation_prompt: bool | None = None
    continue_final_message: Annotated[
        bool | None, Meta(description="Go on with the last message instead of beginning a reply.")
    ] = None
    documents: list[dict[str, Any]] | None = None
    reasoning: Annotated[
        ReasoningWish | None, Meta(description="effort: like reasoning_effort; enabled: whether to think.")
    ] = None
    thinking: Any = None
    """The vendor field of Kimi's API: read by its policy only."""
    enable_thinking: Any = None
    """Read here by nobody, as by its peers: that is said."""

    @property
    def output_limit(self) -> tuple[str, int | None]:
        """The field that sets the limit and its value: ``max_completion_tokens`` wins over ``max_tokens``."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return "max_tokens", self.max_tokens

    @property
    def alternatives(self) -> tuple[str, int | None]:
        """The field that says how many a token shall have, and how many; None: no log probabilities."""
        return "top_logprobs", (self.top_logprobs or 0) if self.logprobs else None

    @property
    def scores_prompt(self) -> bool:
        """Whether it wants log probabilities of the prompt: this API has none."""
        return False


ChatRequest = TypeVar("ChatRequest", bound=ChatCompletionRequest)

_decode = decoder_of(ChatCompletionRequest)


def decode_chat(body: bytes) -> ChatCompletionRequest:
    """Decode and check a request body. Raises `RequestError` (400) that names the field."""
    return check_chat(_decode(body))


def check_chat(request: ChatRequest) -> ChatRequest:
    """The rules beyond the types; bare URLs in messages are repaired. Raises `RequestError` that names the field."""
    messages = check_messages(request.messages)
    check_sampling(request)
    declared_functions(request.tools, messages)
    request = _in_our_words(request)
    field, limit = request.output_limit
    if limit is not None and limit < 1:
        raise field_error(field, "must be at least 1")
    if request.top_logprobs and not request.logprobs:
        raise field_error("top_logprobs", "needs logprobs to be true")
    return msgspec.structs.replace(request, messages=messages)


def _in_our_words(request: ChatRequest) -> ChatRequest:
    """What other APIs and their clients say in other words, in ours: `reasoning`, and words and numbers that leave a
    thing to the server."""
    said: dict[str, Any] = {}
    effort = request.reasoning_effort
    wish = request.reasoning
    if wish is not None:
        effort = wish.asked_effort or effort
        kwargs = request.chat_template_kwargs or {}
        switched = wish.asked_effort is None and wish.switch is not None
        if switched and not kwargs.keys() & {"thinking", "enable_thinking"}:
            said["chat_template_kwargs"] = {**kwargs, "enable_thinking": wish.switch}
    effort = None if effort in ("default", "auto") else effort
    if effort != request.reasoning_effort:
        said["reasoning_effort"] = effort
    said |= {name: None for name in ("max_tokens", "max_completion_tokens") if getattr(request, name) == -1}
    return msgspec.structs.replace(request, **said) if said else request


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobEntry(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprobEntry]


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True):
    index: int
    message: AssistantMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: str
    matched_stop: int | str | None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageInfo
