"""The pooled client: stale connections, timeouts, retries."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from paraserve.engines.base import EngineError
from paraserve.engines.http.client import EngineHTTP, HTTPReply, HTTPTimeouts
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from tests.engines.contract import collect
from tests.engines.remote_faults import ask
from tests.fakes.sequences import VOCAB
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_fake import FakeSGLang
from tests.waiting import PATIENCE

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Wire:
    """A server that does with each request of each connection what its script says, byte by byte."""

    def __init__(self, *scripts: list[str]) -> None:
        self.scripts = list(scripts)
        self.requests: list[int] = []
        """The number of the connection that each request came on."""
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.connections = self.connections, self.connections + 1
        script = self.scripts[number] if number < len(self.scripts) else []
        try:
            for action in script:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                self.requests.append(number)
                if action == "answer":
                    writer.write(ANSWER)
                elif action == "half":
                    writer.write(ANSWER[:-1])
                elif action == "hang":
                    await asyncio.sleep(PATIENCE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def client_of(wire: Wire, **timeouts: float) -> AsyncIterator[EngineHTTP]:
    server = await asyncio.start_server(wire, "127.0.0.1", 0)
    http = EngineHTTP(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeouts=HTTPTimeouts(**timeouts))
    await http.open()
    try:
        yield http
    finally:
        await http.close()
        server.close()


class Recorder:
    """Answers, and keeps the heads that it got."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(ANSWER)
        writer.close()


