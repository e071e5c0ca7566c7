"""Every endpoint as a client sees it, as data: what it takes, what it answers, which errors it has, examples.

``GET /openapi.json`` is made of it. It must never know how an endpoint is served. Invariant (a test): it has exactly
the routes of the app, its examples are served, and no endpoint answers with a status that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from paraserve.api.server_facts import Health, ServerInfo, Versions
from paraserve.policies.table import PolicyList
from paraserve.protocol.chat import ChatCompletion, ChatCompletionRequest
from paraserve.protocol.chunks import ChatCompletionChunk, CompletionChunk
from paraserve.protocol.completions import Completion, CompletionRequest
from paraserve.protocol.models import ModelCard, ModelList
from paraserve.protocol.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    RenderResponse,
    TokenizeRequest,
    TokenizeResponse,
)

INPUT_ERRORS = (400, 413, 415)
"""Of every endpoint that reads a body."""
MODEL_ERRORS = (404,)
ENGINE_ERRORS = (429, 502, 503, 504)
EVERYWHERE = (401, 500, 503)

STATUS_TEXTS: Mapping[int, str] = {
    200: "Success",
    400: "The request is wrong: `param` names the field, or the input does not fit",
    401: "A valid API key is needed",
    404: "The model is not served here",
    413: "The body is larger than the server takes, or the input does not fit",
    415: "The body is compressed in a way that is not known",
    429: "Too many requests",
    500: "A bug of the server",
    502: "The engine failed or is not there",
    503: "No room, or about to stop: `Retry-After` says when to come back",
    504: "The engine has been silent for too long",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Args:
    answer: type of the 200 body, or the media type of one that is no JSON.
    stream: type of an event's payload, where a reply can be streamed.
    errors: statuses beside those that every endpoint has.
    examples: name to request body.
    parameters: name of a path parameter to what it is.
    """

    path: str
    method: Literal["get", "post"]
    name: str
    summary: str
    group: str
    answer: Any
    takes: type | None = None
    stream: type | None = None
    errors: tuple[int, ...] = ()
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


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
    method="post",
    name="tokenize",
    summary="Ids of a text or a chat",
    group=_TOKENS,
    takes=TokenizeRequest,
    answer=TokenizeResponse,
    errors=INPUT_ERRORS + MODEL_ERRORS,
    examples={"A text": {"prompt": "Hello", "return_token_strs": True}, "A chat": {"messages": _FRANCE}},
)
_DETOKENIZE = Endpoint(
    path="/detokenize",
    method="post",
    name="detokenize",
    summary="Text of ids",
    group=_TOKENS,
    takes=DetokenizeRequest,
    answer=DetokenizeResponse,
    errors=INPUT_ERRORS + MODEL_ERRORS,
    examples={"Some ids": {"tokens": [72, 105]}},
)


