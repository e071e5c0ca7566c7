"""What clients do wrong, over a real socket: only the request at fault suffers, and nothing of it is left over."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.serving.connection_limits import ConnectionLimits
from paraserve.serving.http_protocol import with_limits
from paraserve.serving.request_head import MAX_HEAD_BYTES
from tests.api.wire import CHAT, USER
from tests.fakes.serving import serving
from tests.toy import deployment, engine, reply
from tests.waiting import PATIENCE, until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PATIENT = ConnectionLimits(head=PATIENCE, body_silence=PATIENCE, slow_client=PATIENCE, idle=1)
"""Only the end of a connection comes soon. What a test is about, it shortens."""
LIMIT = 200_000


@pytest.fixture
def scripted() -> ScriptedEngine:
    return engine(reply("Hello."))


@pytest.fixture
async def url(scripted: ScriptedEngine) -> AsyncIterator[str]:
    async with served(scripted) as base:
        yield base


@asynccontextmanager
async def served(scripted: ScriptedEngine, **limits: float) -> AsyncIterator[str]:
    app = create_app(deployment(scripted, max_body_size=LIMIT))
    async with serving(app, http=with_limits(replace(PATIENT, **limits))) as base:
        yield base
        assert scripted.running == 0
        assert app.state.admission.running == 0


def head(length: int, *headers: str, path: str = CHAT) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: toy", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def chat(**fields: object) -> bytes:
    body = json.dumps({"messages": USER, **fields}).encode()
    return head(len(body)) + body


async def exchange(url: str, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Everything that the server answers to the pieces until it closes."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)

    async def read() -> bytes:
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := await asyncio.wait_for(reader.read(1 << 16), PATIENCE):
                received += data
        return received

    answer = asyncio.create_task(read())
    for piece in pieces:
        if answer.done():
            break
        writer.write(piece)
        await asyncio.sleep(pause)
    try:
        return await answer
    finally:
        writer.close()


async def serves(url: str) -> bool:
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post(CHAT, json={"messages": USER})
        return answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe{}",
        b'{"messages": [{"role": "user", "content": "\xc3"}]}',
        b"[" * 100_000,
        b'{"messages":' * 15_000,
        b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": ' + b"9" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "hi"}], "seed": -' + b"9" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e' + b"9" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "hi"}], "logit_bias": {"' + b"k" * 150_000 + b'": 1}}',
        b'{"messages": [{"role": "user", "content": "\\ud80"}]}',
        b"",
    ],
    ids=["bom", "half-character", "arrays", "objects", "digits", "negative", "exponent", "key", "escape", "empty"],
)
async def test_a_body_that_is_no_request_is_400_and_the_next_is_served(url: str, body: bytes) -> None:
    answer = await exchange(url, head(len(body), "Connection: close") + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 1000
    assert await serves(url)


PACKED = [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", zstd.compress)]


@pytest.mark.parametrize("step", [1, 7, 1 << 20], ids=["byte by byte", "in pieces", "whole"])
@pytest.mark.parametrize(("encoding", "pack"), PACKED, ids=[name for name, _ in PACKED])
async def test_a_compressed_body_is_read(
    url: str, scripted: ScriptedEngine, encoding: str, pack: Callable[[bytes], bytes], step: int
) -> None:
    text = "What is new? " * 50
    body = pack(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post(CHAT, content=pieces(), headers={"content-encoding": encoding})
    assert answer.status_code == 200
    assert text.encode() in bytes(i for i in scripted.requests[-1].token_ids if i < 256)


def zstd_frame(window_log: int, content: bytes) -> bytes:
    """A frame of one raw block that asks for a window of ``2**window_log`` bytes (RFC 8878, 3.1.1)."""
    block = (len(content) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + block + content


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(b" " * 50_000_000), 413),
        ("gzip", gzip.compress(b"{}")[:-9], 400),
        ("gzip", b"no gzip at all", 400),
        ("gzip", gzip.compress(b"{}") * 2, 400),
        ("zstd", zstd.compress(b" " * 50_000_000), 413),
        ("zstd", zstd.compress(b"{}")[:-1], 400),
        ("zstd", b"no zstd at all", 400),
        ("zstd", zstd_frame(27, b"{}"), 400),
        ("zstd", zstd.compress(b"{}") * 2, 400),
        ("br", b"\x0b\x01\x80{}\x03", 415),
        ("gzip, gzip", gzip.compress(gzip.compress(b"{}")), 415),
    ],
    ids=[
        "bomb",
        "cut",
        "broken",
        "two",
        "zstd bomb",
        "zstd cut",
        "zstd broken",
        "window",
        "zstd two",
        "unknown",
        "twice",
    ],
)
async def test_a_compressed_body_that_cannot_be_taken_is_refused(url: str, encoding: str, body: bytes, status: int):
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post(CHAT, content=body, headers={"content-encoding": encoding})
    assert answer.status_code == status
    assert await serves(url)


@pytest.mark.parametrize(
    "request_head",
    [
        head(0, "X-Large: " + "a" * MAX_HEAD_BYTES),
        head(0, *(f"X-{i}: 1" for i in range(1000))),
        b"GET /" + b"a" * (2 * MAX_HEAD_BYTES) + b" HTTP/1.1\r\nHost: toy\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * (4 * MAX_HEAD_BYTES),
    ],
    ids=["header", "headers", "path", "without an end"],
)
async def test_a_huge_head_is_431(url: str, request_head: bytes) -> None:
    answer = await exchange(url, request_head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in answer
    assert await serves(url)


async def test_what_is_no_http_is_answered_in_the_shape_of_the_api(url: str) -> None:
    answer = await exchange(url, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


async def test_a_head_that_trickles_is_cut_off_with_408(scripted: ScriptedEngine) -> None:
    async with served(scripted, head=0.3) as url:
        answer = await exchange(url, *(bytes([byte]) for byte in head(10)[:20]), pause=0.03)
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_stops_coming_ends_its_request(scripted: ScriptedEngine) -> None:
    async with served(scripted, body_silence=0.3) as url:
        answer = await exchange(url, head(100) + b'{"messages"')
    assert b"200 OK" not in answer
    assert scripted.requests == []


class Clock:
    """In place of an event loop: its timers go off when a test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = 0.0
        self._timers: dict[asyncio.TimerHandle, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> asyncio.TimerHandle:
        timer = self._loop.call_later(10 * PATIENCE, callback, *args)
        self._timers[timer] = self._now + delay
        return timer

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for timer in [timer for timer, at in self._timers.items() if at <= self._now]:
            del self._timers[timer]
            if not timer.cancelled():
                timer._run()
                timer.cancel()


@pytest.mark.parametrize(("share", "status"), [(0.9, b" 200 OK"), (1.1, b" 408 ")], ids=["trickles", "stops"])
async def test_a_body_is_waited_for_from_piece_to_piece(share: float, status: bytes) -> None:
    clocks: list[Clock] = []
    got = 0

    async def count(scope: Any, receive: Any, send: Any) -> None:
        nonlocal got
        more = True
        while more:
            more = (await receive())["more_body"]
            got += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    class Clocked(with_limits(PATIENT)):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            self._loop = Clock(asyncio.get_running_loop())
            super().connection_made(transport)
            clocks.append(self._loop)

    async with serving(count, http=Clocked) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(head(5))
        for piece in range(5):
            writer.write(b"x")
            await until(lambda: got > piece)  # noqa: B023 - it is awaited here
            clocks[0].advance(PATIENT.body_silence * share)
            if share > 1:
                break
        assert status in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()


async def test_a_thousand_connections_without_a_request_keep_nobody_from_being_served(url: str) -> None:
    where = urlsplit(url)
    silent = [await asyncio.open_connection(where.hostname, where.port) for _ in range(1000)]
    assert await serves(url)
    for _, writer in silent:
        writer.close()


async def test_a_connection_without_a_request_is_closed_without_a_word(scripted: ScriptedEngine) -> None:
    async with served(scripted, head=0.3, idle=0.3) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()


async def test_a_kept_alive_connection_that_half_opens_is_closed_after_a_while() -> None:
    """Its client is gone without a word; what the server sees is silence."""
    async with serving(create_app(deployment(engine())), http=with_limits(PATIENT)) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(chat())
        async with asyncio.timeout(PATIENCE):
            assert b"200 OK" in await reader.read()
        writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_closes_its_half_of_the_connection_has_left(stream: bool) -> None:
    scripted = engine(reply("abc", hang_after=1))
    app = create_app(deployment(scripted))
    async with serving(app, http=with_limits(PATIENT)) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(chat(stream=stream))
        await until(lambda: scripted.running)
        writer.write_eof()
        assert b"[DONE]" not in await asyncio.wait_for(reader.read(), PATIENCE)
        await until(lambda: not (scripted.running or app.state.admission.running))
        writer.close()
        assert len(scripted.aborted) == 1


async def test_pipelined_requests_are_answered_in_order(url: str) -> None:
    lone = b"GET /health HTTP/1.1\r\nHost: toy\r\n\r\n"
    answer = await exchange(url, chat(stream=True) + lone + chat() + lone)
    parts = answer.split(b"HTTP/1.1 200 OK")[1:]
    assert len(parts) == 4
    assert b"data: [DONE]" in parts[0]
    assert b'"status":"ok"' in parts[1]
    assert b'"object":"chat.completion"' in parts[2]
    assert b'"status":"ok"' in parts[3]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_noticed_by_the_request_before_a_pipelined_one(stream: bool) -> None:
    silent = engine(reply("Hello.", hang_after=2))
    app = create_app(deployment(silent))
    async with serving(app, http=with_limits(PATIENT)) as url:
        where = urlsplit(url)
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(chat(stream=stream) + chat(stream=stream))
        await until(lambda: silent.running)
        writer.close()
        await until(lambda: not (silent.running or app.state.admission.running))
    assert len(silent.requests) == 1


async def test_an_engine_that_dies_in_mid_stream_ends_only_that_stream() -> None:
    dying = reply(
        "Hel", error=EngineError(502, "engine_disconnected", "The engine broke the reply off."), error_after=2
    )
    scripted = engine(dying, reply("Hello.", delay=0.01))
    async with serving(create_app(deployment(scripted)), http=with_limits(PATIENT)) as url:
        first, second = await asyncio.gather(exchange(url, chat(stream=True)), exchange(url, chat(stream=True)))
    assert b'"code":"engine_disconnected"' in first
    assert b"[DONE]" not in first
    assert first.endswith(b"0\r\n\r\n")
    assert b"data: [DONE]" in second


async def test_a_client_that_stops_reading_is_cut_off_and_its_neighbours_are_served() -> None:
    long = 60_000
    scripted = engine(reply("x" * long, end=False, chunk_sizes=(8,), burst=4), context_length=100_000)
    app = create_app(deployment(scripted))
    quick = with_limits(replace(PATIENT, slow_client=0.3))
    async with serving(app, http=quick) as url, httpx.AsyncClient(base_url=url) as http:
        where = urlsplit(url)
        loop = asyncio.get_running_loop()
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.setblocking(False)
            await loop.sock_connect(lazy, (where.hostname, where.port))
            await loop.sock_sendall(lazy, chat(stream=True, max_tokens=long, logprobs=True))
            answer = await http.post(CHAT, json={"messages": USER, "stream": True, "max_tokens": 200})
            assert answer.text.endswith("data: [DONE]\n\n")
            await until(lambda: not (scripted.running or app.state.admission.running))
        assert len(scripted.aborted) == 1


async def test_a_page_of_an_allowed_origin_reads_the_answer_to_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its preflight for a server on a private network is granted."""

    def bug(*_: object) -> None:
        raise ValueError("a bug")

    page = "https://page.example"
    preflight = {
        "origin": page,
        "access-control-request-method": "POST",
        "access-control-request-private-network": "true",
    }
    scripted = engine()
    monkeypatch.setattr(scripted, "submit", bug)
    app = create_app(deployment(scripted, allowed_origins=(page,)))
    async with serving(app, http=with_limits(PATIENT)) as base, httpx.AsyncClient(base_url=base) as http:
        granted = await http.options(CHAT, headers=preflight)
        failed = await http.post(CHAT, json={"messages": USER}, headers={"origin": page})
    assert granted.headers["access-control-allow-private-network"] == "true"
    assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal_error")
    assert failed.headers["access-control-allow-origin"] == page


@pytest.mark.parametrize("length", [10, 100_000, 180_000])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_noticed_however_long_its_body_was(length: int, stream: bool) -> None:
    """Reading stops while a body waits that is not taken yet, and must go on once it has been."""
    scripted = engine(reply("Hello.", hang_after=0), context_length=2**20)
    async with served(scripted) as base:
        where = urlsplit(base)
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        body = json.dumps({"messages": [{"role": "user", "content": "x" * length}], "stream": stream}).encode()
        writer.write(b"POST %b HTTP/1.1\r\nHost: toy\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
        await until(lambda: scripted.running == 1)
        writer.close()
        await until(lambda: scripted.running == 0)
