"""Policies about when a reply ends: limits larger than the room, and stop strings that the reasoning mentions."""

from paraserve.policies.base import CHAT_AND_COMPLETIONS, Policy

MAX_TOKENS_OVERFLOW = Policy(
    setting="openai_max_tokens_overflow",
    summary="An output limit larger than what the context has left is cut to it instead of refused.",
    endpoints=CHAT_AND_COMPLETIONS,
    rules=lambda context: {"clamp_max_tokens": context.settings.openai_max_tokens_overflow == "clamp"},
)

STOP_AFTER_REASONING = Policy(
    setting="openai_stop_after_reasoning",
    summary="Stop strings are looked for only outside of reasoning.",
    endpoints=CHAT_AND_COMPLETIONS,
    rules=lambda context: {"stop_in_reasoning": False},
)
