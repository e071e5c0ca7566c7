"""Every endpoint, as one table: who answers, who may ask, and what a client sees of it.

Routes, open paths, probes, the endpoints of the metrics and ``GET /openapi.json`` are made of it. It must never know
how an endpoint is served. Invariant (a test): its examples are served, and no endpoint answers with a status that is
not here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from starlette.requests import Request
from starlette.types import ASGIApp

from paraserve.api import pages, system, tokens
from paraserve.api.chat import ChatTurn
from paraserve.api.completions import CompletionTurn
from paraserve.api.errors import encode_error
from paraserve.api.openapi import describe
from paraserve.api.server_facts import Health, ServerInfo, Versions
from paraserve.policies.table import PolicyList
from paraserve.protocol.chat import ChatCompletion, ChatCompletionRequest
from paraserve.protocol.chunks import ChatCompletionChunk, CompletionChunk
from paraserve.protocol.completions import Completion, CompletionRequest
from paraserve.protocol.errors import RequestError
from paraserve.protocol.models import ModelCard, ModelList
from paraserve.protocol.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    RenderResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from paraserve.settings import ServerSettings

Handler = Callable[[Request], Awaitable[ASGIApp]]

_INPUT_ERRORS = (400, 413, 415)
_MODEL_ERRORS = (404,)
_ENGINE_ERRORS = (429, 502, 503, 504)
_EVERYWHERE = (401, 500, 503)


def _always(_: ServerSettings) -> bool:
    return True


def _never(_: ServerSettings) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Endpoint:
    """Args:
    path: as the router reads it.
    open: whether it is answered without a key where others ask for one.
    served: whether the operator wants it.
    probe: asked every few seconds, and logged at debug when all is well.
    generates: replies come from the engine.
    error: how its API says an error; OpenAI's object by default.
    name, summary, group: of the description; a page for people has none and is not described.
    answer: type of the 200 body, or the media type of one that is no JSON.
    takes: type of the request's body.
    stream: type of an event's payload, where a reply can be streamed.
    examples: name to request body.
    parameters: name of a path parameter to what it is.
    """

    path: str
    method: Literal["GET", "POST"]
    handler: Handler
    open: Callable[[ServerSettings], bool] = _never
    served: Callable[[ServerSettings], bool] = _always
    probe: bool = False
    generates: bool = False
    error: Callable[[RequestError], bytes] = encode_error
    name: str = ""
    summary: str = ""
    group: str = ""
    answer: Any = None
    takes: type | None = None
    stream: type | None = None
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def errors(self) -> list[int]:
        """The statuses that are not 200."""
        found = {*_EVERYWHERE, *(_INPUT_ERRORS if self.takes else ()), *(_ENGINE_ERRORS if self.generates else ())}
        return sorted(found | {*(_MODEL_ERRORS if self.takes or self.parameters else ())})


_FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
_WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

CHAT_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "A question": {"messages": _FRANCE},
    "A stream": {"messages": _FRANCE, "stream": True, "stream_options": {"include_usage": True}},
    "A tool call": {"messages": _FRANCE, "tools": [_WEATHER], "tool_choice": "required"},
    "A JSON reply": {
        "messages": _FRANCE,
        "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY, "strict": True}},
    },
}

_TOKENS = "Tokens"
_MODELS = "Models"
_SERVER = "Server"
_TOKENIZE = Endpoint(
    path="/tokenize",
    method="POST",
    handler=tokens.tokenize,
    name="tokenize",
    summary="Ids of a text or a chat",
    group=_TOKENS,
    takes=TokenizeRequest,
    answer=TokenizeResponse,
    examples={"A text": {"prompt": "Hello", "return_token_strs": True}, "A chat": {"messages": _FRANCE}},
)
_DETOKENIZE = Endpoint(
    path="/detokenize",
    method="POST",
    handler=tokens.detokenize,
    name="detokenize",
    summary="Text of ids",
    group=_TOKENS,
    takes=DetokenizeRequest,
    answer=DetokenizeResponse,
    examples={"Some ids": {"tokens": [72, 105]}},
)


def _under_v1(endpoint: Endpoint) -> Endpoint:
    return replace(
        endpoint, path="/v1" + endpoint.path, name=endpoint.name + "V1", summary=f"The same as {endpoint.path}"
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        path="/v1/chat/completions",
        method="POST",
        handler=ChatTurn.respond,
        generates=True,
        name="createChatCompletion",
        summary="A chat turn: reasoning, content, tool calls; whole or streamed",
        group="Completions",
        takes=ChatCompletionRequest,
        answer=ChatCompletion,
        stream=ChatCompletionChunk,
        examples=CHAT_EXAMPLES,
    ),
    Endpoint(
        path="/v1/chat/completions/render",
        method="POST",
        handler=tokens.render_chat,
        name="renderChat",
        summary="The exact prompt and token ids that a chat request would be served with",
        group=_TOKENS,
        takes=ChatCompletionRequest,
        answer=RenderResponse,
        examples={"A question": {"messages": _FRANCE}},
    ),
    Endpoint(
        path="/v1/completions",
        method="POST",
        handler=CompletionTurn.respond,
        generates=True,
        name="createCompletion",
        summary="Text that goes on after a prompt",
        group="Completions",
        takes=CompletionRequest,
        answer=Completion,
        stream=CompletionChunk,
        examples={
            "A text": {"prompt": "The capital of France is", "max_tokens": 8},
            "Several texts": {"prompt": ["One, two,", "A, B,"], "max_tokens": 8, "stream": True},
        },
    ),
    Endpoint(
        path="/v1/models",
        method="GET",
        handler=system.list_models,
        name="listModels",
        summary="The names under which the model is served, and its context length",
        group=_MODELS,
        answer=ModelList,
    ),
    Endpoint(
        path="/v1/models/{model:path}",
        method="GET",
        handler=system.get_model,
        name="getModel",
        summary="One of the served names",
        group=_MODELS,
        answer=ModelCard,
        parameters={"model": "A served name; it may hold slashes."},
    ),
    _TOKENIZE,
    _under_v1(_TOKENIZE),
    _DETOKENIZE,
    _under_v1(_DETOKENIZE),
    Endpoint(
        path="/v1/policies",
        method="GET",
        handler=system.list_policies,
        name="listPolicies",
        summary="Every policy: flag, state, what it does",
        group=_SERVER,
        answer=PolicyList,
    ),
    Endpoint(
        path="/server_info",
        method="GET",
        handler=system.server_info,
        name="serverInfo",
        summary="What the server found out about its model and engine, and what is in force",
        group=_SERVER,
        answer=ServerInfo,
    ),
    Endpoint(
        path="/version",
        method="GET",
        handler=system.version,
        name="version",
        summary="Versions of server and engine",
        group=_SERVER,
        answer=Versions,
    ),
    Endpoint(
        path="/health",
        method="GET",
        handler=system.health,
        probe=True,
        open=lambda settings: settings.open_health,
        name="health",
        summary="The process answers",
        group=_SERVER,
        answer=Health,
    ),
    Endpoint(
        path="/health_generate",
        method="GET",
        handler=system.health_generate,
        probe=True,
        open=lambda settings: settings.open_health,
        name="healthGenerate",
        summary="The engine makes a token",
        group=_SERVER,
        answer=Health,
    ),
    Endpoint(
        path="/metrics",
        method="GET",
        handler=system.metrics,
        probe=True,
        open=lambda settings: settings.open_metrics,
        name="metrics",
        summary="Prometheus metrics",
        group=_SERVER,
        answer="text/plain",
    ),
    Endpoint(
        path="/", method="GET", handler=pages.playground, open=_always, served=lambda settings: settings.playground
    ),
    Endpoint(path="/docs", method="GET", handler=pages.docs, open=_always),
    Endpoint(path="/openapi.json", method="GET", handler=describe, open=_always),
)
"""In the order in which paths are matched."""
