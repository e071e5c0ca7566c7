"""A request's trace: opened when it comes, handed on to the engine, closed with its record. Absent unless asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.observed import record_of
from paraserve.settings import ServerSettings

if TYPE_CHECKING:
    from paraserve.observability.tracing import Tracing

_STATE = "trace_headers"


def traced(settings: ServerSettings) -> list[Middleware]:
    """The layer that traces, where the operator wants it."""
    if settings.otlp_traces_endpoint is None:
        return []
    from paraserve.observability.tracing import Tracing

    return [Middleware(Traced, tracing=Tracing.to(settings.otlp_traces_endpoint))]


def trace_headers(scope: Scope) -> Mapping[str, str]:
    """What tells the engine which trace a request belongs to; nothing where none is made here."""
    headers: Mapping[str, str] = scope["state"].get(_STATE, {})
    return headers


class Traced:
    """Goes inside the layer that keeps the record."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = record_of(scope)
        trace = self._tracing.begin(record, Headers(scope=scope))
        scope["state"][_STATE] = trace.headers
        try:
            await self._app(scope, receive, send)
        finally:
            trace.end(record)
