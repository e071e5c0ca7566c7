"""Bodies: a request's within its limit, and a response's as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body_room import FREE_BYTES, BodyRoom, Contents
from paraserve.api.inflate import inflater
from paraserve.api.keys import party_of
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


BODY_SECONDS = 120.0
"""Of a whole body, beside the bound between two parts of it (`serving/connection_limits.py`)."""


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        RequestError: 413 ``request_too_large``, before more than the limit is held (unpacked, where the body is
            compressed), or for more in it than any context has room for; 415 for an encoding that is not known; 400
            for a body that is broken, or not whole; 408 for one that takes too long; 503 where there is no room.
    """
    headers = dict(reversed(request.scope["headers"]))  # the first of several wins
    limit = deployment_of(request).settings.max_body_size
    unpack = inflater(headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower())
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    held = _Held(request, limit)
    try:
        more = True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise RequestError("The request body is incomplete.", code=ErrorCode.INCOMPLETE_BODY)
            more = message.get("more_body", False)
            for chunk in unpack.pieces(message.get("body", b"")):
                held.add(chunk)
                if held.more_than_free:
                    await asyncio.sleep(0)  # others have their turn between two pieces of what is large
        unpack.finish()
        body = held.whole()
    finally:
        held.give_back()
    request.app.state.request_log.take_body(record_of(request.scope), body)
    return body


class _Held:
    """A body as far as it has come."""

    __slots__ = ("_chunks", "_contents", "_limit", "_request", "_room", "_size", "_taken", "_until")

    def __init__(self, request: Request, limit: int) -> None:
        self._request = request
        self._limit = limit
        self._room: BodyRoom = request.app.state.body_room
        self._until = monotonic() + BODY_SECONDS
        self._chunks: list[bytes] = []
        self._size = 0
        self._taken = 0
        self._contents: Contents | None = None

    @property
    def more_than_free(self) -> bool:
        return self._size > FREE_BYTES

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._limit:
            raise _too_large(self._limit)
        if self._size > FREE_BYTES:
            self._contents = self._contents or Contents()
            self._room.take(party_of(self._request.scope), len(chunk))
            self._taken += len(chunk)
            self._contents.add(chunk)
            if monotonic() > self._until:
                raise RequestError(
                    f"The request body did not come within {BODY_SECONDS:g} seconds.",
                    status=408,
                    code=ErrorCode.REQUEST_TIMEOUT,
                )
        self._chunks.append(chunk)

    def whole(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def give_back(self) -> None:
        if self._taken:
            self._room.give_back(party_of(self._request.scope), self._taken)


def _too_large(limit: int) -> RequestError:
    return RequestError(f"The request body is larger than {limit} bytes.", status=413, code=ErrorCode.REQUEST_TOO_LARGE)
