"""A request's trace: opened when it comes, handed on to the engine, closed with its record. Absent unless asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.observed import record_of
from paraserve.settings import ServerSettings

if TYPE_CHECKING:
    from paraserve.observability.tracing import Tracing

_STATE = "trace_headers"
_IDS = r"(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_PARENT = re.compile(rf"00-{_IDS}|(?!00|ff)[0-9a-f]{{2}}-{_IDS}(?:-.*)?")
"""Version, trace, span and flags; a version to come may have more behind them."""


def traced(settings: ServerSettings) -> list[Middleware]:
    """The layer that traces, where the operator wants it."""
    if settings.otlp_traces_endpoint is None:
        return []
    from paraserve.observability.tracing import Tracing

    return [Middleware(Traced, tracing=Tracing.to(settings.otlp_traces_endpoint))]


def trace_headers(scope: Scope) -> Mapping[str, str]:
    """What tells the engine which trace a request belongs to: of a span made here, else as the client said it."""
    headers: Mapping[str, str] | None = scope["state"].get(_STATE)
    return client_context(scope) if headers is None else headers


def client_context(scope: Scope) -> Mapping[str, str]:
    """A client's trace as it came. What is no ``traceparent`` takes its ``tracestate`` with it (W3C Trace Context)."""
    parents = [value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"]
    if len(parents) != 1 or not _PARENT.fullmatch(parents[0]):
        return {}
    state = ",".join([value.decode("latin-1") for name, value in scope["headers"] if name == b"tracestate"])
    return {"traceparent": parents[0], **({"tracestate": state} if state else {})}


class Traced:
    """Goes inside the layer that keeps the record."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        trace = self._tracing.begin(record, client_context(scope))
        scope["state"][_STATE] = trace.headers
        try:
            await self._app(scope, receive, send)
        finally:
            trace.end(record)
