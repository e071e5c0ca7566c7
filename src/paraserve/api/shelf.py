"""What was stored, as one caller sees it: responses by id, conversations, and what a request goes on from.

The one place of ``api`` that asks the store. Never knows how a reply is made. Invariants: a caller finds what its own
API key stored and nothing else, a store that fails is a 503 for the request that needs it, and what is large is read
and written off the event loop.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from paraserve.api.body import deployment_of
from paraserve.api.keys import caller_of, party_of
from paraserve.preparation import Preparation
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error, retry_after
from paraserve.protocol.responses import InputTokensRequest, Item, ResponseFailure, ResponseObject
from paraserve.store.base import Conversation, ResponseStore, Stored, StoreUnavailable

T = TypeVar("T")

BEAT_SECONDS = 2.0
"""How often a reply in the background says that it runs, and sees that it was cancelled."""
LOST_SECONDS = 30.0
"""After this silence it runs no more: its server has gone."""

MOST_REFERRED = 100
"""Responses that one request may refer to: each is looked up."""

_ITEM_ID = re.compile(r"(?:rs|msg|fc|ctc|fco|ctco|item)_([0-9a-f]{32})i?[0-9a-f]{2,}")
_INPUT_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
}

_json = msgspec.json.encode
_items = msgspec.json.Decoder(list[Item])
_object = msgspec.json.Decoder(dict[str, Any])

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a request goes on from. It is decoded when it is asked for: that may take long.

    Args:
        chain: the responses before it, the oldest first.
        referred: those that have items which the request refers to.
    """

    chain: Sequence[Stored] = ()
    referred: Sequence[Stored] = ()
    previous: str | None = None
    conversation: str | None = None

    @property
    def size(self) -> int:
        """In bytes of JSON."""
        return sum(len(stored.input) + len(stored.response) for stored in (*self.chain, *self.referred))

    def items(self) -> list[Item]:
        """All that was said before, in order."""
        return _said(self.chain)

    def resolved(self, input: str | list[Item]) -> str | list[Item]:
        """The request's own items, with references to stored ones replaced by them."""
        if isinstance(input, str) or not self.referred:
            return input
        found = {str(item.get("id")): item for item in _said(self.referred)}
        return [found.get(str(item.get("id")), item) if refers(item) else item for item in input]


def refers(item: Item) -> bool:
    return item.get("type") == "item_reference"


def not_found(id: str, param: str, what: str = "Response") -> RequestError:
    return RequestError(f"{what} with id '{id}' not found.", status=404, param=param, code=ErrorCode.RESPONSE_NOT_FOUND)


