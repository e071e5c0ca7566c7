"""The ASGI application: which path is answered by what."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from paraserve.api import chat, completions, system, tokens
from paraserve.api.errors import on_bug, on_http_error, on_request_error
from paraserve.api.middleware import ApiKeys, RequestIds, StopAnswers
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineError
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
    Route("/server_info", system.server_info, methods=["GET"]),
    Route("/version", system.version, methods=["GET"]),
]


def create_app(deployment: Deployment) -> Starlette:
    """An app that serves ``deployment``, whose engine has been started by the caller."""
    keys = [deployment.settings.api_key] if deployment.settings.api_key else []
    app = Starlette(
        routes=ROUTES,
        middleware=[
            Middleware(RequestIds),
            Middleware(StopAnswers),
            *([Middleware(ApiKeys, keys=keys)] if keys else []),
        ],
        exception_handlers={
            RequestError: on_request_error,
            EngineError: on_request_error,
            PromptError: on_request_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
    )
    app.state.deployment = deployment
    return app
