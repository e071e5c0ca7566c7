"""Policies about the form of a stream: the preflight of its first chunk, and its usage."""

from paraserve.policies.base import CHAT_AND_COMPLETIONS, Policy

PREFLIGHT = Policy(
    setting="openai_streaming_error_preflight",
    summary="A stream's head waits for its first chunk, so that an error before it has its true status.",
    endpoints=CHAT_AND_COMPLETIONS,
    rules=lambda context: {
        "preflight": True,
        "preflight_seconds": context.settings.openai_streaming_error_preflight_seconds or None,
    },
)

STREAM_USAGE = Policy(
    setting="openai_stream_usage",
    summary="A stream ends with usage unless the request declines it; last-choice also puts it in the last choice.",
    endpoints=CHAT_AND_COMPLETIONS,
    rules=lambda context: {"stream_usage": context.settings.openai_stream_usage},
)
