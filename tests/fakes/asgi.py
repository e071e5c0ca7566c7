"""The little of HTTP that the fake engines need, as ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Broken(Exception):
    """Raised by an app to break its connection."""


async def read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def send_json(send: Send, status: int, value: Any) -> None:
    body = b"" if value is None else json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_stream(receive: Receive, send: Send, pieces: AsyncIterator[bytes], head_delay: float = 0.0) -> bool:
    """Send the pieces as they come. Returns whether the client stayed to the end."""

    async def write() -> None:
        await asyncio.sleep(head_delay)
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    writing = asyncio.ensure_future(write())
    leaving = asyncio.ensure_future(_left(receive))
    await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
    if writing.done():
        leaving.cancel()
        writing.result()
        return True
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    return False


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def only(event: bytes) -> AsyncIterator[bytes]:
    """A stream of one event."""
    yield event
    yield b"[DONE]"
