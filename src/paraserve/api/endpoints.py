"""Every endpoint, as one table: who answers, who may ask, and what a client sees of it.

Routes, open paths, probes, the endpoints of the metrics and ``GET /openapi.json`` are made of it. It must never know
how an endpoint is served. Invariant (a test): its examples are served, and no endpoint answers with a status that is
not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal

from paraserve.api import pages, stored, system, tokens
from paraserve.api.chat import ChatTurn
from paraserve.api.completions import CompletionTurn
from paraserve.api.encoders.messages import encode_anthropic_error
from paraserve.api.errors import encode_error
from paraserve.api.messages import MessagesTurn, count_tokens
from paraserve.api.openapi import describe
from paraserve.api.responses import ResponsesTurn, input_tokens
from paraserve.api.routing import Handler
from paraserve.api.server_facts import Health, ServerInfo, Versions
from paraserve.policies.table import PolicyList
from paraserve.protocol.anthropic import AnthropicMessage, CountTokensRequest, InputTokens, MessagesRequest
from paraserve.protocol.chat import ChatCompletion, ChatCompletionRequest
from paraserve.protocol.chunks import ChatCompletionChunk, CompletionChunk
from paraserve.protocol.completions import Completion, CompletionRequest
from paraserve.protocol.errors import RequestError
from paraserve.protocol.models import ModelCard, ModelList
from paraserve.protocol.responses import (
    ConversationObject,
    ConversationRequest,
    Deleted,
    InputTokensRequest,
    ItemList,
    ResponseEvent,
    ResponseInputTokens,
    ResponseObject,
    ResponsesRequest,
)
from paraserve.protocol.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    RenderResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from paraserve.settings import ServerSettings

_INPUT_ERRORS = (400, 408, 413, 415)
_MODEL_ERRORS = (404,)
_ENGINE_ERRORS = (429, 502, 503, 504)
_EVERYWHERE = (401, 403, 500, 503)


def _always(_: ServerSettings) -> bool:
    return True


def _never(_: ServerSettings) -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """Args:
    path: as the router reads it.
    name, summary, group: of the description; a page for people has none and is not described.
    takes: type of the request's body.
    answer: type of the 200 body, or the media type of one that is no JSON.
    stream: type of an event's payload, where a reply can be streamed.
    generates: replies come from the engine.
    probe: asked every few seconds, and logged at debug when all is well.
    open: whether it is answered without a key where others ask for one.
    served: whether the operator wants it.
    error: how its API says an error; OpenAI's object by default.
    examples: name to request body.
    parameters: name of a path parameter to what it is.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    name: str = ""
    summary: str = ""
    group: str = ""
    _: KW_ONLY
    takes: type | None = None
    answer: Any = None
    stream: type | None = None
    generates: bool = False
    probe: bool = False
    open: Callable[[ServerSettings], bool] = _never
    served: Callable[[ServerSettings], bool] = _always
    error: Callable[[RequestError], bytes] = encode_error
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def errors(self) -> list[int]:
        """The statuses that are not 200."""
        found = {*_EVERYWHERE, *(_INPUT_ERRORS if self.takes else ()), *(_ENGINE_ERRORS if self.generates else ())}
        return sorted(found | {*(_MODEL_ERRORS if self.takes or self.parameters else ())})


_FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WEATHER: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": _CITY},
}

CHAT_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "A question": {"messages": _FRANCE},
    "A stream": {"messages": _FRANCE, "stream": True, "stream_options": {"include_usage": True}},
    "A tool call": {"messages": _FRANCE, "tools": [_WEATHER], "tool_choice": "required"},
    "A JSON reply": {
        "messages": _FRANCE,
        "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY, "strict": True}},
    },
}

