"""What was stored, over HTTP: ``/v1/responses/{id}`` and ``/v1/conversations``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body import json_response, read_body
from paraserve.api.replies import prepared
from paraserve.api.shelf import Kept, Shelf, not_found
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error
from paraserve.protocol.responses import (
    ConversationObject,
    Deleted,
    Item,
    ItemList,
    ResponseObject,
    decode_conversation,
)
from paraserve.store.base import Conversation

_MOST_ITEMS = 100


def _asked(request: Request, name: str) -> tuple[Shelf, str]:
    """Raises `RequestError` (404) where nothing is stored."""
    id: str = request.path_params[name]
    shelf = Shelf.of(request)
    if shelf is None:
        raise not_found(id, name, name.removesuffix("_id").capitalize())
    return shelf, id


async def get_response(request: Request) -> Response:
    shelf, id = _asked(request, "response_id")
    if request.query_params.get("stream", "false") != "false":
        raise field_error("stream", "a stored response is answered whole", ErrorCode.UNSUPPORTED_PARAMETER)
    return Response(await shelf.find(id), media_type="application/json")


async def delete_response(request: Request) -> Response:
    shelf, id = _asked(request, "response_id")
    await shelf.delete(id)
    return json_response(Deleted(id, "response"))


async def cancel_response(request: Request) -> Response:
    shelf, id = _asked(request, "response_id")
    return json_response(await shelf.cancel(id))


async def list_input_items(request: Request) -> Response:
    shelf, id = _asked(request, "response_id")
    return await shelf.input_items(id, partial(_page, request))


async def create_conversation(request: Request) -> Response:
    """Its first items are kept as a response that says nothing."""
    body = await read_body(request) or b"{}"
    sent = await prepared(request, len(body), partial(decode_conversation, body))
    id = f"conv_{os.urandom(16).hex()}"
    shelf = Shelf.of(request)
    if shelf is None:
        raise field_error("items", "nothing is stored here", ErrorCode.UNSUPPORTED_PARAMETER)
    made = Conversation(id=id, created=int(time.time()), metadata=msgspec.json.encode(sent.metadata or {}))
    await shelf.put_conversation(made)
    if sent.items:
        first = ResponseObject(id=f"resp_{id.removeprefix('conv_')}", created_at=made.created, model="")
        await shelf.put(first, sent.items, Kept(conversation=id), size=len(body))
    return json_response(_shown(made))


async def get_conversation(request: Request) -> Response:
    shelf, id = _asked(request, "conversation_id")
    return json_response(_shown(await shelf.conversation(id)))


async def delete_conversation(request: Request) -> Response:
    shelf, id = _asked(request, "conversation_id")
    await shelf.delete_conversation(id)
    return json_response(Deleted(id, "conversation.deleted"))


async def list_conversation_items(request: Request) -> Response:
    shelf, id = _asked(request, "conversation_id")
    return await shelf.conversation_items(id, partial(_page, request))


def _shown(conversation: Conversation) -> ConversationObject:
    metadata: dict[str, Any] = msgspec.json.decode(conversation.metadata)
    return ConversationObject(id=conversation.id, created_at=conversation.created, metadata=metadata)


def _page(request: Request, items: Sequence[Item]) -> Response:
    """``limit``, ``order`` (the newest first by default) and ``after`` of the query."""
    asked = request.query_params
    ordered = list(items) if asked.get("order") == "asc" else list(reversed(items))
    ids = [item.get("id") for item in ordered]
    after = asked.get("after")
    if after is not None:
        if after not in ids:
            raise field_error("after", "no such item")
        ordered = ordered[ids.index(after) + 1 :]
    limit = asked.get("limit", "20")
    if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit[:4]) <= _MOST_ITEMS:
        raise field_error("limit", f"must be from 1 to {_MOST_ITEMS}")
    shown = ordered[: int(limit)]
    return json_response(
        ItemList(
            data=shown,
            first_id=shown[0]["id"] if shown else None,
            last_id=shown[-1]["id"] if shown else None,
            has_more=len(shown) < len(ordered),
        )
    )
