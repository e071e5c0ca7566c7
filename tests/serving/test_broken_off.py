"""A request that the server's stop breaks off, wherever it is: one line in the log, and no stack."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import Any

import pytest

from paraserve.api.app import create_app
from paraserve.serving.server import HTTPServer
from paraserve.settings import ServerSettings
from tests.api.wire import CHAT, USER
from tests.toy import deployment, engine, reply
from tests.waiting import until

BUSY = {"max_concurrent_requests": 1}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
PLACES: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "whole": ({}, {}, 0),
    "streamed": ({"stream": True}, {}, 0),
    "several choices": ({"n": 3}, {}, 0),
    "several choices, streamed": ({"n": 3, "stream": True}, {}, 0),
    "with tools": ({"stream": True, "tools": [TOOL]}, {}, 0),
    "in the queue": ({}, BUSY, 0),
    "in the queue, streamed": ({"stream": True}, BUSY, 0),
    "before its body": ({}, {}, 10),
}


@pytest.mark.parametrize(("fields", "options", "missing"), PLACES.values(), ids=PLACES)
async def test_a_request_that_the_stop_breaks_off_is_one_line(
    fields: dict[str, Any], options: dict[str, Any], missing: int, caplog: pytest.LogCaptureFixture
) -> None:
    scripted = engine(reply("Hello.", hang_after=1))
    bound = socket.create_server(("127.0.0.1", 0))
    server = HTTPServer(create_app(deployment(scripted, **options)), ServerSettings(drain_timeout=0), None)
    body = json.dumps({"messages": USER, **fields}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: toy\r\nContent-Length: {len(body) + missing}\r\n\r\n".encode()
    clients = 2 if options else 1
    with caplog.at_level(logging.INFO):
        serving = asyncio.create_task(server.serve([bound]))
        writers = []
        for _ in range(clients):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            writer.write(head + body)
            writers.append(writer)
        await until(lambda: len(server.server_state.tasks) == clients and (scripted.running or missing))
        server.should_exit = True
        await serving
    for writer in writers:
        writer.close()
    lines = [record for record in caplog.records if record.name != "uvicorn.error"]
    assert [record.name for record in lines] == ["paraserve.requests"] * clients
    assert [record for record in caplog.records if record.exc_info] == []
