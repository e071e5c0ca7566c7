"""The ASGI application: which path is answered by what."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from paraserve import __version__
from paraserve.admission import Admission, AdmissionLimits, LocalAdmission
from paraserve.api import chat, completions, system, tokens
from paraserve.api.edge import edge
from paraserve.api.errors import on_bug, on_http_error, on_request_error
from paraserve.api.middleware import StopAnswers
from paraserve.api.observed import Observed, endpoint_names
from paraserve.api.pages import page_routes
from paraserve.api.streams import ClientGone, on_client_gone
from paraserve.api.traced import traced
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineError
from paraserve.observability.metrics import Metrics
from paraserve.observability.request_log import RequestLog
from paraserve.prompt.errors import PromptError
from paraserve.protocol.errors import RequestError

ROUTES = [
    Route("/v1/chat/completions", chat.create_chat_completion, methods=["POST"]),
    Route("/v1/chat/completions/render", tokens.render_chat, methods=["POST"]),
    Route("/v1/completions", completions.create_completion, methods=["POST"]),
    Route("/v1/models", system.list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", system.get_model, methods=["GET"]),
    *(Route(path, tokens.tokenize, methods=["POST"]) for path in ("/tokenize", "/v1/tokenize")),
    *(Route(path, tokens.detokenize, methods=["POST"]) for path in ("/detokenize", "/v1/detokenize")),
    Route("/v1/policies", system.list_policies, methods=["GET"]),
    Route("/health", system.health, methods=["GET"]),
    Route("/health_generate", system.health_generate, methods=["GET"]),
    Route("/metrics", system.metrics, methods=["GET"]),
    Route("/server_info", system.server_info, methods=["GET"]),
    Route("/version", system.version, methods=["GET"]),
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
            *edge(deployment.settings),
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
