"""The answers of requests that no stage answers: the server's stop breaks them off, or they met a bug.

It stands inside the layers that every answer passes, so that these have an id, and a page of an allowed origin may read
them, like any other.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.errors import ErrorResponse, internal_error, stopping
from paraserve.api.observed import record_of

log = logging.getLogger(__name__)


class LastAnswers:
    """Streams tell it themselves, once they have begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not record.status:
                await ErrorResponse(scope, stopping())(scope, receive, send)
            raise
        except Exception as bug:
            if record.status:
                raise  # what is on its way cannot be taken back
            log.error("%s %s failed", scope["method"], record.endpoint, exc_info=bug)
            await ErrorResponse(scope, internal_error())(scope, receive, send)
