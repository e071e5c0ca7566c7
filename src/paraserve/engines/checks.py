"""What an engine is not asked, and what it is not believed.

Never knows an engine's wire. Two invariants: what an engine cannot do is refused before it is asked (some do not
survive the question), and what cannot be true is the engine's error, and nothing that a later stage meets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paraserve.engines.base import EngineChunk, EngineError, EngineInfo, EngineRequest, TokenLogprob
from paraserve.protocol.error_codes import ErrorCode

MOST_TOKENS = 2**24
"""No context is as long."""


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading JSON that an engine sent may raise: it may be none, or be nested without end."""


def garbled() -> EngineError:
    """The engine sent something that is not its protocol."""
    return EngineError(502, ErrorCode.ENGINE_ERROR, "The engine sent an answer that cannot be read.")


def check_chunk(chunk: EngineChunk, prompt_tokens: int, vocab_size: int) -> None:
    """Engines are not believed: what cannot be true is their error, and nothing that a later stage meets.

    Raises:
        EngineError: an id outside of the vocabulary, a count that none is, scores for other tokens than there are.
    """
    for token_id in chunk.token_ids:
        if not 0 <= token_id < vocab_size:
            raise garbled()
    if chunk.finish is not None and not 0 <= (chunk.finish.matched or 0) < vocab_size:
        raise garbled()
    if chunk.prompt_tokens is not None and not 0 <= chunk.prompt_tokens <= MOST_TOKENS:
        raise garbled()
    if chunk.cached_tokens is not None and not 0 <= chunk.cached_tokens <= MOST_TOKENS:
        raise garbled()
    for scores, of in ((chunk.logprobs, len(chunk.token_ids)), (chunk.prompt_logprobs, prompt_tokens)):
        if scores is not None and not _scores(scores, of, vocab_size):
            raise garbled()


def _scores(scores: Sequence[TokenLogprob | None], of: int, vocab_size: int) -> bool:
    found = [score for score in scores if score is not None]
    ids = [token_id for score in found for token_id in (score.token_id, *(top[0] for top in score.top))]
    return len(scores) == of and all(0 <= token_id < vocab_size for token_id in ids)


def check_request(request: EngineRequest, info: EngineInfo) -> None:
    """Refuse what the engine cannot do, before it is asked (some engines do not survive the question)."""
    ids = request.token_ids
    if not ids:
        raise EngineError(400, ErrorCode.INVALID_VALUE, "The prompt is empty.", param="prompt")
    if min(ids) < 0 or max(ids) >= info.vocab_size:
        message = f"The prompt holds a token id outside of the vocabulary (0 to {info.vocab_size - 1})."
        raise EngineError(400, ErrorCode.INVALID_VALUE, message, param="prompt")
    for field, used in (
        ("logit_bias", request.sampling.logit_bias),
        ("stop_token_ids", request.sampling.stop_token_ids),
    ):
        if used and (min(used) < 0 or max(used) >= info.vocab_size):
            message = f"{field} holds a token id outside of the vocabulary (0 to {info.vocab_size - 1})."
            raise EngineError(400, ErrorCode.INVALID_VALUE, message, param=field)
    if request.sampling.logit_bias and not info.logit_bias:
        message = "A bias would not reach the engine: what stands in front of it leaves the field out."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="logit_bias")
    if request.routing.cache_salt is not None and not info.cache_salts:
        message = "The engine cannot keep the caches of different salts apart."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="cache_salt")
    if request.logprobs is not None and request.logprobs > info.max_logprobs:
        message = f"The engine gives at most {info.max_logprobs} alternatives a token."
        raise EngineError(400, ErrorCode.INVALID_VALUE, message, param="top_logprobs")
    if request.prompt_logprobs and not info.prompt_logprobs:
        raise EngineError(
            400, ErrorCode.UNSUPPORTED_PARAMETER, "The engine gives no log probabilities of the prompt.", param="echo"
        )
    if request.sampling.min_tokens and not info.min_tokens:
        message = "The engine cannot hold end tokens back: it runs without a tokenizer."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="min_tokens")
    for item in request.media:
        if item.kind not in info.media:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, f"The model takes no {item.kind} input.", param="messages"
            )
    check_lengths(request, info)
    check_constraint(request, info)


def check_lengths(request: EngineRequest, info: EngineInfo) -> None:
    """Engines cut what is too long without a word, or do not survive it."""
    prompt, reply = len(request.token_ids), request.sampling.max_tokens
    if info.max_prompt_tokens is not None and prompt > info.max_prompt_tokens:
        message = f"The prompt of {prompt} tokens is longer than the {info.max_prompt_tokens} that the engine takes."
        raise EngineError(400, ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param="prompt")
    if prompt + reply > info.context_length:
        message = (
            f"The prompt of {prompt} tokens and a reply of {reply} are more than the context of {info.context_length} "
            "tokens."
        )
        raise EngineError(400, ErrorCode.CONTEXT_LENGTH_EXCEEDED, message, param="max_tokens")


def check_constraint(request: EngineRequest, info: EngineInfo) -> None:
    constraint = request.constraint
    if constraint is None:
        return
    if constraint.kind not in info.constraints:
        message = f"The engine cannot obey a constraint of the kind {constraint.kind}."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param=constraint.param)
    if request.in_reasoning and not constraint.covers_reasoning and not info.defers_constraints:
        message = "The engine would apply the constraint inside the reasoning: turn the reasoning off."
        raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param=constraint.param)
