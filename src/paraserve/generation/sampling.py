"""Which sampling values are in force.

Precedence: request, then policy (which rewrites the request), then server flag, then the model's own
``generation_config``, then the API's default. ``None`` is unset; 0 and 1.0 are set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from paraserve.engines.base import EngineInfo, Sampling
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.completions import CompletionRequest
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error
from paraserve.protocol.sampling import MAX_STOP_TOKEN_IDS, SamplingFields, logit_bias_ids, stop_ids

_API_DEFAULTS: dict[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
_SEED_SPACE = 2**32
"""Engines take an unsigned 32-bit seed (llama.cpp); a larger one is folded into it."""


def model_defaults(generation_config: Mapping[str, Any]) -> dict[str, float]:
    """The sampling values of a checkpoint's ``generation_config.json`` that this API knows.

    ``do_sample: false`` names greedy decoding there, as `transformers` reads it.
    """
    defaults = {
        name: generation_config[name]
        for name in _API_DEFAULTS
        if isinstance(generation_config.get(name), int | float) and not isinstance(generation_config[name], bool)
    }
    if generation_config.get("do_sample") is False and "temperature" not in defaults:
        defaults["temperature"] = 0.0
    return defaults


def alternatives(request: ChatCompletionRequest | CompletionRequest, info: EngineInfo) -> int | None:
    """How many of each token are wanted, None where no log probabilities are.

    Raises:
        RequestError: the engine does not give as many, or none of a prompt.
    """
    param, wanted = request.alternatives
    if wanted is not None and wanted > info.max_logprobs:
        raise field_error(param, f"this engine gives at most {info.max_logprobs}")
    if request.scores_prompt and not info.prompt_logprobs:
        message = "this engine gives no log probabilities of the prompt, which echo asks for"
        raise field_error(param, message, ErrorCode.UNSUPPORTED_PARAMETER)
    return wanted


def resolve_sampling(
    request: SamplingFields,
    *,
    max_tokens: int,
    defaults: Mapping[str, float],
    vocab_size: int,
    end_ids: Collection[int] = (),
) -> Sampling:
    """Every value that the engine is sent.

    Args:
        max_tokens: the reply's limit (`limits.output_limit`).
        defaults: of the server and the model, for what the request left unset.
        end_ids: the model's own end tokens, which an engine holds back as it does stop tokens.

    Raises:
        RequestError: a value is out of what engines take.
    """

    unset = {**_API_DEFAULTS, **defaults}
    values = {name: unset[name] if (sent := getattr(request, name)) is None else sent for name in _API_DEFAULTS}
    stops = stop_ids(request.stop_token_ids, vocab_size)
    if request.min_tokens and len({*stops, *end_ids}) > MAX_STOP_TOKEN_IDS:
        most = MAX_STOP_TOKEN_IDS - len(end_ids)
        raise field_error("stop_token_ids", f"at most {most} beside min_tokens: the model has end tokens of its own")
    top_k = int(values.pop("top_k"))
    return Sampling(
        max_tokens=max_tokens,
        top_k=top_k if 0 < top_k < vocab_size else 0,  # engines keep it in 32 bits, where 2**32 + 1 would be 1
        seed=None if request.seed is None else request.seed % _SEED_SPACE,
        stop_token_ids=stops,
        logit_bias=logit_bias_ids(request.logit_bias, vocab_size),
        ignore_eos=bool(request.ignore_eos),
        min_tokens=request.min_tokens or 0,
        **values,
    )
