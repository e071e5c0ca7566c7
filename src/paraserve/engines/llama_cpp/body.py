"""A request in the words of llama.cpp's native completion API.

Pure. One invariant: every value that bears on the reply is written out, so that no default of the server's (top_k 40,
top_p 0.95, min_p 0.05, a seed of its own, whatever its command line says) shines through. Field names and their
meaning: llama.cpp, tools/server/server-schema.cpp.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from paraserve.engines.base import Constraint, EngineError, Sampling
from paraserve.protocol.error_codes import ErrorCode

SEED_RANGE = 0xFFFFFFFF
"""Seeds are 32 bits, and the largest one means "choose one"."""

JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How constrained JSON is spaced: a small model that may add white space often never stops to."""

LARK_MARK = "%llguidance"
"""What a grammar begins with that the server gives to llguidance."""
LARK_HEADER = f"{LARK_MARK} {{}}\n"

FINAL_FIELDS = ["stop", "stop_type", "tokens_predicted", "timings/cache_n"]
"""What is wanted of the last event, which else repeats the prompt and every setting."""


def completion_body(
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    limit: int,
    ignore_eos: bool,
    banned: Iterable[int] = (),
    forgiven: Sequence[int] = (),
    probabilities: int = 0,
    grammar: dict[str, Any] | None = None,
    seed: int,
    window: int,
) -> dict[str, Any]:
    """Body of ``POST /completion``.

    Args:
        prompt: tokens to go on from.
        limit: tokens to make at most.
        banned: ids that must not come.
        forgiven: the part of ``prompt`` that presence and frequency penalties must not count (all but the reply).
        probabilities: alternatives per token; 0 asks for no probabilities at all.
        seed: see `seed_of`.
        window: tokens that the repetition penalty looks back: the whole context.
    """
    bias = dict(sampling.logit_bias)
    for token_id, amount in _forgiveness(forgiven, sampling):
        bias[token_id] = bias.get(token_id, 0.0) + amount
    biases: list[list[Any]] = [[token_id, amount] for token_id, amount in bias.items()]
    biases += [[token_id, False] for token_id in banned]
    return {
        "prompt": list(prompt),
        "n_predict": limit,
        "stream": True,
        "return_tokens": True,
        "return_progress": True,
        "response_fields": FINAL_FIELDS,
        "cache_prompt": True,
        "n_cache_reuse": 0,
        "n_probs": probabilities,
        "post_sampling_probs": False,
        "backend_sampling": False,
        "min_keep": 0,
        "samplers": samplers_of(sampling),
        "temperature": sampling.temperature,
        "dynatemp_range": 0.0,
        "top_k": max(sampling.top_k, 0),
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "mirostat": 0,
        "repeat_last_n": window,
        "repeat_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": seed,
        "logit_bias": biases,
        "ignore_eos": ignore_eos,
        "stop": [],
    } | (grammar or {})


def samplers_of(sampling: Sampling) -> list[str]:
    """The chain: penalties, temperature, then the cuts on what temperature left (the order of SGLang and vLLM).

    A sampler that is off is left out, which saves a sort of the vocabulary; what is never named (dry, xtc, typical,
    top-n-sigma) never runs. Temperature 0 keeps the best token alone, and nothing is left to cut.
    """
    penalized = sampling.repetition_penalty != 1.0 or sampling.presence_penalty or sampling.frequency_penalty
    chain = ["penalties"] if penalized else []
    chain.append("temperature")
    if sampling.temperature > 0:
        chain += ["top_k"] if sampling.top_k > 0 else []
        chain += ["top_p"] if sampling.top_p < 1.0 else []
        chain += ["min_p"] if sampling.min_p > 0.0 else []
    return chain


def seed_of(sampling: Sampling) -> int:
    """The request's seed in 32 bits, or one by lot."""
    return secrets.randbelow(SEED_RANGE) if sampling.seed is None else sampling.seed % SEED_RANGE


def _forgiveness(prompt: Sequence[int], sampling: Sampling) -> Iterable[tuple[int, float]]:
    """What undoes the penalties that llama.cpp gives to the prompt's tokens; OpenAI's look at the reply alone.

    Exact for the frequency penalty. A prompt's token that comes again in the reply also keeps its forgiveness of the
    presence penalty: too mild there, which does less harm than fining every word of the prompt from the start.
    """
    if not (sampling.presence_penalty or sampling.frequency_penalty):
        return
    for token_id, count in Counter(prompt).items():
        yield token_id, sampling.presence_penalty + sampling.frequency_penalty * count


def grammar_of(constraint: Constraint, *, lark: bool) -> dict[str, Any]:
    """The fields that make the server obey a constraint.

    Args:
        lark: whether the server was built with llguidance; without it, JSON schemas go to llama.cpp's own converter.

    Raises:
        EngineError: 400, the value is not what its kind says.
    """
    if constraint.kind == "ebnf":
        if constraint.value.lstrip().startswith(LARK_MARK):  # another language, by the server's reading
            raise EngineError(400, ErrorCode.INVALID_CONSTRAINT, "The grammar is not EBNF.", param=constraint.param)
        return {"grammar": constraint.value}
    if constraint.kind == "lark":
        headed = constraint.value.startswith(LARK_MARK)
        return {"grammar": constraint.value if headed else LARK_HEADER + constraint.value}
    if constraint.kind == "regex":
        return {"grammar": f"{LARK_HEADER}start: {lark_regex(constraint.value)}\n"}
    schema = {"type": "object"} if constraint.kind == "json_object" else _schema(constraint.value)
    if not lark:
        return {"json_schema": schema}
    if isinstance(schema, dict):
        schema = {"x-guidance": JSON_STYLE} | schema
    return {"grammar": f"{LARK_HEADER}start: %json {msgspec.json.encode(schema).decode()}\n"}


def lark_regex(pattern: str) -> str:
    """A regular expression as a Lark literal: slashes and line ends escaped, the rest as it is."""
    if not pattern:
        return '""'
    written: list[str] = []
    escaped = False
    for letter in pattern:
        if letter == "\n":
            written.append("n" if escaped else r"\n")
        elif letter == "/" and not escaped:
            written.append(r"\/")
        else:
            written.append(letter)
        escaped = letter == "\\" and not escaped
    return f"/{''.join(written)}/"


def _schema(value: str) -> Any:
    try:
        schema = msgspec.json.decode(value)
    except msgspec.DecodeError as error:
        raise EngineError(
            400, ErrorCode.INVALID_CONSTRAINT, f"The JSON schema is not JSON: {error}", param="response_format"
        ) from error
    if not isinstance(schema, (dict, bool)):
        raise EngineError(400, ErrorCode.INVALID_CONSTRAINT, "A JSON schema is an object.", param="response_format")
    return schema
