"""How requests may be framed, as data, and a client that sends them byte for byte: for every way to a server.

A case is what a client sends on one connection, the statuses that it must get, and whether the connection goes on.
Every body is a whole JSON document, and nothing but its exact bytes is answered with 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools

from tests.waiting import PATIENCE

BODY = json.dumps({"prompt": "How is this framed?"}).encode()
PATH = "/tokenize"
CHAT = "/v1/chat/completions"
STREAM = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2}).encode()
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: toy\r\n\r\n"
"""A body that would be a request, were it taken for one: as a body it is no JSON."""
LONE = b"GET /health HTTP/1.1\r\nHost: toy\r\n\r\n"

UPGRADES = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAB"),
    "websocket": ("Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "anything": ("Upgrade: tls/1.0, irc", "Connection: keep-alive, Upgrade"),
    "nginx without an offer": ("Connection: upgrade", "Upgrade:"),
}  # fmt: skip


def head(*headers: str, method: str = "POST", path: str = PATH, version: str = "1.1", host: str = "Host: toy") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", *([host] if host else []), *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def by_length(*headers: str, body: bytes = BODY, **line: str) -> bytes:
    return head(*headers, f"Content-Length: {len(body)}", **line) + body


def chunked(
    *headers: str, body: bytes = BODY, size: int = 7, extension: str = "", trailers: str = "", **line: str
) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    framed = b"".join(f"{len(piece):x}{extension}\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return head(*headers, "Transfer-Encoding: chunked", **line) + framed + f"0{extension}\r\n{trailers}\r\n".encode()


@dataclass(frozen=True)
class Case:
    """Args:
    answers: statuses, in their order.
    goes_on: whether the connection then serves another request; else it ends.
    """

    sent: bytes
    answers: tuple[int, ...]
    goes_on: bool = True


TAKEN = {
    "by length": Case(by_length(), (200,)),
    "chunked": Case(chunked(), (200,)),
    "chunks with extensions": Case(chunked(extension=';name="a b";flag'), (200,)),
    "chunks with trailers": Case(chunked(trailers="X-Sum: 1\r\nAuthorization: Bearer no\r\n"), (200,)),
    "sizes in capitals": Case(chunked(size=31).replace(b"1f\r\n", b"001F\r\n"), (200,)),
    "an absolute URI": Case(by_length(path=f"http://elsewhere{PATH}?a=b"), (200,)),
    "an absolute URI without a path": Case(head(method="GET", path="http://toy"), (200,)),
    "a host with a port": Case(by_length(host="Host: [::1]:8000"), (200,)),
    "an empty host": Case(by_length(host="Host:"), (200,)),
    "blank lines in front": Case(b"\r\n\r\n" + by_length(), (200,)),
    "blanks around values": Case(by_length("X-A:  \t b \t "), (200,)),
    "a stream": Case(by_length(path=CHAT, body=STREAM), (200,)),
    "the last one": Case(by_length("Connection: close"), (200,), goes_on=False),
    "the last one, and something behind it": Case(by_length("Connection: close") + SMUGGLED, (200,), goes_on=False),
    "pipelined": Case(by_length() + chunked() + LONE + by_length(path=CHAT, body=STREAM) + LONE, (200,) * 5),
    "many pipelined": Case(LONE * 300, (200,) * 300),
    "pipelined behind a stream, the last with an offer": Case(
        by_length(path=CHAT, body=STREAM) + chunked(*UPGRADES["h2c"]), (200, 200)
    ),
    "HTTP/1.0": Case(by_length(version="1.0"), (200,), goes_on=False),
    "HTTP/1.0 without a host": Case(by_length(version="1.0", host=""), (200,), goes_on=False),
    "HTTP/1.0 that would go on": Case(by_length("Connection: keep-alive", version="1.0"), (200,), goes_on=False),
    "HTTP/1.0 and a stream": Case(by_length(version="1.0", path=CHAT, body=STREAM), (200,), goes_on=False),
    "HTTP/1.0 that expects": Case(by_length("Expect: 100-continue", version="1.0"), (200,), goes_on=False),
    "a body that looks like a request": Case(by_length(body=SMUGGLED) + LONE, (400, 200)),
    "a path that is not there": Case(by_length(path="/nowhere", body=SMUGGLED) + LONE, (404, 200)),
    **{
        f"{name} offered, {frame.__name__}": Case(frame(*offer) + LONE, (200, 200))
        for name, offer in UPGRADES.items()
        for frame in (by_length, chunked)
    },
    **{
        f"{name} offered, with a body that looks like a request": Case(by_length(*offer, body=SMUGGLED), (400,))
        for name, offer in UPGRADES.items()
    },
    "offered without a body": Case(head(*UPGRADES["h2c"], method="GET", path="/health") + LONE, (200, 200)),
    "offered by HTTP/1.0": Case(by_length(*UPGRADES["h2c"], version="1.0"), (200,), goes_on=False),
    "offered at the end": Case(by_length("Connection: close, Upgrade", "Upgrade: h2c"), (200,), goes_on=False),
    "offered, and expected": Case(by_length(*UPGRADES["h2c"], "Expect: 100-continue") + LONE, (200, 200)),
}
"""Requests that are served."""

REFUSED = {
    "no host": (by_length(host=""), 400),
    "two hosts": (by_length("Host: toy"), 400),
    "two hosts, HTTP/1.0": (by_length("Host: toy", version="1.0"), 400),
    "a host that is none": (by_length(host="Host: toy/elsewhere"), 400),
    "both lengths": (chunked(f"Content-Length: {len(BODY)}"), 400),
    "both lengths, the other way": (by_length("Transfer-Encoding: chunked"), 400),
    "two lengths": (by_length("Content-Length: 3"), 400),
    "one length twice": (by_length(f"Content-Length: {len(BODY)}"), 400),
    "a list of lengths": (head("Content-Length: 3, 3") + b"abc", 400),
    "a signed length": (head("Content-Length: +3") + b"abc", 400),
    "a vast length": (head("Content-Length: " + "9" * 30) + b"abc", 400),
    "another coding": (head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501),
    "a coding that is none": (head("Transfer-Encoding: xchunked") + b"0\r\n\r\n", 501),
    "chunked twice": (head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "chunks of HTTP/1.0": (chunked(version="1.0"), 400),
    "HTTP/2.0": (by_length(version="2.0"), 505),
    "HTTP/0.9": (by_length(version="0.9"), 505),
    "HTTP/1.2": (by_length(version="1.2"), 400),
    "a tunnel": (head(method="CONNECT", path="toy:443") + SMUGGLED, 405),
    "HTTP/2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a blank before the colon": (head("X-A : b"), 400),
    "a folded header": (head("X-A: b\r\n c"), 400),
    "a bare line feed": (by_length().replace(b"\r\n", b"\n"), 400),
    "a line feed in a value": (head("X-A: b\nX-B: c"), 400),
    "a zero byte": (head("X-A: \0"), 400),
    "a path of other bytes": (head(path="/\u00e9"), 400),
    "a size that is none": (head("Transfer-Encoding: chunked") + b"zz\r\n", 400),
    "a size with a sign": (head("Transfer-Encoding: chunked") + b"-1\r\n", 400),
    "a size with a blank": (head("Transfer-Encoding: chunked") + b" 1\r\na\r\n", 400),
    "a vast size": (head("Transfer-Encoding: chunked") + b"f" * 20 + b"\r\n", 400),
    "a chunk that is longer than its size": (head("Transfer-Encoding: chunked") + b"1\r\nab\r\n", 400),
    "a chunk that is shorter than its size": (head("Transfer-Encoding: chunked") + b"5\r\nab\r\n0\r\n\r\n", 400),
    "a size with a bare line feed": (head("Transfer-Encoding: chunked") + b"2\n{}\r\n0\r\n\r\n", 400),
    "an endless extension": (head("Transfer-Encoding: chunked") + b"1;" + b"a" * 100_000, 431),
    "endless trailers": (chunked()[:-2] + b"X-A: b\r\n" * 20_000, 431),
}
"""Requests that are none: what they send, and the status. The connection ends, whatever else was sent on it."""

CASES = TAKEN | {name: Case(sent, (status,), goes_on=False) for name, (sent, status) in REFUSED.items()}
CASES |= {
    f"served, then {name}": Case(chunked(*UPGRADES["h2c"]) + sent + SMUGGLED, (200, status), goes_on=False)
    for name, (sent, status) in REFUSED.items()
}


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._parser = httptools.HttpResponseParser(self)
        self.answers: list[int] = []
        self.asked = 0
        """How often it was told to send its body."""
        self.goes_on = True
        """Whether the last answer left the connection open."""
        self._open_ended = False

    @classmethod
    async def to(cls, url: str, trusting: ssl.SSLContext | None = None) -> Client:
        where = urlsplit(url)
        return cls(*await asyncio.open_connection(where.hostname, where.port, ssl=trusting))

    def on_headers_complete(self) -> None:
        self._open_ended = True

    def on_message_complete(self) -> None:
        self._open_ended = False
        status = self._parser.get_status_code()
        if status == 100:
            self.asked += 1
            return
        self.answers.append(status)
        self.goes_on = self._parser.should_keep_alive()

    async def read(self, count: int, *, asked: int = 0, seconds: float = PATIENCE) -> bool:
        """Until there are so many answers. Returns whether the connection is still open."""
        async with asyncio.timeout(seconds):
            while len(self.answers) < count or self.asked < asked:
                received = await self._reader.read(1 << 16)
                if not received:
                    if self._open_ended:  # a body that ends with the connection
                        self.on_message_complete()
                    return False
                self._parser.feed_data(received)
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


def cuts(sent: bytes) -> dict[str, Sequence[bytes]]:
    """Ways of cutting it into packets."""
    after_head = sent.find(b"\r\n\r\n") + 4
    odd = [sent[at : at + 977] for at in range(0, len(sent), 977)]
    ways: dict[str, Sequence[bytes]] = {
        "whole": [sent],
        "behind the head": [sent[:after_head], sent[after_head:]],
        "odd": odd,
    }
    if len(sent) < 500 and not sent.endswith(SMUGGLED):  # who writes behind the end may find the connection reset
        ways["byte by byte"] = [sent[at : at + 1] for at in range(len(sent))]
    return ways


async def try_case(url: str, case: Case, pieces: Sequence[bytes], trusting: ssl.SSLContext | None = None) -> Any:
    """Returns what came: the statuses, and whether the connection went on."""
    client = await Client.to(url, trusting)
    try:
        answers: tuple[int, ...] = ()
        with contextlib.suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                client.writer.write(piece)
                await asyncio.sleep(0)
            await client.read(len(case.answers))
            answers = tuple(client.answers)
            client.writer.write(LONE)
            # A server cannot close its half of TLS: it waits until we close, who have been told to.
            seconds = PATIENCE if trusting is None or client.goes_on else 0.5
            await client.read(len(answers) + 1, seconds=seconds)
        return answers, client.answers[len(answers) :] == [200]
    finally:
        await client.close()
