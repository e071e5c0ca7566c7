"""Nothing that one party sends holds up another: hostile requests of every kind, and what the event loop does of each.

Counted in steps, not in time (`tests/steps.py`): how long others wait, and what memory is taken, is measured of a real
server by `benchmarks/hostile.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import Message

from paraserve.api.app import create_app
from paraserve.preparation import SMALL_BODY
from tests.hostile import KINDS, attack
from tests.steps import Steps
from tests.toy import deployment, engine

pytestmark = pytest.mark.heavy

MOST_STEPS = 40_000
"""Of one turn: some ten milliseconds. What these kinds are about came to millions."""
MOST_TEXT = 2**18
"""Characters that one call on the loop may go over: a step of unpacking has as many, a part of a body a quarter."""
PART = 2**16
"""Bytes of a body that a connection hands on at a time."""
SIZES = (10_000, 2_000_000)
ROOM = {"a context of 4,096 tokens": 4096, "room for all": 2**24}
"""What a prompt may have: most of these are refused, or they go the whole way."""


async def asked(app: Any, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of the answer to a request that comes as connections hand it on."""
    parts = [body[at : at + PART] for at in range(0, len(body), PART)] or [b""]
    given, answer = iter(parts), bytearray()
    status, left = 0, asyncio.Event()

    async def receive() -> Message:
        part = next(given, None)
        if part is None:
            await left.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": part is not parts[-1]}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        answer.extend(message.get("body", b""))

    raw = [(b"host", b"localhost"), (b"content-length", b"%d" % len(body))]
    raw += [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode()}
    scope |= {"headers": raw, "query_string": b"", "scheme": "http", "root_path": "", "client": ("127.0.0.1", 1)}
    await app(scope | {"server": ("localhost", 80), "state": {}}, receive, send)
    return status, bytes(answer)


def check(steps: Steps, *, large: bool) -> None:
    assert steps.longest < MOST_STEPS
    assert steps.longest_text <= MOST_TEXT
    assert not large or not steps.read, "what is not small is read in a thread"


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_request_keeps_the_event_loop_from_others(kind: str, size: int, room: str) -> None:
    hostile = attack(kind, SIZES.index(size), size)
    body, headers = hostile.sent
    app = create_app(deployment(engine(context_length=ROOM[room]), **hostile.settings))
    await asked(app, "POST", "/tokenize", {}, b'{"prompt": "warm"}')
    with Steps() as steps:
        status, _ = await asked(app, "POST", hostile.path, headers, body)
    assert 200 <= status < 500
    check(steps, large=len(hostile.unpacked) > 4 * SMALL_BODY)


async def test_what_was_stored_keeps_the_event_loop_from_nobody() -> None:
    app = create_app(deployment(engine(context_length=2**24)))
    items = [{"role": "user", "content": "x"}] * 50_000
    body = json.dumps({"model": "toy", "input": items, "max_output_tokens": 1}).encode()
    made = json.dumps({"items": [item | {"type": "message"} for item in items]}).encode()
    with Steps() as steps:
        status, said = await asked(app, "POST", "/v1/responses", {}, body)
        assert status == 200
        stored = json.loads(said)["id"]
        for path in (stored, f"{stored}/input_items"):
            status, _ = await asked(app, "GET", f"/v1/responses/{path}", {})
            assert status == 200
        after = json.dumps({"model": "toy", "input": "and?", "previous_response_id": stored}).encode()
        status, _ = await asked(app, "POST", "/v1/responses", {}, after)
        assert status == 200
        status, said = await asked(app, "POST", "/v1/conversations", {}, made)
        assert status == 200
        status, _ = await asked(app, "GET", f"/v1/conversations/{json.loads(said)['id']}/items", {})
        assert status == 200
    check(steps, large=False)


def test_the_counting_sees_what_is_on_the_loop() -> None:
    """The test above would hold of a counter that counts nothing."""
    with Steps() as steps:
        for number in range(MOST_STEPS):
            divmod(number, 2)
        ("x" * (MOST_TEXT + 1)).replace("y", "")
    assert steps.longest >= MOST_STEPS
    assert steps.longest_text > MOST_TEXT
