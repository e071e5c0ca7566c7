"""``GET /openapi.json``: the description of the API, made from the wire types that requests are decoded with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paraserve import __version__
from paraserve.protocol.errors import ErrorBody
from paraserve.protocol.messages import AnyMessage
from paraserve.protocol.tools import AllowedToolsChoice, NamedToolChoice, ToolDefinition

if TYPE_CHECKING:
    from paraserve.api.endpoints import Endpoint

_REF = "#/components/schemas/{name}"
_FREE_FIELDS: Mapping[str, Any] = {
    "messages": list[AnyMessage],
    "tools": list[ToolDefinition] | None,
    "tool_choice": str | NamedToolChoice | AllowedToolsChoice | None,
}
"""Fields that are decoded as free objects, since a chat template may read more of them, and the types that they are
then checked with."""

STATUS_TEXTS: Mapping[int, str] = {
    200: "Success",
    400: "The request is wrong: `param` names the field, or the input does not fit",
    401: "A valid API key is needed",
    403: "A web page may not call this server",
    404: "The model is not served here",
    408: "The body did not come in time",
    413: "The body is larger than the server takes, or the input does not fit",
    415: "The body is compressed in a way that is not known",
    429: "Too many requests",
    500: "A bug of the server",
    502: "The engine failed or is not there",
    503: "No room, or about to stop: `Retry-After` says when to come back",
    504: "The engine has been silent for too long",
}

_HEADERS = {
    "x-request-id": {"description": "The client's own X-Request-Id, or one made here.", "schema": {"type": "string"}},
    "request-id": {"description": "The same, where Anthropic's SDKs look for it.", "schema": {"type": "string"}},
}


async def describe(request: Request) -> Response:
    """Made when it is first asked for, and kept."""
    app = request.app.state
    document = _encoded(app.endpoints, app.deployment.settings.root_path)
    return Response(document, media_type="application/json")


@cache
def _encoded(endpoints: tuple[Endpoint, ...], root_path: str) -> bytes:
    return msgspec.json.encode(openapi_document(endpoints, root_path))


def openapi_document(endpoints: Sequence[Endpoint], root_path: str = "") -> dict[str, Any]:
    """OpenAPI 3.1.

    Args:
        endpoints: those without a summary are left out.
        root_path: the path under which a proxy shows the server.
    """
    endpoints = [endpoint for endpoint in endpoints if endpoint.summary]
    types = _types(endpoints)
    found, components = msgspec.json.schema_components([*types, *_FREE_FIELDS.values()], ref_template=_REF)
    schemas = dict(zip(map(_key, types), found, strict=False))
    free = dict(zip(_FREE_FIELDS, found[len(types) :], strict=True))
    for component in components.values():
        _describe(component, free)
        for schema in component.get("properties", {}).values():
            if isinstance(schema.get("default"), tuple | frozenset):  # as JSON has them
                schema["default"] = sorted(schema["default"])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = re.sub(r":\w+}", "}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "paraserve",
            "version": __version__,
            "description": "OpenAI-compatible serving of open-weight models.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root_path or "/"}],
        "security": [{}, {"bearer": []}],
        "tags": [{"name": name} for name in dict.fromkeys(endpoint.group for endpoint in endpoints)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "Where the operator set API keys."}
            },
        },
    }


def _types(endpoints: Sequence[Endpoint]) -> list[Any]:
    wanted: dict[str, Any] = {_key(ErrorBody): ErrorBody}
    for endpoint in endpoints:
        for type_ in (endpoint.takes, endpoint.answer, endpoint.stream):
            if type_ is not None and not isinstance(type_, str):
                wanted[_key(type_)] = type_
    return list(wanted.values())


def _key(type_: Any) -> str:
    return repr(type_)


def _describe(component: dict[str, Any], free: Mapping[str, Any]) -> None:
    """The shape of free fields, where a request has them."""
    if component.get("title", "").endswith("Request") and "input" not in component["properties"]:
        for name in component["properties"].keys() & free.keys():
            schema = component["properties"][name]
            if "$ref" in repr(schema):  # an API whose fields have types of their own
                continue
            kept = {key: schema[key] for key in ("default", "description") if key in schema}
            schema.clear()
            schema.update(free[name], **kept)


def _operation(endpoint: Endpoint, schemas: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.group],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in endpoint.parameters.items()
        ]
    if endpoint.takes is not None:
        examples = {
            name.replace(" ", "_"): {"summary": name, "value": dict(v)} for name, v in endpoint.examples.items()
        }
        body = {"schema": schemas[_key(endpoint.takes)], "examples": examples}
        operation["requestBody"] = {"required": True, "content": {"application/json": body}}
    return operation


def _responses(endpoint: Endpoint, schemas: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any]
    if isinstance(endpoint.answer, str):
        content = {endpoint.answer: {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[_key(endpoint.answer)]}}
    if endpoint.stream is not None:
        content["text/event-stream"] = {"schema": _events(schemas[_key(endpoint.stream)])}
    responses = {"200": {"description": STATUS_TEXTS[200], "headers": _HEADERS, "content": content}}
    error = {"application/json": {"schema": schemas[_key(ErrorBody)]}}
    for status in endpoint.errors:
        responses[str(status)] = {"description": STATUS_TEXTS[status], "headers": _HEADERS, "content": error}
    return responses


def _events(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of each event of a stream."""
    json = {"type": "string", "contentMediaType": "application/json", "contentSchema": dict(payload)}
    return {
        "type": "object",
        "description": "Each event has one of these as its data; an error object when the reply fails; [DONE] at the "
        "end of a reply that did not.",
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, json]}},
        "required": ["data"],
    }
