"""The ASGI application: the layers around the endpoints, and what all requests share."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve import __version__
from paraserve.admission import Admission, AdmissionLimits, LocalAdmission
from paraserve.api.access import key_layer, page_layers
from paraserve.api.body_room import BodyRoom
from paraserve.api.endpoints import ENDPOINTS
from paraserve.api.errors import no_endpoint
from paraserve.api.last_answers import LastAnswers
from paraserve.api.observed import Observed
from paraserve.api.routing import Route, Router
from paraserve.api.sealed import Seal
from paraserve.api.traced import traced
from paraserve.deployment import Deployment
from paraserve.observability.metrics import Metrics
from paraserve.observability.request_log import RequestLog


class Application:
    """Answers HTTP, and HTTP alone.

    Args:
        layers: around the endpoints, the outermost first.
        state: what requests share, ``app.state`` of each.
    """

    def __init__(self, layers: Sequence[Middleware], state: SimpleNamespace) -> None:
        self.state = state
        self._app: ASGIApp = answer
        for make, args, kwargs in reversed(layers):
            self._app = make(self._app, *args, **kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self._app(scope, receive, send)


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """By the endpoint that the request is for."""
    route: Route = scope["state"]["route"]
    handler = route.handlers.get(scope["method"])
    if handler is None:
        raise no_endpoint(scope, route.handlers)
    response = await handler(Request(scope, receive, send))
    await response(scope, receive, send)


def create_app(deployment: Deployment, admission: Admission | None = None) -> Application:
    """An app that serves ``deployment``, whose engine has been started by the caller.

    Args:
        admission: who gives places to requests; by default this process, within the settings' limits.
    """
    settings = deployment.settings
    served = tuple(endpoint for endpoint in ENDPOINTS if endpoint.served(settings))
    probes = frozenset(endpoint.path for endpoint in served if endpoint.probe)
    state = SimpleNamespace(
        deployment=deployment,
        endpoints=served,
        error_encoders={endpoint.path: endpoint.error for endpoint in served},
        admission=admission or LocalAdmission(AdmissionLimits.of(settings)),
        body_room=BodyRoom(settings.max_body_size),
        metrics=metrics_of(deployment),
        seal=Seal(settings.reasoning_key),
        request_log=RequestLog(settings.log_requests, settings.log_requests_size, probes),
    )
    router = Router(served, settings.root_path)  # another path is another endpoint, also one with a slash more
    layers = [
        Middleware(Observed, metrics=state.metrics, request_log=state.request_log, router=router),
        *traced(settings),
        *page_layers(settings),
        Middleware(LastAnswers),
        *key_layer(settings, frozenset(endpoint.path for endpoint in ENDPOINTS if endpoint.open(settings))),
    ]
    return Application(layers, state)


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