_TOKENIZE = Endpoint(
    "POST", "/tokenize", tokens.tokenize, "tokenize", "Ids of a text or a chat", "Tokens",
    takes=TokenizeRequest, answer=TokenizeResponse,
    examples={"A text": {"prompt": "Hello", "return_token_strs": True}, "A chat": {"messages": _FRANCE}},
)  # fmt: skip
_DETOKENIZE = Endpoint(
    "POST", "/detokenize", tokens.detokenize, "detokenize", "Text of ids", "Tokens",
    takes=DetokenizeRequest, answer=DetokenizeResponse, examples={"Some ids": {"tokens": [72, 105]}},
)  # fmt: skip


def _under_v1(endpoint: Endpoint) -> Endpoint:
    return replace(
        endpoint, path="/v1" + endpoint.path, name=endpoint.name + "V1", summary=f"The same as {endpoint.path}"
    )


_RESPONSE_ID = {"response_id": "What `id` of the response said."}
_CONVERSATION_ID = {"conversation_id": "What `id` of the conversation said."}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST", "/v1/chat/completions", ChatTurn.respond, "createChatCompletion",
        "A chat turn: reasoning, content, tool calls; whole or streamed", "Completions",
        takes=ChatCompletionRequest, answer=ChatCompletion, stream=ChatCompletionChunk, generates=True,
        examples=CHAT_EXAMPLES,
    ),
    Endpoint(
        "POST", "/v1/chat/completions/render", tokens.render_chat, "renderChat",
        "The exact prompt and token ids that a chat request would be served with", "Tokens",
        takes=ChatCompletionRequest, answer=RenderResponse, examples={"A question": {"messages": _FRANCE}},
    ),
    Endpoint(
        "POST", "/v1/completions", CompletionTurn.respond, "createCompletion",
        "Text that goes on after a prompt", "Completions",
        takes=CompletionRequest, answer=Completion, stream=CompletionChunk, generates=True,
        examples={
            "A text": {"prompt": "The capital of France is", "max_tokens": 8},
            "Several texts": {"prompt": ["One, two,", "A, B,"], "max_tokens": 8, "stream": True},
        },
    ),
    Endpoint(
        "POST", "/v1/messages", MessagesTurn.respond, "createMessage",
        "A turn in Anthropic's API: thinking, text, tool use; whole or streamed", "Messages",
        takes=MessagesRequest, answer=AnthropicMessage, stream=dict[str, Any], generates=True,
        error=encode_anthropic_error,
        examples={
            "A question": {"max_tokens": 64, "messages": _FRANCE},
            "A stream": {"max_tokens": 64, "messages": _FRANCE, "stream": True},
            "A tool use": {
                "max_tokens": 256,
                "messages": _FRANCE,
                "tools": [{"name": "get_weather", "description": "The weather of a city.", "input_schema": _CITY}],
                "tool_choice": {"type": "any"},
            },
        },
    ),
    Endpoint(
        "POST", "/v1/messages/count_tokens", count_tokens, "countMessageTokens",
        "How many tokens the prompt of a message has", "Messages",
        takes=CountTokensRequest, answer=InputTokens, error=encode_anthropic_error,
        examples={"A question": {"messages": _FRANCE}},
    ),
    Endpoint(
        "POST", "/v1/responses", ResponsesTurn.respond, "createResponse",
        "A turn in OpenAI's Responses API: reasoning, messages, calls as items; whole or streamed", "Responses",
        takes=ResponsesRequest, answer=ResponseObject, stream=ResponseEvent, generates=True,
        examples={
            "A question": {"input": "What is the capital of France?"},
            "A stream": {"input": "What is the capital of France?", "stream": True},
            "A tool call": {
                "input": "What is the weather in Paris?",
                "tools": [{"type": "function", **_WEATHER["function"]}],
                "tool_choice": "required",
            },
        },
    ),
    Endpoint(
        "POST", "/v1/responses/input_tokens", input_tokens, "countInputTokens",
        "How many tokens the prompt of a response has", "Responses",
        takes=InputTokensRequest, answer=ResponseInputTokens,
        examples={"A question": {"input": "What is the capital of France?"}},
    ),
    Endpoint(
        "GET", "/v1/responses/{response_id}", stored.get_response, "getResponse",
        "A stored response, or how one in the background is getting on", "Responses",
        answer=ResponseObject, parameters=_RESPONSE_ID,
    ),
    Endpoint(
        "DELETE", "/v1/responses/{response_id}", stored.delete_response, "deleteResponse",
        "Delete a stored response", "Responses", answer=Deleted, parameters=_RESPONSE_ID,
    ),
    Endpoint(
        "POST", "/v1/responses/{response_id}/cancel", stored.cancel_response, "cancelResponse",
        "End a response that runs in the background", "Responses", answer=ResponseObject, parameters=_RESPONSE_ID,
    ),
    Endpoint(
        "GET", "/v1/responses/{response_id}/input_items", stored.list_input_items, "listInputItems",
        "What a stored response is the answer to", "Responses", answer=ItemList, parameters=_RESPONSE_ID,
    ),
    Endpoint(
        "POST", "/v1/conversations", stored.create_conversation, "createConversation",
        "A conversation that responses go on from and are added to", "Responses",
        takes=ConversationRequest, answer=ConversationObject, examples={"An empty one": {}},
    ),
    Endpoint(
        "GET", "/v1/conversations/{conversation_id}", stored.get_conversation, "getConversation",
        "A conversation", "Responses", answer=ConversationObject, parameters=_CONVERSATION_ID,
    ),
    Endpoint(
        "DELETE", "/v1/conversations/{conversation_id}", stored.delete_conversation, "deleteConversation",
        "Delete a conversation; its responses stay", "Responses", answer=Deleted, parameters=_CONVERSATION_ID,
    ),
    Endpoint(
        "GET", "/v1/conversations/{conversation_id}/items", stored.list_conversation_items, "listConversationItems",
        "What was said in a conversation", "Responses", answer=ItemList, parameters=_CONVERSATION_ID,
    ),
    Endpoint(
        "GET", "/v1/models", system.list_models, "listModels",
        "The names under which the model is served, and its context length", "Models", answer=ModelList,
    ),
    Endpoint(
        "GET", "/v1/models/{model:path}", system.get_model, "getModel", "One of the served names", "Models",
        answer=ModelCard, parameters={"model": "A served name; it may hold slashes."},
    ),
    _TOKENIZE,
    _under_v1(_TOKENIZE),
    _DETOKENIZE,
    _under_v1(_DETOKENIZE),
    Endpoint(
        "GET", "/v1/policies", system.list_policies, "listPolicies",
        "Every policy: flag, state, what it does", "Server", answer=PolicyList,
    ),
    Endpoint(
        "GET", "/server_info", system.server_info, "serverInfo",
        "What the server found out about its model and engine, and what is in force", "Server", answer=ServerInfo,
    ),
    Endpoint("GET", "/version", system.version, "version", "Versions of server and engine", "Server", answer=Versions),
    Endpoint(
        "GET", "/health", system.health, "health",
        "The process answers, and has not lost the engine that it started", "Server",
        answer=Health, probe=True, open=lambda settings: settings.open_health,
    ),
    Endpoint(
        "GET", "/health_generate", system.health_generate, "healthGenerate", "The engine makes a token", "Server",
        answer=Health, probe=True, open=lambda settings: settings.open_health,
    ),
    Endpoint(
        "GET", "/metrics", system.metrics, "metrics", "Prometheus metrics", "Server",
        answer="text/plain", probe=True, open=lambda settings: settings.open_metrics,
    ),
    Endpoint("GET", "/", pages.playground, open=_always, served=lambda settings: settings.playground),
    Endpoint("GET", "/docs", pages.docs, open=_always),
    Endpoint("GET", "/openapi.json", describe, open=_always),
)  # fmt: skip
"""In the order in which paths are matched."""