class Shelf:
    """Args:
    owner: the caller.
    party: who waits for its turn in ``preparation``.
    """

    def __init__(self, store: ResponseStore, owner: str, preparation: Preparation, party: Hashable) -> None:
        self._store = store
        self._preparation = preparation
        self._party = party
        self.owner = owner

    @staticmethod
    def of(http: Request) -> Shelf | None:
        """None where nothing is stored."""
        deployment, caller = deployment_of(http), caller_of(http.scope)
        if deployment.store is None:
            return None
        owner = "" if caller is None else caller.hex()
        return Shelf(deployment.store, owner, deployment.preparation, party_of(http.scope))

    async def _made(self, size: int, work: Callable[[], T]) -> T:
        """What is made of ``size`` bytes. It goes on when the client leaves: a reply in the background has none."""
        return await self._preparation.run(self._party, size, work)

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except StoreUnavailable as error:
            log.warning("the store of responses does not work: %s", error)
            raise RequestError(
                "The store of responses does not work.",
                status=503,
                code=ErrorCode.STORE_UNAVAILABLE,
                headers=retry_after(),
            ) from error

    # Responses.

    async def put(
        self, response: ResponseObject, input: str | list[Item], kept: Kept, *, size: int, running: bool = False
    ) -> None:
        """Args: size: of the request, in bytes. Raises `RequestError` (503)."""

        def stored() -> Stored:
            items = _json(_own_items(input, response.id))
            return Stored(
                id=response.id, response=_json(response), input=items, previous=kept.previous, running=running
            )

        await self._ask(self._store.put(self.owner, await self._made(size, stored), kept.conversation))

    async def find(self, id: str) -> bytes:
        """The response's JSON. One whose server has gone has failed. Raises `RequestError` (404, 503)."""
        stored = await self._get(id, "response_id")
        return await self._made(len(stored.response), lambda: _json(_told(stored)))

    async def _get(self, id: str, param: str) -> Stored:
        found = await self._ask(self._store.get(self.owner, id))
        if found is None:
            raise not_found(id, param)
        return found

    async def delete(self, id: str) -> None:
        if not await self._ask(self._store.delete(self.owner, id)):
            raise not_found(id, "response_id")

    async def cancel(self, id: str) -> dict[str, Any]:
        """What became of it: one that has ended stays as it is."""
        stored = await self._get(id, "response_id")
        told = await self._made(len(stored.response), partial(_told, stored))
        if not stored.running or told["status"] == "failed":
            return told
        await self._ask(self._store.cancel(self.owner, id))
        told |= {"status": "cancelled", "completed_at": int(time.time())}
        ended = Stored(id=id, response=_json(told), input=stored.input)
        await self._ask(self._store.put(self.owner, ended))
        return told

    async def beat(self, id: str) -> bool:
        """Whether a reply in the background is to go on."""
        return await self._ask(self._store.beat(self.owner, id))

    async def input_items(self, id: str, show: Callable[[list[Item]], T]) -> T:
        """What ``show`` makes of what the response was an answer to, all that was before included."""
        chain = await self._history(id, "response_id")
        size = Kept(chain=chain).size
        return await self._made(size, lambda: show([*_said(chain[:-1]), *_items.decode(chain[-1].input)]))

    async def _history(self, id: str, param: str) -> Sequence[Stored]:
        chain = await self._ask(self._store.history(self.owner, id))
        if chain is None:
            raise not_found(id, param)
        return chain

    # Conversations.

    async def put_conversation(self, made: Conversation) -> None:
        await self._ask(self._store.put_conversation(self.owner, made))

    async def conversation(self, id: str, param: str = "conversation_id") -> Conversation:
        found = await self._ask(self._store.conversation(self.owner, id))
        if found is None:
            raise not_found(id, param, "Conversation")
        return found

    async def delete_conversation(self, id: str) -> None:
        if not await self._ask(self._store.delete_conversation(self.owner, id)):
            raise not_found(id, "conversation_id", "Conversation")

    async def conversation_items(self, id: str, show: Callable[[list[Item]], T]) -> T:
        last = (await self.conversation(id)).last
        chain = () if last is None else await self._history(last, "conversation_id")
        return await self._made(Kept(chain=chain).size, lambda: show(_said(chain)))

    # What a request goes on from.

    async def kept(self, sent: InputTokensRequest, size: int) -> Kept:
        """Args: size: of the request, in bytes. Raises `RequestError` (400, 404, 503)."""
        conversation = _id_of(sent.conversation)
        previous = sent.previous_response_id
        if conversation and previous:
            raise field_error("conversation", "cannot be combined with previous_response_id")
        param = "previous_response_id"
        if conversation:
            param, previous = "conversation", (await self.conversation(conversation, "conversation")).last
        chain = await self._history(previous, param) if previous else ()
        if chain and chain[-1].running:
            raise field_error(param, "the response has not ended")
        referred = await self._referred(await self._made(size, partial(_references, sent.input)))
        return Kept(chain=chain, referred=referred, previous=previous, conversation=conversation)

    async def _referred(self, ids: Iterable[str]) -> list[Stored]:
        """Those of the responses that are there."""
        stored = [await self._ask(self._store.get(self.owner, id)) for id in ids]
        return [response for response in stored if response is not None]


def _references(input: str | list[Item]) -> list[str]:
    """The responses that the references of a request lead to: an item's id tells."""
    ids = (str(item.get("id")) for item in input if refers(item)) if not isinstance(input, str) else ()
    responses = dict.fromkeys(f"resp_{found[1]}" for id in ids if (found := _ITEM_ID.fullmatch(id)))
    return list(responses)[:MOST_REFERRED]


def _id_of(conversation: Any) -> str | None:
    """It is an id, or an object that has one."""
    id = conversation.get("id") if isinstance(conversation, dict) else conversation
    if id is not None and not isinstance(id, str):
        raise field_error("conversation", "must be an id, or an object with one")
    return id


def _own_items(input: str | list[Item], response_id: str) -> list[Item]:
    """A request's input as items that each have an id."""
    items = [{"type": "message", "role": "user", "content": input}] if isinstance(input, str) else input
    suffix = response_id.partition("_")[2]
    found = []
    for place, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message" and isinstance(item.get("content"), str):
            text = "output_text" if item.get("role") == "assistant" else "input_text"
            item = {**item, "content": [{"type": text, "text": item["content"]}]}
        id = f"{_INPUT_PREFIXES.get(kind, 'item')}_{suffix}i{place:02x}"
        found.append({"type": kind, **item, "id": item.get("id") or id})
    return found


def _said(chain: Sequence[Stored]) -> list[Item]:
    return [
        item
        for stored in chain
        for item in (*_items.decode(stored.input), *_object.decode(stored.response).get("output", ()))
    ]


def _told(stored: Stored) -> dict[str, Any]:
    response = _object.decode(stored.response)
    if stored.running and time.time() - stored.beat > LOST_SECONDS:
        gone = ResponseFailure("server_error", "The server that ran this response has gone.")
        response |= {"status": "failed", "error": msgspec.to_builtins(gone)}
    return response