@pytest.mark.parametrize(
    ("user", "api_key", "sent"),
    [
        ("", None, None),
        ("", "pepper", "Bearer pepper"),
        ("joe:p%40ss@", None, "Basic " + base64.b64encode(b"joe:p@ss").decode()),
        ("joe:p%40ss@", "pepper", "Bearer pepper"),
    ],
)
async def test_a_password_in_the_url_is_sent_and_not_shown(
    user: str, api_key: str | None, sent: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Recorder()
    server = await asyncio.start_server(wire, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = EngineHTTP(f"http://{user}127.0.0.1:{port}/", api_key=api_key, timeouts=HTTPTimeouts(connect=PATIENCE))
    assert http.base_url == f"http://127.0.0.1:{port}"
    await http.open()
    assert await http.get("/x") == HTTPReply(200, b"ok")
    server.close()
    with pytest.raises(EngineError) as caught:
        await http.stream("/x", b"{}", {})
    await http.close()
    heads = [line.partition(": ") for line in wire.heads[0].splitlines()]
    assert [value for name, _, value in heads if name.lower() == "authorization"] == ([sent] if sent else [])
    shown = caplog.text + repr(caught.value) + repr(caught.value.__cause__)
    assert "127.0.0.1" in shown
    assert not any(secret in shown for secret in ("p%40ss", "p@ss", "pepper"))


async def post(http: EngineHTTP) -> bytes:
    return (await http.post("/x", {"a": 1})).body


async def test_connection_is_kept_for_the_next_request() -> None:
    wire = Wire(["answer", "answer"])
    async with client_of(wire) as http:
        assert [await post(http), await post(http)] == [b"ok", b"ok"]
    assert wire.requests == [0, 0]


async def test_stale_pooled_connection_is_retried_once_on_a_fresh_one() -> None:
    wire = Wire(["answer", "drop"], ["answer"])
    async with client_of(wire) as http:
        assert [await post(http), await post(http)] == [b"ok", b"ok"]
    assert wire.requests == [0, 0, 1]


async def test_second_connection_that_breaks_is_not_retried_again() -> None:
    wire = Wire(["answer", "drop"], ["drop"], ["answer"])
    async with client_of(wire) as http:
        await post(http)
        with pytest.raises(EngineError) as caught:
            await post(http)
    assert caught.value.status == 502
    assert wire.requests == [0, 0, 1]


async def test_fresh_connection_that_breaks_is_not_retried() -> None:
    wire = Wire(["drop"], ["answer"])
    async with client_of(wire) as http:
        with pytest.raises(EngineError) as caught:
            await post(http)
    assert (caught.value.status, caught.value.code) == (502, "engine_disconnected")
    assert wire.requests == [0]


async def test_nothing_is_retried_after_the_first_byte() -> None:
    wire = Wire(["answer", "half"], ["answer"])
    async with client_of(wire) as http:
        await post(http)
        with pytest.raises(EngineError) as caught:
            await post(http)
    assert caught.value.status == 502
    assert wire.requests == [0, 0]


async def test_call_that_hangs_is_a_timeout() -> None:
    async with client_of(Wire(["hang"]), call=0.2) as http:
        with pytest.raises(EngineError) as caught:
            await post(http)
    assert (caught.value.status, caught.value.code) == (504, "engine_timeout")


async def test_refused_connection_is_unreachable() -> None:
    http = EngineHTTP(f"http://127.0.0.1:{free_port()}")
    await http.open()
    with pytest.raises(EngineError) as caught:
        await http.get("/health")
    await http.close()
    assert (caught.value.status, caught.value.code) == (503, "engine_unreachable")
    assert "127.0.0.1" not in caught.value.message


async def test_connection_that_the_engine_closed_meanwhile_costs_no_request() -> None:
    wire = Wire(["answer"], ["answer"])
    async with client_of(wire) as http:
        assert [await post(http), await post(http)] == [b"ok", b"ok"]
    assert wire.requests == [0, 1]


async def test_a_stream_is_bounded_by_silence_only_and_a_call_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that neither a long prompt nor a long reply is cut."""
    asked: list[aiohttp.ClientTimeout] = []
    request = aiohttp.ClientSession.request

    def spy(session: aiohttp.ClientSession, *args: Any, **options: Any) -> Any:
        asked.append(options["timeout"])
        return request(session, *args, **options)

    monkeypatch.setattr(aiohttp.ClientSession, "request", spy)
    async with client_of(Wire(["answer", "answer"]), connect=11.0, idle=22.0, call=33.0) as http:
        await (await http.stream("/x", b"{}", {})).drain()
        await post(http)
    stream, call = asked
    assert (stream.total, stream.sock_connect, stream.sock_read) == (None, 11.0, 22.0)
    assert (call.total, call.sock_connect, call.sock_read) == (33.0, 11.0, None)


async def test_base_url_may_have_a_path() -> None:
    paths = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async with serving(app) as url:
        http = EngineHTTP(f"{url}/engine/")
        await http.open()
        assert (await http.get("/health")).json() == {}
        await http.close()
    assert paths == ["/engine/health"]


async def _answering(head: bytes, pieces: int, piece: bytes) -> tuple[asyncio.Server, EngineHTTP]:
    """A server that answers with ``head`` and ``piece`` over and over, and a client of it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
            for _ in range(pieces):
                writer.write(piece)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    http = EngineHTTP(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    await http.open()
    return server, http


async def test_a_small_answer_that_does_not_end_is_refused() -> None:
    server, http = await _answering(b"", 10_000, b"x" * 65_536)
    async with server:
        with pytest.raises(EngineError) as refused:
            await http.get("/v1/models")
        await http.close()
    assert (refused.value.status, refused.value.code) == (502, "engine_error")


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"x"])
async def test_a_compressed_answer_is_refused_and_never_unfolded(encoding: bytes) -> None:
    """Nobody asked for one: `test_engines_are_asked_for_no_compression`."""
    server, http = await _answering(b"content-encoding: " + encoding + b"\r\n", 1, gzip.compress(b"{}"))
    async with server:
        for asked in (lambda: http.get("/x"), lambda: http.stream("/x", b"{}", {})):
            with pytest.raises(EngineError) as refused:
                await asked()
            assert (refused.value.status, refused.value.code) == (502, "engine_error")
        await http.close()


async def test_engines_are_asked_for_no_compression() -> None:
    fake = FakeSGLang()
    async with serving(fake) as url:
        engine = SGLangEngine(url, ModelFacts(vocab_size=VOCAB))
        await engine.start()
        await collect(engine, ask())
        await engine.stop()
    assert [headers["accept-encoding"] for headers in fake.headers] == ["identity"]
