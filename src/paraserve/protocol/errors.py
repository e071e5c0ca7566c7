"""The one error shape, and the exception that carries it to the edge.

Every failure that a client sees is OpenAI's nested object with a true HTTP status. A message names the field, gives
what would be right, and never shows a Python repr, a path of the server or the whole input.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.words import right_words

LONGEST_RETRY_AFTER = 60
"""Seconds that a client is told to wait, at most twice."""

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class ErrorDetail(msgspec.Struct, frozen=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorDetail


class RequestError(Exception):
    """A request that cannot be served as asked.

    Args:
        message: for the client, complete and safe to show.
        status: HTTP status, 4xx or 5xx.
        param: the field that is to blame, as the client would write it (``messages[0].content``).
        code: a stable word that a client can branch on, of the table.
        headers: further response headers (``Retry-After``, ``Allow``).
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: ErrorCode | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})


def field_error(param: str, why: str, code: ErrorCode = ErrorCode.INVALID_VALUE) -> RequestError:
    """A 400 whose message begins with the field that it names."""
    return RequestError(f"{param}: {why}", param=param, code=code)


def retry_after(seconds: float = 1.0) -> dict[str, str]:
    """The header that says when to come back: after ``seconds``, or up to twice as late.

    It is drawn anew for each, so that those who are refused together do not come back together.
    """
    least = min(max(seconds, 1.0), LONGEST_RETRY_AFTER)
    return {"retry-after": str(round(random.uniform(least, 2 * least)))}


def error_type(status: int) -> str:
    """OpenAI's ``error.type`` for a status."""
    return _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def context_overflow(
    prompt_tokens: int, context_length: int, longest_prompt: int | None, *, status: int = 400, param: str
) -> RequestError:
    """The prompt alone does not fit. The wording is the one that agents look for ("maximum context length")."""
    why = "which leaves no room for a reply" if prompt_tokens >= context_length else f"of at most {longest_prompt}"
    return RequestError(
        f"This model's maximum context length is {context_length} tokens. However, your input resulted in "
        f"{prompt_tokens} tokens, {why}. Please reduce the length of the input.",
        status=status,
        param=param,
        code=ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    )


def output_overflow(prompt_tokens: int, max_tokens: int, context_length: int, *, param: str) -> RequestError:
    """The prompt fits, but not with the output limit that was asked for."""
    return RequestError(
        f"This model's maximum context length is {context_length} tokens. However, you requested "
        f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the input, {max_tokens} for the reply). "
        f"Please reduce the input or {param}: there is room for {context_length - prompt_tokens} tokens of reply. "
        "(A server started with --openai-max-tokens-overflow clamp cuts the limit to the room.)",
        param=param,
        code=ErrorCode.CONTEXT_LENGTH_EXCEEDED,
    )


_AT = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_ECHOED = re.compile(r"^(Invalid (?:enum )?value) .*", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `([^`]+)`")


def from_validation(error: msgspec.ValidationError, root: str = "", expected: Any = None) -> RequestError:
    """What msgspec found wrong, as a 400 that names the field.

    Args:
        expected: the type that was not met: of a field that takes only some words, they are listed.
        root: where in the request the validated value stands, when it is not the whole body.
    """
    text = str(error)
    at = _AT.search(text)
    path = at[1] if at else ""
    message = _ECHOED.sub(r"\1", text[: at.start()] if at else text)
    words = right_words(expected, path) if expected is not None and message.startswith("Invalid") else ()
    if words:
        message = f"must be one of {', '.join(words)}"
    missing = _MISSING.match(message)
    if missing:
        path = f"{path}.{missing[1]}" if path else missing[1]
        message = "field required"
    separator = "" if not path or path.startswith("[") or not root else "."
    param = f"{root}{separator}{path}" or None
    return RequestError(
        f"{param}: {message}" if param else message,
        param=param,
        code=ErrorCode.MISSING_REQUIRED_PARAMETER if missing else ErrorCode.INVALID_VALUE,
    )
