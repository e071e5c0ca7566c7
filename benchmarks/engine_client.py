"""CPU time that an HTTP client library takes for each server-sent event of an engine.

    python benchmarks/engine_client.py [--events 300] [--rate 100] [--streams 1 64]

A fake engine in its own process sends events of the size of SGLang's incremental ones, each in its own HTTP chunk, at
``--rate`` events a second and stream, so that they arrive one by one as a real engine sends them. The clients read
them with the project's own SSE reader; what is printed is the client process's CPU time (user and system) for each
event, best of three runs. ``floor`` is a bare socket with httptools: no pool, no timeouts, no errors; it is there to
show what is left to win, not to be used. Needs the clients that it compares: ``httpx`` and ``aiohttp``.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection

import aiohttp
import httptools
import httpx
import uvloop

from paraserve.engines.http.sse import SSEReader

EVENT = (
    b'data: {"text":" token","output_ids":[12345],"meta_info":{"id":"0123456789abcdef0123456789abcdef",'
    b'"finish_reason":null,"prompt_tokens":1024,"weight_version":"default","num_retractions":0,'
    b'"reasoning_tokens":0,"completion_tokens":512,"cached_tokens":1000}}\n\n'
)
HTTP_CHUNK = f"{len(EVENT):x}\r\n".encode() + EVENT + b"\r\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b'{"input_ids":[1,2,3],"stream":true}'

ReadEvents = Callable[[int], Awaitable[int]]


def serve(ready: Connection, events: int, rate: float) -> None:
    """The fake engine. Answers every request with ``events`` events, ``rate`` of them a second."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(len(BODY))
                writer.write(HEAD)
                for _ in range(events):
                    writer.write(HTTP_CHUNK)
                    await asyncio.sleep(1 / rate)
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


@asynccontextmanager
async def with_httpx(streams: int) -> AsyncIterator[ReadEvents]:
    limits = httpx.Limits(max_connections=streams, max_keepalive_connections=streams)
    async with httpx.AsyncClient(limits=limits, timeout=30) as client:

        async def read(port: int) -> int:
            reader, count = SSEReader(), 0
            async with client.stream("POST", f"http://127.0.0.1:{port}/generate", content=BODY) as response:
                async for chunk in response.aiter_raw():
                    count += len(reader.feed(chunk))
            return count

        yield read


@asynccontextmanager
async def with_aiohttp(streams: int) -> AsyncIterator[ReadEvents]:
    connector = aiohttp.TCPConnector(limit=streams)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=30)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def read(port: int) -> int:
            reader, count = SSEReader(), 0
            async with session.post(f"http://127.0.0.1:{port}/generate", data=BODY) as response:
                async for chunk in response.content.iter_any():
                    count += len(reader.feed(chunk))
            return count

        yield read


class _FloorProtocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.count = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._sse = SSEReader()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.count += len(self._sse.feed(body))

    def on_message_complete(self) -> None:
        self.done.set_result(self.count)


@asynccontextmanager
async def with_floor(streams: int) -> AsyncIterator[ReadEvents]:
    async def read(port: int) -> int:
        transport, protocol = await asyncio.get_running_loop().create_connection(_FloorProtocol, "127.0.0.1", port)
        transport.write(
            b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
        )
        try:
            return await protocol.done
        finally:
            transport.close()

    yield read


CLIENTS = {"httpx": with_httpx, "aiohttp": with_aiohttp, "floor": with_floor}


async def cpu_per_event(name: str, port: int, streams: int, events: int) -> float:
    """CPU microseconds for each event, with ``streams`` streams at once."""
    async with CLIENTS[name](streams) as read:
        started = time.process_time()
        counts = await asyncio.gather(*(read(port) for _ in range(streams)))
        spent = time.process_time() - started
    if set(counts) != {events}:
        raise SystemExit(f"{name} read {sorted(set(counts))} events instead of {events}")
    return spent / (streams * events) * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--events", type=int, default=300)
    arguments.add_argument("--rate", type=float, default=100.0)
    arguments.add_argument("--streams", type=int, nargs="+", default=[1, 64])
    options = arguments.parse_args()
    ours, theirs = multiprocessing.Pipe()
    engine = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, options.events, options.rate))
    engine.start()
    try:
        port: int = ours.recv()
        print(f"{'client':<10}" + "".join(f"{n:>6} stream(s)" for n in options.streams) + "   (CPU µs an event)")
        for name in CLIENTS:
            best = [
                min(uvloop.run(cpu_per_event(name, port, streams, options.events)) for _ in range(3))
                for streams in options.streams
            ]
            print(f"{name:<10}" + "".join(f"{value:>16.1f}" for value in best))
    finally:
        engine.terminate()
        engine.join()


if __name__ == "__main__":
    main()
