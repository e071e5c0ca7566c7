"""What a running request says, in order; every endpoint is an encoder of this stream.

`formats` events know one choice only; here they get their choice, the tokens they were made of and the counts.
A non-streamed response is the fold of the same events that a stream would have sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from paraserve.formats.events import FormatEvent

FinishReason = Literal["stop", "length", "tool_calls"]


class GeneratedToken(msgspec.Struct, frozen=True, gc=False):
    """One token with its log probability (natural log).

    ``text`` is what the token added to the raw text: empty for a part of a character, for an end token and for a
    special token that is not shown.
    """

    token_id: int
    text: str
    logprob: float
    top: Sequence[tuple[int, float]]


class ReplyDelta(msgspec.Struct, frozen=True, gc=False):
    """One step of one choice.

    ``tokens`` are all tokens consumed in this step, when log probabilities were asked for; joined over a choice they
    are the generated tokens, once each. The counts are totals of the choice so far.
    """

    choice: int
    events: Sequence[FormatEvent]
    tokens: Sequence[GeneratedToken]
    completion_tokens: int
    reasoning_tokens: int


class PromptScored(msgspec.Struct, frozen=True, gc=False):
    """The prompt's own tokens with their log probabilities (None for the first), before the choice's first delta."""

    choice: int
    tokens: Sequence[GeneratedToken | None]


class ChoiceEnd(msgspec.Struct, frozen=True, gc=False):
    """The choice is complete. ``matched_stop`` is the stop string or the end token's id that ended it."""

    choice: int
    finish_reason: FinishReason
    matched_stop: int | str | None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts of the request: the last event of a run that did not fail.

    Prompts count once each, completion and reasoning tokens are summed over choices. ``cached_tokens`` is None where
    the engine did not say.
    """

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int | None


ReplyEvent = PromptScored | ReplyDelta | ChoiceEnd | Usage
