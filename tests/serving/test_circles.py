"""What a request has made is gone when the request is, and what a connection has when it is: nothing waits for the
collector of circles."""

from __future__ import annotations

import asyncio
import gc
import json
from urllib.parse import urlsplit

import pytest

from paraserve.api.app import create_app
from paraserve.generation.choice import Choice
from paraserve.observability.record import RequestRecord
from paraserve.serving.connection_limits import ConnectionLimits
from paraserve.serving.exchange import Exchange
from paraserve.serving.http_protocol import HTTPConnection, with_limits
from tests.api.wire import CHAT, USER
from tests.fakes.serving import serving
from tests.toy import deployment, engine, reply
from tests.waiting import until


def living() -> int:
    return sum(isinstance(each, HTTPConnection | Exchange | RequestRecord | Choice) for each in gc.get_objects())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_and_its_connection_leave_no_circle_of_objects(stream: bool) -> None:
    app = create_app(deployment(engine(reply("Hello."))))
    body = json.dumps({"messages": USER, "stream": stream}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: toy\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    async with serving(app, http=with_limits(ConnectionLimits())) as url:
        gc.collect()
        gc.disable()
        try:
            before = living()
            for _ in range(3):
                reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
                writer.write(head.encode() + body)
                assert (await reader.read()).startswith(b"HTTP/1.1 200")
                writer.close()
            await until(lambda: living() <= before)
        finally:
            gc.enable()
