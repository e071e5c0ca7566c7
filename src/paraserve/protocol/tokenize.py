"""``POST /tokenize``, ``POST /detokenize`` and ``POST /v1/chat/completions/render``."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from paraserve.protocol.body import decoder_of
from paraserve.protocol.chat import ChatCompletionRequest, check_chat
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error
from paraserve.protocol.messages import Message
from paraserve.protocol.models import ModelName

TokenId = Annotated[int, Meta(ge=0)]


class TokenizeRequest(ChatCompletionRequest, frozen=True, kw_only=True):
    """A text (``prompt``) or a chat request, of which everything that shapes the prompt is read."""

    messages: Annotated[list[Message], Meta(description="The conversation, in place of prompt.")] = msgspec.field(
        default_factory=list
    )
    prompt: Annotated[str | None, Meta(description="A text, in place of messages.")] = None
    add_special_tokens: bool | None = None
    """Of a text; by default as ``/v1/completions`` does."""
    return_text: bool = False
    return_token_strs: bool = False


class TokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[int]
    count: int
    max_model_len: int
    text: str | UnsetType = UNSET
    token_strs: list[str] | UnsetType = UNSET


class DetokenizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    tokens: list[TokenId]
    model: ModelName | None = None
    skip_special_tokens: Annotated[bool, Meta(description="false shows special tokens in the text.")] = False


class DetokenizeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """``text`` is SGLang's name of the result, ``prompt`` vLLM's."""

    text: str
    prompt: str


class RenderResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The exact prompt of a chat request.

    ``reply_starts`` says where it leaves the model: at a bare ``header``, inside ``reasoning``, or in ``content``.
    """

    text: str
    tokens: list[int]
    count: int
    max_model_len: int
    reply_starts: str
    prefill: str
    normalizations: list[str]
    policies: list[str]


_decode_tokenize = decoder_of(TokenizeRequest)
decode_detokenize = decoder_of(DetokenizeRequest)


def decode_tokenize(body: bytes) -> TokenizeRequest:
    """Decode and check. Raises `RequestError`: exactly one of ``prompt`` and ``messages`` must be there."""
    request = _decode_tokenize(body)
    if (request.prompt is None) == (not request.messages):
        raise field_error("prompt", "give either prompt or messages", ErrorCode.MISSING_REQUIRED_PARAMETER)
    return request if request.prompt is not None else check_chat(request)
