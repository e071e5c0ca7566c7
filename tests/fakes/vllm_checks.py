"""What vLLM 0.32 checks of a request to ``/inference/v1/generate``, and in which words.

Every check was seen on the running server. ``tests/engines/vllm_rules.py`` asks the fake and, by
``scripts/vllm_contract.py``, the real one the same, so that the fake cannot be the kinder of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.sglang_checks import PENALTIES, bad_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of the server's command line, and of its model."""

    vocab: int
    max_model_len: int = 4096
    max_logprobs: int = 20


def refused_at_once(body: Mapping[str, Any]) -> str:
    """What is answered with 400; "" where a stream begins."""
    params = body["sampling_params"]
    if not body["token_ids"]:
        return "List should have at least 1 item after validation, not 0"
    if min(body["token_ids"]) < 0:
        return "Value error, token_ids must not contain negative values"
    if not 0.0 <= (value := params.get("temperature", 1.0)) <= 2.0:
        return f"temperature must be in [0, 2], got {value}."
    if not 0.0 < (value := params.get("top_p", 1.0)) <= 1.0:
        return f"top_p must be in (0, 1], got {value}."
    if not 0.0 <= (value := params.get("min_p", 0.0)) <= 1.0:
        return f"min_p must be in [0, 1], got {value}."
    for name in PENALTIES:
        if not -2.0 <= (value := params.get(name, 0.0)) <= 2.0:
            return f"{name} must be in [-2, 2], got {value}."
    if (value := params.get("repetition_penalty", 1.0)) <= 0.0:
        return f"repetition_penalty must be greater than zero, got {value}."
    if (most := params["max_tokens"]) < 1:
        return f"max_tokens must be at least 1, got {most}."
    if (least := params.get("min_tokens", 0)) > most:
        return f"min_tokens must be less than or equal to max_tokens={most}, got {least}."
    if len(params.get("structured_outputs") or ()) > 1:
        return "You can only use one kind of structured outputs constraint but multiple are specified"
    return ""


def refused_in_the_stream(body: Mapping[str, Any], limits: Limits) -> str:
    """What is an error event of a stream with status 200; "" where the sequence runs."""
    params, prompt = body["sampling_params"], len(body["token_ids"])
    if prompt > limits.max_model_len:
        return (
            f"The decoder prompt (length {prompt}) is longer than the maximum model length of {limits.max_model_len}."
        )
    if prompt == limits.max_model_len:
        return (
            f"The decoder prompt (length {prompt}) plus the number of requested output tokens (at least 1) is longer "
            f"than the maximum model length of {limits.max_model_len}."
        )
    if beyond := [token for token in body["token_ids"] if token >= limits.vocab]:
        return f"Token id {beyond[0]} is out of vocabulary"
    for name in ("stop_token_ids", "logit_bias"):
        if beyond := [token for token in map(int, params.get(name) or ()) if token >= limits.vocab]:
            return f"token_id(s) {beyond} in {name} contain out-of-vocab token ids. Vocabulary size: {limits.vocab}"
    if (wanted := params.get("logprobs") or 0) > limits.max_logprobs:
        return f"Requested sample logprobs of {wanted}, which is greater than max allowed: {limits.max_logprobs}"
    outputs = params.get("structured_outputs") or {}
    values = (outputs[kind] for kind in ("json", "structural_tag") if kind in outputs)
    return next((f"Invalid JSON grammar specification: {bad}" for value in values if (bad := bad_json(value))), "")
