"""An output limit for chat requests that name none.

The request keeps its ``None``: the limit is filled in where the room is known, and capped by it there, so that a
default never makes a request fail.
"""

from paraserve.policies.base import Policy

POLICY = Policy(
    setting="openai_chat_default_max_tokens",
    summary="A chat request without an output limit gets this one, capped by what the context has left.",
    rules=lambda context: {"default_max_tokens": context.settings.openai_chat_default_max_tokens},
)
