"""Every failure as its API's error object: the one place that turns an exception into a response.

An endpoint of another API has its own object (`Endpoint.error`); all others have OpenAI's.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paraserve.api.observed import record_of
from paraserve.engines.base import EngineError
from paraserve.prompt.errors import PromptError
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import ErrorBody, ErrorDetail, RequestError, error_type, retry_after
from paraserve.secrets import client_text


def as_request_error(error: RequestError | EngineError | PromptError) -> RequestError:
    """What the client is told about a failure of any stage."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, PromptError):
        return RequestError(error.message, param=error.param, code=error.code)
    headers = retry_after() if error.status in (429, 503) else None
    return RequestError(error.message, status=error.status, param=error.param, code=error.code, headers=headers)


def encode_error(error: RequestError) -> bytes:
    """OpenAI's object. What the client wrote may be in it, but no key, wherever the client had put it."""
    param = None if error.param is None else client_text(error.param)
    body = ErrorBody(ErrorDetail(client_text(error.message), error_type(error.status), param, error.code))
    return msgspec.json.encode(body)


class ErrorResponse(Response):
    """An error as a response, which also notes it on the request's record."""

    def __init__(self, scope: Scope, error: RequestError) -> None:
        encode = scope["app"].state.error_encoders.get(record_of(scope).endpoint, encode_error)
        super().__init__(encode(error), error.status, error.headers, "application/json")
        self._code = error.code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record_of(scope).fail(self.status_code, self._code)
        await super().__call__(scope, receive, send)


def no_endpoint(scope: Scope, methods: Collection[str] = ()) -> RequestError:
    """What is told where nobody answers. ``methods``: those that the path takes, if any."""
    method, path = scope["method"], scope["path"]
    if not methods:
        return RequestError(f"There is no endpoint {method} {path}.", status=404, code=ErrorCode.ENDPOINT_NOT_FOUND)
    return RequestError(
        f"{path} does not take {method}.",
        status=405,
        code=ErrorCode.METHOD_NOT_ALLOWED,
        headers={"allow": ", ".join(methods)},
    )


def internal_error() -> RequestError:
    return RequestError("The server failed to handle this request.", status=500, code=ErrorCode.INTERNAL_ERROR)


def stopping() -> RequestError:
    """What a request is told that outlasts the drain."""
    return RequestError(
        "The server is shutting down.",
        status=503,
        code=ErrorCode.SERVER_STOPPING,
        headers=retry_after(),
    )
