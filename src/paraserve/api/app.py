"""The ASGI application: which path is answered by what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve import __version__
from paraserve.admission import Admission, AdmissionLimits, LocalAdmission
from paraserve.api import chat, completions, system, tokens
from paraserve.api.access import access_middleware
from paraserve.api.errors import on_bug, on_http_error, on_request_error
from paraserve.api.observed import Observed, endpoint_names
from paraserve.api.pages import page_routes
from paraserve.api.stopping import StopAnswers
from paraserve.api.streams import ClientGone, on_client_gone
from paraserve.api.traced import traced
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineError
from paraserve.observability.metrics import Metrics
from paraserve.observability.request_log import RequestLog
from paraserve.prompt.errors import PromptError
from paraserve.protocol.errors import RequestError

Handler = Callable[[Request], Awaitable[ASGIApp]]


class Answer:
    """A handler as an ASGI application. Starlette puts a net for exceptions around each function of its own; the one
    around the application is enough."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handler(Request(scope, receive, send))
        await response(scope, receive, send)


def _route(path: str, handler: Handler, method: str) -> Route:
    return Route(path, Answer(handler), methods=[method])


ROUTES = [
    _route("/v1/chat/completions", chat.create_chat_completion, "POST"),
    _route("/v1/chat/completions/render", tokens.render_chat, "POST"),
    _route("/v1/completions", completions.create_completion, "POST"),
    _route("/v1/models", system.list_models, "GET"),
    _route("/v1/models/{model:path}", system.get_model, "GET"),
    *(_route(path, tokens.tokenize, "POST") for path in ("/tokenize", "/v1/tokenize")),
    *(_route(path, tokens.detokenize, "POST") for path in ("/detokenize", "/v1/detokenize")),
    _route("/v1/policies", system.list_policies, "GET"),
    _route("/health", system.health, "GET"),
    _route("/health_generate", system.health_generate, "GET"),
    _route("/metrics", system.metrics, "GET"),
    _route("/server_info", system.server_info, "GET"),
    _route("/version", system.version, "GET"),
]


def create_app(deployment: Deployment, admission: Admission | None = None) -> Starlette:
    """An app that serves ``deployment``, whose engine has been started by the caller.

    Args:
        admission: who gives places to requests; by default this process, within the settings' limits.
    """
    settings = deployment.settings
    routes = [*ROUTES, *page_routes(settings)]
    metrics = metrics_of(deployment)
    request_log = RequestLog(settings.log_requests, settings.log_requests_size)
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
            Middleware(StopAnswers),
            *access_middleware(deployment.settings),
        ],
        exception_handlers={
            RequestError: on_request_error,
            EngineError: on_request_error,
            PromptError: on_request_error,
            HTTPException: on_http_error,
            ClientGone: on_client_gone,
            Exception: on_bug,
        },
    )
    app.router.redirect_slashes = False  # another path is another endpoint: 404, in the usual shape
    app.state.deployment = deployment
    app.state.admission = admission or LocalAdmission(AdmissionLimits.of(settings))
    app.state.metrics = metrics
    app.state.request_log = request_log
    return app


def metrics_of(deployment: Deployment) -> Metrics:
    """A registry of its own for the app that serves ``deployment``."""
    return Metrics(
        deployment.names,
        policies=[state.name for state in deployment.policies.states() if state.endpoints],
        build={
            "version": __version__,
            "engine": deployment.settings.engine,
            "engine_version": deployment.engine.info.version,
        },
    )
