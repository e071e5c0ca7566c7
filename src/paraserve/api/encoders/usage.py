"""The shape of ``usage`` on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from paraserve.generation.events import Usage
from paraserve.protocol.usage import CompletionTokensDetails, PromptTokensDetails, UsageInfo


@dataclass(frozen=True, slots=True)
class UsageShape:
    """Args:
    report_cached: whether ``prompt_tokens_details.cached_tokens`` is shown when the engine knows it.
    reasoning_in_details: ``completion_tokens_details.reasoning_tokens`` always, in place of the top-level field
        (GLM compat); else the top-level field always and the detail when it is above zero, as SGLang does.
    """

    report_cached: bool = False
    reasoning_in_details: bool = False

    def __call__(self, usage: Usage) -> UsageInfo:
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
