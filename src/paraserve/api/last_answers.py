"""The answers of requests that no endpoint answers: a stage refuses them, the client or the engine leaves, the server's
stop breaks them off, or they meet a bug.

It stands inside the layers that every answer passes, so that these have an id, and a page of an allowed origin may read
them, like any other.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.errors import ErrorResponse, as_request_error, internal_error, stopping
from paraserve.api.observed import record_of
from paraserve.api.streams import ClientGone
from paraserve.engines.base import EngineError
from paraserve.observability.record import CLIENT_CLOSED_REQUEST
from paraserve.prompt.errors import PromptError
from paraserve.protocol.errors import RequestError

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
        except Exception as error:
            if record.status:
                raise  # what is on its way cannot be taken back
            await _answer_to(error, scope)(scope, receive, send)


def _answer_to(error: Exception, scope: Scope) -> Response:
    if isinstance(error, RequestError | EngineError | PromptError):
        return ErrorResponse(scope, as_request_error(error))
    record = record_of(scope)
    if isinstance(error, ClientGone):  # nobody reads this; the record does
        record.leave()
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    log.error("%s %s failed", scope["method"], record.endpoint, exc_info=error)
    return ErrorResponse(scope, internal_error())
