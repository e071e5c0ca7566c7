"""What an engine's own word of failure becomes for a client.

Never does I/O. Two invariants: a status of the 400s stays itself and names the client's field where that is known,
anything else is the engine's fault and says no more than that; and no message carries an address, a path, an object
dump or a stack.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from paraserve.engines.base import Constraint, EngineError
from paraserve.protocol.error_codes import ErrorCode

_MAX_MESSAGE = 300

_UNSAFE = re.compile(
    r"""\w+://[^\s'"]+                      # an address
      | (?<![\w/])(?:/[\w.+-]+){2,}/?       # a path
      | \b[A-Z]:\\[^\s'"]+
      | <[^<>]*\bat\ 0x[0-9a-fA-F]+[^<>]*>  # an object
      | \b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b
      | \b(?:localhost|\[[0-9a-fA-F:]+\]):\d+""",
    re.VERBOSE,
)

_INNER = re.compile(r'"message"\s*:\s*"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_INNER_CUT = re.compile(r'"message"\s*:\s*"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])+)\Z')
_JSON = re.compile(r"\{\s*['\"].*", re.DOTALL)

_FIELDS = {
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "min_tokens": "min_tokens",
    "sampling_seed": "seed",
    "seed": "seed",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repetition_penalty",
    "logit_bias": "logit_bias",
    "stop_token_ids": "stop_token_ids",
    "top_logprobs_num": "top_logprobs",
    "logprobs": "logprobs",
    "priority": "priority",
    "lora": "model",
}
"""The engines' spellings of a field and the client's, the longer spelling first where one holds another."""

_CONSTRAINT = re.compile(
    r"grammar|json.?schema|structural.?tag|structured.?output|regex|ebnf|\$ref|unsupported schema", re.IGNORECASE
)
_CONTEXT = re.compile(
    r"context.?length|maximum context|max_model_len|maximum model length|maximum allowed length|KV memory budget"
    r"|maximum number of tokens|(?:input|prompt).{0,40}too long",
    re.IGNORECASE,
)
"""Every way in which SGLang 0.5.23 and vLLM 0.32 say that a request does not fit."""
_OUR_FAULT = frozenset({401, 403, 404, 405, 407, 411, 415, 421, 426, 431})
"""Refusals that a client's request cannot cause: the server's own set-up is wrong."""


_ABORTED = 499
"""What SGLang's Rust front end (0.5.23) answers for a request that somebody aborted: no mistake of the client's."""


def engine_message(body: bytes) -> str:
    """The message in an error body of SGLang, vLLM or one of their routers; "" where there is none."""
    try:
        message = _message(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        message = body.decode(errors="replace")
    # A router puts the worker's whole body into a message of its own: the innermost one is what was said. It may be
    # cut short (sglang-router 0.3.2 sends the worker's content-length with a longer body).
    if inner := _INNER.findall(message):
        return str(msgspec.json.decode(f'"{inner[-1]}"'))
    if cut := _INNER_CUT.search(message):
        return str(msgspec.json.decode(f'"{cut[1]}"')) + "…"
    return _JSON.sub("", message).removeprefix("data:").strip(" :")


def refusal(status: int, message: str, constraint: Constraint | None = None) -> EngineError:
    """The error of an engine that answered ``status`` with ``message``.

    Args:
        constraint: what the request was to obey: a bad one is the commonest reason of a 400.
    """
    if status in (408, 504):
        return EngineError(504, ErrorCode.ENGINE_TIMEOUT, "The engine did not answer in time.")
    if status == _ABORTED:
        return EngineError(502, ErrorCode.ENGINE_ABORTED, "The engine aborted the generation.")
    if status == 429 or status == 503:
        return EngineError(status, ErrorCode.ENGINE_OVERLOADED, "The engine cannot take the request now.")
    if status in _OUR_FAULT or not 400 <= status < 500:
        return EngineError(502, ErrorCode.ENGINE_ERROR, f"The engine failed ({status}).")
    status = 400 if status == 422 else status
    said = safe(message)
    if constraint is not None and _CONSTRAINT.search(message):
        return EngineError(
            status, ErrorCode.INVALID_CONSTRAINT, f"The engine refused the constraint: {said}", param=constraint.param
        )
    if _CONTEXT.search(message):
        return EngineError(status, ErrorCode.CONTEXT_LENGTH_EXCEEDED, said)
    field = next((ours for theirs, ours in _FIELDS.items() if re.search(rf"\b{theirs}", message)), None)
    return EngineError(status, ErrorCode.INVALID_VALUE, f"The engine refused the request: {said}", param=field)


def safe(message: str) -> str:
    """The first line of a message, short, with addresses, paths and object dumps taken out."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    if not line or line.startswith(("Traceback", "<")):
        return "no reason given"
    line = _UNSAFE.sub("…", line)
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "…"


def _message(body: Any) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, list):
        return next((text for text in map(_message, body) if text), "")
    if not isinstance(body, dict):
        return ""
    found = (_message(body[key]) for key in ("error", "message", "msg", "detail") if key in body)
    return next((text for text in found if text), "")
