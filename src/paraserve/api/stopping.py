"""The answer of a request that the server's stop breaks off."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.errors import ErrorResponse, stopping
from paraserve.api.observed import record_of


class StopAnswers:
    """Tells requests that the server's stop breaks off before they have an answer; streams tell it themselves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not record_of(scope).status:
                await ErrorResponse(scope, stopping())(scope, receive, send)
            raise
