"""``POST /v1/completions``: request, response and stream chunk."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from paraserve.protocol.body import decoder_of
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error
from paraserve.protocol.sampling import SamplingFields, check_sampling
from paraserve.protocol.usage import UsageInfo

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default of the legacy endpoint."""


class CompletionRequest(SamplingFields, frozen=True, kw_only=True):
    prompt: Annotated[
        str | list[Any], Meta(description="A text, several texts, token ids, or several lists of token ids.")
    ]
    """A text, several texts, token ids, or several lists of token ids (checked by `decode_completion`)."""
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Most tokens of the reply; the room that the context has left by default (completions: 16)."),
    ] = None
    logprobs: Annotated[
        Annotated[int, Meta(ge=0, le=20)] | None, Meta(description="Log probabilities of the reply's tokens.")
    ] = None
    echo: Annotated[bool | None, Meta(description="Begin with the prompt.")] = None
    suffix: str | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None

    @property
    def output_limit(self) -> tuple[str, int | None]:
        """As in `ChatCompletionRequest`, like the next two."""
        return "max_tokens", self.max_tokens

    @property
    def alternatives(self) -> tuple[str, int | None]:
        return "logprobs", self.logprobs

    @property
    def scores_prompt(self) -> bool:
        return bool(self.echo) and self.logprobs is not None

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry for each prompt, in order."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


_decode = decoder_of(CompletionRequest)


def decode_completion(body: bytes) -> CompletionRequest:
    """Decode and check a request body. Raises `RequestError` (400) that names the field."""
    request = _decode(body)
    _check_prompt(request.prompt)
    check_sampling(request)
    if request.suffix:
        raise field_error(
            "suffix",
            "filling in the middle is not supported; put the whole context into prompt",
            ErrorCode.UNSUPPORTED_PARAMETER,
        )
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise field_error(
            "best_of", "choosing the best of more completions than n is not supported", ErrorCode.UNSUPPORTED_PARAMETER
        )
    if request.max_tokens == 0 and not request.echo:
        raise field_error("max_tokens", "must be at least 1 without echo")
    return request


def _check_prompt(prompt: str | list[Any]) -> None:
    if isinstance(prompt, str):
        return
    kinds = {_kind(item) for item in prompt}
    if not prompt or len(kinds) != 1 or None in kinds:
        raise field_error(
            "prompt",
            "must be a string, a list of strings, a list of token ids or a list of lists of token ids, and not empty",
        )


def _kind(item: Any) -> str | None:
    if isinstance(item, str):
        return "text"
    if _is_id(item):
        return "id"
    if isinstance(item, list) and all(_is_id(i) for i in item):
        return "ids"
    return None


def _is_id(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


class CompletionLogprobs(msgspec.Struct, frozen=True):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    matched_stop: int | str | None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageInfo
