"""A prefill/decode router in front of two fake SGLang servers, as SGLang's own works: it adds the bootstrap fields,
sends the same request to both at once, and gives back what the decode side says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from paraserve.engines.base import EngineError
from paraserve.engines.http.client import EngineHTTP, HTTPStream
from paraserve.engines.http.sse import SSEReader
from tests.fakes.asgi import Receive, Send, read_body, send_json, send_stream

_HEADERS = frozenset({"host", "content-length", "content-type", "authorization"})


@dataclass
class FakePDRouter:
    """``room`` is the bootstrap room of every request that does not bring its own."""

    prefill_url: str
    decode_url: str
    room: int = (1 << 62) + 3
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        async with _Leg(self.prefill_url) as prefill, _Leg(self.decode_url) as decode:
            match scope["path"]:
                case "/generate":
                    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                    passed = {name: value for name, value in headers.items() if name not in _HEADERS}
                    await self._generate(json.loads(await read_body(receive)), passed, prefill, decode, receive, send)
                case "/abort_request":
                    body = json.loads(await read_body(receive))
                    await asyncio.gather(prefill.abort(body["rid"]), decode.abort(body["rid"]))
                    await send_json(send, 200, None)
                case path:
                    reply = await decode.http.get(path)
                    await send_json(send, reply.status, reply.json())

    async def _generate(
        self,
        body: dict[str, Any],
        headers: dict[str, str],
        prefill: _Leg,
        decode: _Leg,
        receive: Receive,
        send: Send,
    ) -> None:
        body = {"bootstrap_host": "10.0.0.1", "bootstrap_port": None, "bootstrap_room": self.room, **body}
        self.requests.append(body)
        legs = {asyncio.ensure_future(leg.open(body, headers)): leg for leg in (prefill, decode)}
        pending = set(legs)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                status, message = each.result()
                if status != 200:
                    for other in pending:
                        other.cancel()
                    await asyncio.gather(
                        *pending, prefill.abort(body["rid"]), decode.abort(body["rid"]), return_exceptions=True
                    )
                    await send_json(send, status, {"error": {"message": message, "code": "leg_failed"}})
                    return
        await send_stream(receive, send, self._merged(await prefill.first(), decode))

    async def _merged(self, prefilled: dict[str, Any], decode: _Leg) -> AsyncIterator[bytes]:
        async for payload in decode.events():
            if payload != b"[DONE]":
                event = json.loads(payload)
                if "meta_info" in event:
                    event["meta_info"]["prefill_meta_info"] = prefilled["meta_info"]
                payload = json.dumps(event).encode()
            yield b"data: " + payload + b"\n\n"


class _Leg:
    def __init__(self, url: str) -> None:
        self.http = EngineHTTP(url)
        self._stream: HTTPStream | None = None

    async def __aenter__(self) -> _Leg:
        await self.http.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def open(self, body: dict[str, Any], headers: dict[str, str]) -> tuple[int, str]:
        """The leg's status, and why where it is no 200."""
        try:
            self._stream = await self.http.stream("/generate", json.dumps(body).encode(), headers)
            if self._stream.status == 200:
                return 200, ""
            told = json.loads(await self._stream.body())["error"]
            return self._stream.status, told if isinstance(told, str) else told["message"]
        except EngineError as error:
            return 502, error.message

    async def events(self) -> AsyncIterator[bytes]:
        assert self._stream is not None
        reader = SSEReader()
        while received := await self._stream.read():
            for payload in reader.feed(received):
                yield payload

    async def first(self) -> dict[str, Any]:
        async for payload in self.events():
            event: dict[str, Any] = json.loads(payload)
            return event
        raise AssertionError("the prefill side said nothing")

    async def abort(self, rid: str) -> None:
        try:
            await self.http.post("/abort_request", {"rid": rid})
        except EngineError:
            return
