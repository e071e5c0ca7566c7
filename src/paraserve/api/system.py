"""What is served here, how it is, and what is in force: the endpoints that generate nothing for a client."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from paraserve import __version__
from paraserve.api.body import deployment_of, json_response
from paraserve.api.errors import ErrorResponse, no_endpoint
from paraserve.api.server_facts import EngineFacts, Health, ServerInfo, Versions
from paraserve.api.streams import unless_gone
from paraserve.api.turn import reply_id
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Sampling
from paraserve.observability.metrics import Metrics
from paraserve.policies.table import PolicyList
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.protocol.models import ModelCard, ModelList

TOKEN_SECONDS = 5.0
"""A token that came within these shows that the engine is well."""
LOOK_SECONDS = 0.2


async def list_models(request: Request) -> Response:
    deployment = deployment_of(request)
    names = deployment.names
    cards = [_card(deployment, name) for name in names]
    return json_response(ModelList(data=cards, first_id=names[0], last_id=names[-1]))


async def get_model(request: Request) -> Response:
    deployment = deployment_of(request)
    name = request.path_params["model"]
    if not name:
        raise no_endpoint(request.scope)
    return json_response(_card(deployment, deployment.model_name(name)))


def _card(deployment: Deployment, name: str) -> ModelCard:
    created = datetime.fromtimestamp(deployment.created, UTC)
    return ModelCard(
        id=name,
        display_name=name,
        created_at=created.isoformat().replace("+00:00", "Z"),
        created=deployment.created,
        root=deployment.names[0],
        max_model_len=deployment.context_length,
    )


async def health(request: Request) -> Response:
    """The process answers, an engine that it looks after is there, and no engine runs another model."""
    deployment = deployment_of(request)
    if away := deployment.availability.away:
        raise RequestError(f"There is no engine: {away}.", status=503, code=ErrorCode.ENGINE_UNHEALTHY)
    if deployment.engine.stranger:
        message = "The engine runs another model than this server was started for."
        raise RequestError(message, status=503, code=ErrorCode.ENGINE_UNHEALTHY)
    return json_response(Health())


async def health_generate(request: Request) -> Response:
    """The engine makes tokens: those of the last seconds, whoever they are for, or one for this request."""
    try:
        if not _has_made_tokens(request):
            await unless_gone(request, _sign_of_life(request))
    except EngineError as error:
        return ErrorResponse(
            request.scope,
            RequestError(f"The engine does not generate: {error.message}", status=503, code=ErrorCode.ENGINE_UNHEALTHY),
        )
    return await health(request)


def _has_made_tokens(request: Request) -> bool:
    metrics: Metrics = request.app.state.metrics
    last = max(metrics.last_token, deployment_of(request).availability.last_token)
    return last > 0 and time.perf_counter() - last < TOKEN_SECONDS


async def _sign_of_life(request: Request) -> None:
    """Returns with the probe's own token, or with anybody's: the probe may wait behind replies that run."""
    probe = asyncio.ensure_future(_one_token(deployment_of(request)))
    try:
        while not probe.done() and not _has_made_tokens(request):
            await asyncio.wait({probe}, timeout=LOOK_SECONDS)
        if probe.done():
            probe.result()
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)


async def _one_token(deployment: Deployment) -> None:
    """Any token will do: an id that is no end token is the prompt, so that the engine has something to go on."""
    prompt = [next(i for i in range(deployment.tokenizer.vocab_size) if i not in deployment.vocabulary.end_ids)]
    probe = EngineRequest(request_id=reply_id("health"), token_ids=prompt, sampling=Sampling(max_tokens=1))
    sign = _SignOfLife()
    generation = deployment.engine.submit(probe, sign)
    try:
        await sign.seen
    finally:
        generation.abort()


class _SignOfLife:
    """The `Sink` of a generation of which only the end matters."""

    def __init__(self) -> None:
        self.seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, chunk: EngineChunk) -> None:
        return

    def end(self, error: Exception | None) -> None:
        if self.seen.done():  # given up, which is about to be told
            return
        if error is None:
            self.seen.set_result(None)
        else:
            self.seen.set_exception(error)


async def metrics(request: Request) -> Response:
    """Made off the event loop: many series take milliseconds."""
    encode, content_type = request.app.state.metrics.exposition(request.headers.get("accept", ""))
    return Response(await asyncio.to_thread(encode), headers={"content-type": content_type})


async def version(request: Request) -> Response:
    return json_response(Versions(version=__version__, engine=deployment_of(request).engine.info.version))


async def list_policies(request: Request) -> Response:
    return json_response(PolicyList(data=deployment_of(request).policies.states()))


async def server_info(request: Request) -> Response:
    """What this server found out about its model, and what is in force. Holds no secret and no path."""
    deployment = deployment_of(request)
    info = deployment.engine.info
    facts = ServerInfo(
        version=__version__,
        models=list(deployment.names),
        context_length=deployment.context_length,
        format=deployment.format.name,
        sampling_defaults=dict(deployment.sampling_defaults),
        policies=[state.name for state in deployment.policies.states() if state.endpoints],
        engine=EngineFacts(
            name=deployment.settings.engine,
            version=info.version,
            constraints=sorted(info.constraints),
            defers_constraints=info.defers_constraints,
            prompt_logprobs=info.prompt_logprobs,
            max_logprobs=info.max_logprobs,
            logit_bias=info.logit_bias,
            cache_salts=info.cache_salts,
            seeds=info.seeds,
            media=sorted(info.media),
        ),
        prompt=deployment.chat.facts() if deployment.chat is not None else None,
    )
    return json_response(facts, order="deterministic")
