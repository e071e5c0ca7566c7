"""Bodies: a request's within its limit, and a response's as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from paraserve.api.inflate import inflater
from paraserve.api.observed import record_of
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError

if TYPE_CHECKING:
    from paraserve.deployment import Deployment


def deployment_of(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


def json_response(
    value: object, *, order: Literal["deterministic"] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Args:
    order: sets and mappings are sorted.
    """
    return Response(msgspec.json.encode(value, order=order), headers=headers, media_type="application/json")


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        RequestError: 413 ``request_too_large``, before more than the limit is held (unpacked, where the body is
            compressed); 415 for an encoding that is not known; 400 for a body that is broken, or not whole.
    """
    headers, limit = request.headers, deployment_of(request).settings.max_body_size
    unpack = inflater(headers.get("content-encoding", "identity").strip().lower())
    declared = headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        async for received in request.stream():
            chunk = unpack.feed(received, limit - size)
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
    except ClientDisconnect:
        raise RequestError("The request body is incomplete.", code=ErrorCode.INCOMPLETE_BODY) from None
    unpack.finish()
    body = b"".join(chunks)
    request.app.state.request_log.take_body(record_of(request.scope), body)
    return body


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The request body is larger than {limit} bytes.", status=413, code=ErrorCode.REQUEST_TOO_LARGE)