def _under_v1(endpoint: Endpoint) -> Endpoint:
    return replace(
        endpoint, path="/v1" + endpoint.path, name=endpoint.name + "V1", summary=f"The same as {endpoint.path}"
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        path="/v1/chat/completions",
        method="post",
        name="createChatCompletion",
        summary="A chat turn: reasoning, content, tool calls; whole or streamed",
        group="Completions",
        takes=ChatCompletionRequest,
        answer=ChatCompletion,
        stream=ChatCompletionChunk,
        errors=INPUT_ERRORS + MODEL_ERRORS + ENGINE_ERRORS,
        examples=CHAT_EXAMPLES,
    ),
    Endpoint(
        path="/v1/chat/completions/render",
        method="post",
        name="renderChat",
        summary="The exact prompt and token ids that a chat request would be served with",
        group=_TOKENS,
        takes=ChatCompletionRequest,
        answer=RenderResponse,
        errors=INPUT_ERRORS + MODEL_ERRORS,
        examples={"A question": {"messages": _FRANCE}},
    ),
    Endpoint(
        path="/v1/completions",
        method="post",
        name="createCompletion",
        summary="Text that goes on after a prompt",
        group="Completions",
        takes=CompletionRequest,
        answer=Completion,
        stream=CompletionChunk,
        errors=INPUT_ERRORS + MODEL_ERRORS + ENGINE_ERRORS,
        examples={
            "A text": {"prompt": "The capital of France is", "max_tokens": 8},
            "Several texts": {"prompt": ["One, two,", "A, B,"], "max_tokens": 8, "stream": True},
        },
    ),
    Endpoint(
        path="/v1/models",
        method="get",
        name="listModels",
        summary="The names under which the model is served, and its context length",
        group=_MODELS,
        answer=ModelList,
    ),
    Endpoint(
        path="/v1/models/{model}",
        method="get",
        name="getModel",
        summary="One of the served names",
        group=_MODELS,
        answer=ModelCard,
        errors=MODEL_ERRORS,
        parameters={"model": "A served name; it may hold slashes."},
    ),
    _TOKENIZE,
    _under_v1(_TOKENIZE),
    _DETOKENIZE,
    _under_v1(_DETOKENIZE),
    Endpoint(
        path="/v1/policies",
        method="get",
        name="listPolicies",
        summary="Every policy: flag, state, what it does",
        group=_SERVER,
        answer=PolicyList,
    ),
    Endpoint(
        path="/server_info",
        method="get",
        name="serverInfo",
        summary="What the server found out about its model and engine, and what is in force",
        group=_SERVER,
        answer=ServerInfo,
    ),
    Endpoint(
        path="/version",
        method="get",
        name="version",
        summary="Versions of server and engine",
        group=_SERVER,
        answer=Versions,
    ),
    Endpoint(
        path="/health",
        method="get",
        name="health",
        summary="The process answers",
        group=_SERVER,
        answer=Health,
    ),
    Endpoint(
        path="/health_generate",
        method="get",
        name="healthGenerate",
        summary="The engine makes a token",
        group=_SERVER,
        answer=Health,
    ),
    Endpoint(
        path="/metrics",
        method="get",
        name="metrics",
        summary="Prometheus metrics",
        group=_SERVER,
        answer="text/plain",
    ),
)

FIELD_TEXTS: Mapping[str, str] = {
    "model": "A served name; may be left out.",
    "messages": "The conversation. Fields that no API names reach the chat template as well.",
    "prompt": "A text, several texts, token ids, or several lists of token ids.",
    "max_tokens": "Most tokens of the reply; the room that the context has left by default (completions: 16).",
    "max_completion_tokens": "Wins over max_tokens.",
    "temperature": "0 is greedy. Unset: the model's generation_config, else 1.",
    "top_p": "Nucleus sampling. Unset: the model's generation_config, else 1.",
    "top_k": "Most likely tokens to sample from; -1 and 0 are off.",
    "min_p": "Least probability relative to the likeliest token's.",
    "repetition_penalty": "Above 1 makes tokens that were there already less likely.",
    "seed": "The same seed, request and server repeat a reply.",
    "stop": "Strings that end the reply; they are not shown.",
    "stop_token_ids": "Tokens that end the reply.",
    "logit_bias": "Token id to what is added to its logit.",
    "cache_salt": "Share cached prompts only with requests of the same salt; refused where the engine cannot.",
    "ignore_eos": "Go on after the end token.",
    "min_tokens": "No end token before this many tokens.",
    "skip_special_tokens": "false shows special tokens in the text.",
    "n": "How many choices.",
    "stream": "Send the reply as server-sent events.",
    "response_format": "A JSON object, or JSON by a schema; enforced by the engine.",
    "regex": "A regular expression that the whole reply matches.",
    "ebnf": "A grammar that the reply follows, in the engine's own syntax.",
    "tools": "Functions that the model may call.",
    "tool_choice": "none, auto, required, or an object that names a function.",
    "parallel_tool_calls": "false gives the first call only.",
    "reasoning_effort": "How much to think, where the model's template knows such a thing.",
    "chat_template_kwargs": "Variables for the chat template.",
    "continue_final_message": "Go on with the last message instead of beginning a reply.",
    "logprobs": "Log probabilities of the reply's tokens.",
    "top_logprobs": "How many alternatives for each token.",
    "echo": "Begin with the prompt.",
}
