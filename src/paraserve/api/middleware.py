"""The answer of a request that the server's stop breaks off."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paraserve.api.errors import error_response, stopping


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
