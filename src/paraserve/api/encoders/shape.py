"""What every encoder knows of a reply, and what one is to a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import UNSET

from paraserve.api.errors import encode_error
from paraserve.api.streams import COMMENT, DONE, event
from paraserve.generation.events import ReplyEvent, Usage
from paraserve.protocol.errors import RequestError
from paraserve.protocol.usage import CompletionTokensDetails, PromptTokensDetails, UsageInfo

TokenBytes = Callable[[int], bytes]


class ReplyShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the request and the policies say about the response's form.

    Args:
        id, model, created: as the response shows them; ``created`` in seconds since the epoch.
        prompt_tokens: of the request, for running usage.
        choices: how many there are.
        logprobs: whether they were asked for.
        include_usage: a stream ends with usage; ``usage_in_last_choice``: Kimi's place for it, as well.
        continuous_usage: every chunk carries the totals so far.
        report_cached: whether ``prompt_tokens_details.cached_tokens`` is shown when the engine knows it.
        reasoning_in_details: ``completion_tokens_details.reasoning_tokens`` always, in place of the top-level field
            (GLM compat); else the top-level field always and the detail when it is above zero, as SGLang does.
    """

    id: str
    model: str
    created: int
    prompt_tokens: int
    choices: int
    token_bytes: TokenBytes
    logprobs: bool = False
    include_usage: bool = False
    usage_in_last_choice: bool = False
    continuous_usage: bool = False
    report_cached: bool = False
    reasoning_in_details: bool = False

    def usage(self, usage: Usage) -> UsageInfo:
        """``usage`` of OpenAI's APIs."""
        reasoning = usage.reasoning_tokens
        details = CompletionTokensDetails(reasoning) if self.reasoning_in_details or reasoning else UNSET
        cached = usage.cached_tokens if self.report_cached else None
        return UsageInfo(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
            reasoning_tokens=UNSET if self.reasoning_in_details else reasoning,
            prompt_tokens_details=UNSET if cached is None else PromptTokensDetails(cached),
            completion_tokens_details=details,
        )


class Fold(Protocol):
    """Makes the whole response."""

    def take(self, event: ReplyEvent) -> None: ...
    def response(self) -> bytes:
        """The body, once the last event was taken."""
        ...


class StreamEncoder(Protocol):
    """Makes server-sent events, each call whole ones or none."""

    keep_alive: bytes
    """What is sent after a silence."""

    def begin(self) -> bytes:
        """What stands before the first event of a reply."""
        ...

    def encode(self, event: ReplyEvent) -> bytes: ...
    def end(self) -> bytes:
        """What stands behind the last event of a reply."""
        ...

    def failure(self, error: RequestError) -> bytes:
        """The end of a reply that failed, in the words of its API."""
        ...


class OpenAIStream:
    """How a stream of OpenAI's older APIs begins and ends."""

    keep_alive = COMMENT

    def begin(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return DONE

    def failure(self, error: RequestError) -> bytes:
        return event(encode_error(error))
