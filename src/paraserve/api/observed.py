"""The outermost layer of every request: its id, its record, and the one place where both are handed to metrics and log.

It must never know what an endpoint does. Invariant: each request leaves one record, whether it is answered, refused,
broken off or failed by a bug, and what is done for each frame of a stream does not depend on what is in it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paraserve.api.direct_body import forbid_direct_body
from paraserve.api.routing import Router
from paraserve.observability.logs import request_id
from paraserve.observability.metrics import Metrics
from paraserve.observability.record import RequestRecord
from paraserve.observability.request_log import RequestLog
from paraserve.policies.base import RESPONSE_HEADER
from paraserve.secrets import CREDENTIAL_HEADERS, Presented, client_text, presented

REQUEST_ID_HEADER = "x-request-id"

_REQUEST_ID_NAME = REQUEST_ID_HEADER.encode()
_ANTHROPICS_NAME = b"request-id"
"""Under which Anthropic's SDKs look for it."""
_POLICIES_NAME = RESPONSE_HEADER.encode()
_SAFE_ID = re.compile(r"[\x21-\x7e]{1,128}")


def record_of(scope: Scope) -> RequestRecord:
    record: RequestRecord = scope["state"]["record"]
    return record


class Observed:
    """The client's ``X-Request-Id``, or one of ours, on the response and on every log line; and the request's record
    and route in its state."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, request_log: RequestLog, router: Router) -> None:
        self._app = app
        self._metrics = metrics
        self._log = request_log
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Never reset: each request has a context of its own.
        carried = [value.decode("latin-1") for name, value in scope["headers"] if name in CREDENTIAL_HEADERS]
        presented.set(Presented(carried))
        route, scope["path_params"] = self._router.find(scope)
        record = RequestRecord(_id_of(scope), scope["method"], route.path, scope["path"])
        state = scope.setdefault("state", {})
        state["record"], state["route"] = record, route
        request_id.set(record.id)
        kept = self._log.reply_size
        if kept:  # a body that goes past this layer cannot be shown
            forbid_direct_body(scope)

        async def send_observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                named = record.id.encode()
                message["headers"] = [*headers, (_REQUEST_ID_NAME, named), (_ANTHROPICS_NAME, named)]
                policies = next((value for name, value in headers if name == _POLICIES_NAME), b"")
                record.answer(message["status"], policies.decode())
            elif kept and len(record.reply) < kept:
                record.reply += message.get("body", b"")[: kept - len(record.reply)]
            await send(message)

        self._metrics.begin(record)
        try:
            await self._app(scope, receive, send_observed)
        except asyncio.CancelledError:
            record.stop()
            raise
        finally:
            record.close()
            try:
                self._metrics.end(record)
            finally:  # whatever a number in it is, a request leaves its line
                self._log.write(record)


async def observe_behind(
    record: RequestRecord, reply: Coroutine[Any, Any, None], metrics: Metrics, request_log: RequestLog
) -> None:
    """Run what a request leaves behind. It is counted and has a line of its own, both when it has ended."""
    try:
        with metrics.behind(record):
            try:
                await reply
            finally:
                record.close()
    finally:
        request_log.write(record)


def _id_of(scope: Scope) -> str:
    sent = next((value for name, value in scope["headers"] if name == _REQUEST_ID_NAME), b"").decode("latin-1")
    return sent if _SAFE_ID.fullmatch(sent) and client_text(sent) == sent else os.urandom(16).hex()
