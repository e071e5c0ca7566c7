"""The ASGI application: which path is answered by what."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paraserve import __version__
from paraserve.admission import Admission, AdmissionLimits, LocalAdmission
from paraserve.api.access import key_layer, page_layers
from paraserve.api.body_room import BodyRoom
from paraserve.api.endpoints import ENDPOINTS, Handler
from paraserve.api.errors import on_http_error, on_request_error
from paraserve.api.last_answers import LastAnswers
from paraserve.api.observed import Observed, endpoint_names
from paraserve.api.sealed import Seal
from paraserve.api.streams import ClientGone, on_client_gone
from paraserve.api.traced import traced
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineError
from paraserve.observability.metrics import Metrics
from paraserve.observability.request_log import RequestLog
from paraserve.prompt.errors import PromptError
from paraserve.protocol.errors import RequestError


class Answer:
    """A handler as an ASGI application. Starlette puts a net for exceptions around each function of its own; the one
    around the application is enough."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)


def create_app(deployment: Deployment, admission: Admission | None = None) -> Starlette:
    """An app that serves ``deployment``, whose engine has been started by the caller.

    Args:
        admission: who gives places to requests; by default this process, within the settings' limits.
    """
    settings = deployment.settings
    served = tuple(endpoint for endpoint in ENDPOINTS if endpoint.served(settings))
    routes = [Route(endpoint.path, Answer(endpoint.handler), methods=[endpoint.method]) for endpoint in served]
    metrics = metrics_of(deployment)
    probes = frozenset(endpoint.path for endpoint in served if endpoint.probe)
    request_log = RequestLog(settings.log_requests, settings.log_requests_size, probes)
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(
                Observed,
                metrics=metrics,
                request_log=request_log,
                endpoint=endpoint_names(routes, settings.root_path),
            ),
            *traced(settings),
            *page_layers(settings),
            Middleware(LastAnswers),
            *key_layer(settings, frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.open(settings))),
        ],
        exception_handlers={
            RequestError: on_request_error,
            EngineError: on_request_error,
            PromptError: on_request_error,
            HTTPException: on_http_error,
            ClientGone: on_client_gone,
        },
    )
    app.router.redirect_slashes = False  # another path is another endpoint: 404, in the usual shape
    app.state.deployment = deployment
    app.state.endpoints = served
    app.state.error_encoders = {endpoint.path: endpoint.error for endpoint in served}
    app.state.admission = admission or LocalAdmission(AdmissionLimits.of(settings))
    app.state.body_room = BodyRoom(settings.max_body_size)
    app.state.metrics = metrics
    app.state.seal = Seal(settings.reasoning_key)
    app.state.request_log = request_log
    return app


def metrics_of(deployment: Deployment) -> Metrics:
    """A registry of its own for the app that serves ``deployment``."""
    return Metrics(
        deployment.names,
        endpoints=[endpoint.path for endpoint in ENDPOINTS if endpoint.generates],
        policies=[state.name for state in deployment.policies.states() if state.endpoints],
        build={
            "version": __version__,
            "engine": deployment.settings.engine,
            "engine_version": deployment.engine.info.version,
        },
    )
