"""Where a request ends and the next begins, over a real socket, in this process. ``tests/e2e/test_framing.py`` asks the
same of servers as they are started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from paraserve.api.app import Application, create_app
from paraserve.serving.connection_limits import ConnectionLimits
from paraserve.serving.http_protocol import HTTPConnection, with_limits
from tests.fakes.serving import serving
from tests.serving.framing import CASES, CHAT, LONE, PATH, STREAM, TAKEN, Case, Client, by_length, cuts, head, try_case
from tests.toy import deployment, engine, reply
from tests.waiting import PATIENCE, until

LIMITS = ConnectionLimits(refused=PATIENCE, refused_bytes=1 << 20)
LIMIT = 1000


def app() -> Application:
    return create_app(deployment(engine(reply("Hello.", chunk_sizes=(2,))), max_body_size=LIMIT))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(app(), http=with_limits(LIMITS)) as base:
        yield base


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_request_is_as_long_as_its_framing_says_however_it_is_cut(url: str, case: Case) -> None:
    for way, pieces in cuts(case.sent).items():
        assert await try_case(url, case, pieces) == (case.answers, case.goes_on), way


@pytest.mark.parametrize("seed", range(25))
async def test_requests_on_one_connection_are_what_each_is_alone_in_whatever_packets_they_come(
    url: str, seed: int
) -> None:
    drawn = Random(seed)
    ones = drawn.choices([case for case in TAKEN.values() if case.goes_on], k=8)
    ones.append(drawn.choice([case for case in CASES.values() if not case.goes_on]))
    sent = b"".join(case.sent for case in ones)
    cuts_at = sorted(drawn.sample(range(1, len(sent)), k=min(drawn.choice([0, 3, 40]), len(sent) - 1)))
    pieces = [sent[begin:end] for begin, end in pairwise([0, *cuts_at, len(sent)])]
    whole = Case(sent, tuple(status for case in ones for status in case.answers), goes_on=False)
    assert await try_case(url, whole, pieces) == (whole.answers, False)


async def test_a_body_is_sent_when_it_is_asked_for(url: str) -> None:
    client = await Client.to(url)
    whole = by_length("Expect: 100-continue")
    at = whole.index(b"\r\n\r\n") + 4
    client.writer.write(whole[:at])
    await client.read(0, asked=1)
    client.writer.write(whole[at:] + LONE)
    await client.read(2)
    assert (client.asked, client.answers) == (1, [200, 200])
    await client.close()


async def test_a_body_that_is_not_asked_for_is_not_waited_for(url: str) -> None:
    client = await Client.to(url)
    client.writer.write(head("Expect: 100-continue", "Content-Length: 5000"))
    assert not await client.read(99)
    assert client.answers == [413]
    await client.close()


async def test_a_refused_body_is_read_to_its_end_and_the_connection_goes_on(url: str) -> None:
    client = await Client.to(url)
    client.writer.write(by_length(body=b"x" * 900_000) + LONE)
    await client.read(2)
    assert client.answers == [413, 200]
    await client.close()


@pytest.mark.parametrize("framing", ["Content-Length: 99000000", "Transfer-Encoding: chunked"])
async def test_a_refused_body_is_read_for_a_bounded_size(url: str, framing: str) -> None:
    client = await Client.to(url)
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if "chunked" in framing else b"x" * 0x10000
    client.writer.write(head(framing))

    async def send_all() -> None:
        for _ in range(1500):
            client.writer.write(chunk)
            await client.writer.drain()

    with pytest.raises(ConnectionError):
        await send_all()
    await client.close()


@pytest.mark.parametrize("framing", ["Content-Length: 99000000", "Transfer-Encoding: chunked"])
async def test_a_refused_body_is_read_for_a_bounded_time(framing: str) -> None:
    async with serving(app(), http=with_limits(replace(LIMITS, refused=0.5))) as base:
        client = await Client.to(base)
        client.writer.write(head(framing) + (b"1000\r\n" if "chunked" in framing else b"") + b"x" * 4096)
        await client.read(1)
        assert client.answers == [413]
        ended = asyncio.ensure_future(client.read(2))
        while not ended.done():  # never silent, never done
            client.writer.write(b"1\r\nx\r\n" if "chunked" in framing else b"x")
            await asyncio.wait({ended}, timeout=0.1)
        assert isinstance(ended.exception(), ConnectionError) or not ended.result()
        await client.close()


async def test_a_reply_of_http_1_0_ends_with_the_connection_and_has_no_chunks(url: str) -> None:
    client = await Client.to(url)
    client.writer.write(by_length(version="1.0", path=CHAT, body=STREAM))
    raw = b""
    while received := await client._reader.read(1 << 16):
        raw += received
    top, _, body = raw.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in top.lower()
    assert b"connection: close" in top.lower()
    assert body.startswith(b"data: ")
    assert body.endswith(b"data: [DONE]\n\n")
    await client.close()


async def test_trailers_are_no_headers(url: str) -> None:
    """They would come after the headers were judged."""
    seen: list[list[tuple[bytes, bytes]]] = []
    begun = asyncio.Event()

    async def app(scope, receive, send) -> None:
        begun.set()
        while (await receive())["more_body"]:
            pass
        seen.append(list(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async with serving(app, http=with_limits(LIMITS)) as base:
        client = await Client.to(base)
        client.writer.write(head("Transfer-Encoding: chunked"))
        await begun.wait()
        client.writer.write(b"2\r\n{}\r\n0\r\nAuthorization: Bearer sesame\r\n\r\n")
        await client.read(1)
        await client.close()
    assert [dict(headers) for headers in seen] == [{b"host": b"toy", b"transfer-encoding": b"chunked"}]


async def test_requests_behind_one_that_runs_cost_bytes_only() -> None:
    begun = asyncio.Event()
    running = 0

    async def app(scope, receive, send) -> None:
        nonlocal running
        running += 1
        begun.set()
        await receive()
        await receive()  # until the client leaves

    made: list[HTTPConnection] = []

    class Watched(with_limits(LIMITS)):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            made.append(self)

    async with serving(app, http=Watched) as base:
        client = await Client.to(base)
        client.writer.write(LONE * 100_000)
        await begun.wait()
        await until(lambda: not made[0].transport.is_reading())
        assert running == 1
        assert len(made[0]._exchanges) < 500
        assert len(made[0]._held) < 1 << 20
        await client.close()


async def test_a_head_is_answered_with_a_head(url: str) -> None:
    client = await Client.to(url)
    client.writer.write(head(method="HEAD", path="/health") + LONE.replace(b"/health", b"/nowhere"))
    raw = b""
    while b"There is no endpoint" not in raw:
        raw += await client._reader.read(1 << 16)
    assert raw.count(b"\r\n\r\n") == 2
    assert raw.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 404 ")
    await client.close()


async def test_the_path_of_the_kit_is_one_that_reads_its_body(url: str) -> None:
    client = await Client.to(url)
    client.writer.write(by_length(body=b"{}", path=PATH))
    await client.read(1)
    assert client.answers == [400]
    await client.close()
