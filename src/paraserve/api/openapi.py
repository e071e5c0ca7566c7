"""``GET /openapi.json``: the description of the API, made from the wire types that requests are decoded with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from paraserve import __version__
from paraserve.api.endpoints import ENDPOINTS, EVERYWHERE, FIELD_TEXTS, STATUS_TEXTS, Endpoint
from paraserve.protocol.errors import ErrorBody
from paraserve.protocol.messages import AnyMessage
from paraserve.protocol.tools import NamedToolChoice, ToolDefinition

_REF = "#/components/schemas/{name}"
_FREE_FIELDS: Mapping[str, Any] = {
    "messages": list[AnyMessage],
    "tools": list[ToolDefinition] | None,
    "tool_choice": str | NamedToolChoice | None,
}
"""Fields that are decoded as free objects, since a chat template may read more of them, and the types that they are
then checked with."""

_HEADERS = {
    "x-request-id": {"description": "The client's own X-Request-Id, or one made here.", "schema": {"type": "string"}}
}


def openapi_document(root_path: str = "") -> dict[str, Any]:
    """OpenAPI 3.1.

    Args:
        root_path: the path under which a proxy shows the server.
    """
    types = _types()
    found, components = msgspec.json.schema_components([*types, *_FREE_FIELDS.values()], ref_template=_REF)
    schemas = dict(zip(map(_key, types), found, strict=False))
    free = dict(zip(_FREE_FIELDS, found[len(types) :], strict=True))
    for component in components.values():
        _describe(component, free)
        for schema in component.get("properties", {}).values():
            if isinstance(schema.get("default"), tuple | frozenset):  # as JSON has them
                schema["default"] = sorted(schema["default"])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint, schemas)
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
        "tags": [{"name": name} for name in dict.fromkeys(endpoint.group for endpoint in ENDPOINTS)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "Where the operator set API keys."}
            },
        },
    }


def _types() -> list[Any]:
    wanted: dict[str, Any] = {_key(ErrorBody): ErrorBody}
    for endpoint in ENDPOINTS:
        for type_ in (endpoint.takes, endpoint.answer, endpoint.stream):
            if type_ is not None and not isinstance(type_, str):
                wanted[_key(type_)] = type_
    return list(wanted.values())


def _key(type_: Any) -> str:
    return repr(type_)


def _describe(component: dict[str, Any], free: Mapping[str, Any]) -> None:
    """Field texts, and the shape of free fields, where a request has them."""
    if not component.get("title", "").endswith("Request"):
        return
    for name, schema in component["properties"].items():
        if name in free:
            default = {"default": schema["default"]} if "default" in schema else {}
            schema.clear()
            schema.update(free[name], **default)
        if name in FIELD_TEXTS:
            schema["description"] = FIELD_TEXTS[name]


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
    for status in sorted({*endpoint.errors, *EVERYWHERE}):
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
