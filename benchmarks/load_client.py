"""A load client that costs little: HTTP/1.1 on raw asyncio protocols, and no JSON for a token that passes.

It runs against any OpenAI-compatible URL. It never knows what a server should answer; it counts bytes, reads the usage
of the last event and notes when the first text came. One invariant: a request that did not end as it should is an
error in the result, never a fast one.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httptools

_FIRST_TEXT = re.compile(rb'"(?:content|reasoning_content|arguments|text|thinking|partial_json|delta)":\s?"[^"]|^x')
_USAGE = re.compile(rb'"(?:completion|output)_tokens":\s?(\d+)')
_TAIL = 8192
"""Bytes that are looked through for the usage: behind it a response of the Responses API echoes the request's tools."""


@dataclass(slots=True)
class Reply:
    """Times in seconds since the request was written. ``tokens`` is the reply's own usage, 0 where it told none."""

    status: int = 0
    tokens: int = 0
    bytes: int = 0
    first: float = 0.0
    last: float = 0.0
    error: str = ""


class Connection(asyncio.Protocol):
    """One kept-alive connection; one request at a time."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[Reply] | None = None
        self._reply = Reply()
        self._began = 0.0
        self._tail = b""
        self._seen_text = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish("the connection was closed")

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(f"no HTTP: {error}")

    def on_body(self, body: bytes) -> None:
        self._reply.bytes += len(body)
        self._tail = body if len(body) >= _TAIL else (self._tail + body)[-_TAIL:]
        if not self._seen_text and _FIRST_TEXT.search(self._tail):
            self._seen_text = True
            self._reply.first = time.perf_counter() - self._began

    def on_message_complete(self) -> None:
        reply = self._reply
        reply.status = self._parser.get_status_code()
        if found := _USAGE.findall(self._tail):
            reply.tokens = int(found[-1])
        self._parser = httptools.HttpResponseParser(self)
        whole = reply.status == 200
        self._finish("" if whole else f"status {reply.status}: {self._tail[:200].decode('utf-8', 'replace')}")

    async def send(self, request: bytes) -> Reply:
        """Write a prepared request and wait for its reply."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._reply, self._tail, self._seen_text = Reply(), b"", False
        self._began = time.perf_counter()
        self._transport.write(request)
        return await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, error: str) -> None:
        if self._done is not None and not self._done.done():
            self._reply.last = time.perf_counter() - self._began
            self._reply.error = error
            self._done.set_result(self._reply)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send: a base URL such as ``http://127.0.0.1:30000``, the model's name there, and a key."""

    url: str
    model: str = ""
    api_key: str = ""

    def request(self, path: str, body: Mapping[str, object]) -> bytes:
        """A whole request as bytes."""
        payload = json.dumps({**body, "model": self.model} if self.model else body).encode()
        where = urlsplit(self.url)
        key = f"Authorization: Bearer {self.api_key}\r\n" if self.api_key else ""
        head = (
            f"POST {where.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {where.netloc}\r\n{key}"
            f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        return head.encode() + payload

    async def connect(self) -> Connection:
        where = urlsplit(self.url)
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection, where.hostname or "", where.port or 80
        )
        return connection


async def run_load(target: Target, request: bytes, *, streams: int, requests: int) -> list[Reply]:
    """``requests`` requests over ``streams`` connections that are open all the time."""
    left = requests
    connections = [await target.connect() for _ in range(streams)]

    async def work(connection: Connection) -> list[Reply]:
        nonlocal left
        replies = []
        while left > 0:
            left -= 1
            replies.append(await connection.send(request))
            if replies[-1].error:
                break
        return replies

    try:
        done = await asyncio.gather(*map(work, connections))
    finally:
        for connection in connections:
            connection.close()
    return [reply for replies in done for reply in replies]
