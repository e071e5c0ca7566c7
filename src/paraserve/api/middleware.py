"""What every request passes on its way in and out: its id, and the key that opens the door."""

from __future__ import annotations

import asyncio
import hmac
import re
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paraserve.api.errors import error_response, stopping
from paraserve.protocol.errors import RequestError

REQUEST_ID_HEADER = "x-request-id"
OPEN_PATHS = frozenset({"/health", "/health_generate"})
"""Probes of an orchestrator carry no key."""

_SAFE_ID = re.compile(r"[\x21-\x7e]{1,128}")


class RequestIds:
    """The client's ``X-Request-Id``, or one of ours, in the request's state and on the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = sent if _SAFE_ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class ApiKeys:
    """Asks for a bearer token. Keys are compared in constant time and never shown."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._admits(scope):
            await self._app(scope, receive, send)
            return
        error = RequestError(
            "A valid API key is needed: send it as `Authorization: Bearer KEY`.",
            status=401,
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )
        await error_response(error)(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        scheme, _, sent = Headers(scope=scope).get("authorization", "").partition(" ")
        raw = sent.strip().encode("latin-1", "replace")
        matches = [hmac.compare_digest(raw, key) for key in self._keys]
        return scheme.lower() == "bearer" and any(matches)


class StopAnswers:
    """Tells requests that the server's stop breaks off before they have an answer; streams tell it themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not begun:
                await error_response(stopping())(scope, receive, send)
            raise
