"""How many tokens a reply may have.

Unset means what the context has left; a limit that the client set is kept exactly or refused, unless the operator
chose to clamp it. The prompt alone is checked before the engine is asked.
"""

from __future__ import annotations

from paraserve.protocol.errors import context_overflow, field_error, output_overflow

MOST_PROMPT_TOKENS = 2**22
"""Of the prompts of one request with several choices: each choice is a sequence of its own, which is checked, written
and sent with its whole prompt."""


def output_limit(
    *,
    prompt_tokens: int,
    context_length: int,
    longest_prompt: int | None = None,
    requested: int | None,
    default: int | None,
    at_least: int = 0,
    clamp: bool,
    overflow_status: int = 400,
    param: str = "max_tokens",
    prompt_param: str = "messages",
) -> int:
    """The reply's limit in tokens.

    Args:
        longest_prompt: where the engine takes less than the whole context.
        requested: what the client set; None is unset.
        default: for an unset limit, capped by the room; None means all the room.
        at_least: tokens that the client wants at the least: a default is never below it.
        clamp: cut a requested limit to the room instead of refusing it.
        overflow_status: the status when the prompt alone does not fit.
        param, prompt_param: the request's fields, for the error.

    Raises:
        RequestError: ``context_length_exceeded``, with both numbers.
    """
    room = context_length - prompt_tokens
    longest = context_length - (requested != 0)
    if prompt_tokens > (longest if longest_prompt is None else min(longest, longest_prompt)):
        raise context_overflow(
            prompt_tokens, context_length, longest_prompt, status=overflow_status, param=prompt_param
        )
    if requested is None:
        return room if default is None else min(max(default, at_least), room)
    if requested > room and not clamp:
        raise output_overflow(prompt_tokens, requested, context_length, param=param)
    return min(requested, room)


def check_min_tokens(min_tokens: int | None, limit: int) -> None:
    """A reply cannot be longer than its limit."""
    if min_tokens and min_tokens > limit:
        raise field_error("min_tokens", f"{min_tokens} is more than the reply's limit of {limit} tokens")


def check_prompts(tokens: int) -> None:
    """Args: tokens: of all prompts, each counted as often as it has choices. Raises `RequestError`."""
    if tokens > MOST_PROMPT_TOKENS:
        raise field_error("n", f"the choices' prompts have {tokens} tokens together; at most {MOST_PROMPT_TOKENS}")
