"""An engine's HTTP server as far as a benchmark needs one: the real one's messages, at its pace, of one fixed reply.

``python benchmarks/engine_standin.py sglang|vllm PORT SCRIPT`` with a script of `load_scenarios.script`. It generates
nothing and reads no prompt. All streams of a step are written in one turn, as from an engine that decodes a batch; an
abort ends nothing, since nothing is spent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import uvloop

CONTEXT = 131072
RID = "0123456789abcdef0123456789abcdef"


def sglang_events(ids: list[int]) -> list[dict[str, Any]]:
    """Of a server with ``--incremental-streaming-output``."""

    def event(place: int, token: int) -> dict[str, Any]:
        last = place == len(ids)
        finish = {"type": "stop", "matched": token} if last else None
        counts = {"prompt_tokens": 1024, "completion_tokens": place, "cached_tokens": 1000, "reasoning_tokens": 0}
        meta = {"id": RID, "finish_reason": finish, **counts, "weight_version": "default", "num_retractions": 0}
        return {"text": " token", "output_ids": [token], "meta_info": meta}

    return [event(place, token) for place, token in enumerate(ids, 1)]


def vllm_events(ids: list[int]) -> list[dict[str, Any]]:
    def event(place: int, token: int) -> dict[str, Any]:
        finish = "stop" if place == len(ids) else None
        choice = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None, "token_ids": [token]}
        return {"request_id": f"generate-tokens-{RID}", "choices": [choice]}

    usage = {"prompt_tokens": 1024, "completion_tokens": len(ids), "total_tokens": 1024 + len(ids)}
    events = [event(place, token) for place, token in enumerate(ids, 1)]
    return [*events, {"request_id": f"generate-tokens-{RID}", "choices": [], "usage": usage}]


FACTS: dict[str, Any] = {
    "/model_info": {"model_path": "bench"},
    "/server_info": {"version": "0.5.23", "context_length": CONTEXT, "max_req_input_len": CONTEXT - 6},
    "/v1/models": {"data": [{"id": "bench", "root": "bench", "max_model_len": CONTEXT}]},
    "/version": {"version": "0.32.0"},
}
"""What both are asked at the start, and other small calls: null."""


def chunk(payload: bytes) -> bytes:
    framed = b"data: " + payload + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(framed), framed)


def stream(kind: str, ids: list[int]) -> list[bytes]:
    """The writes of a reply: a token each, the last with all that stands behind it."""
    events = (sglang_events if kind == "sglang" else vllm_events)(ids)
    chunks = [chunk(json.dumps(event, separators=(",", ":")).encode()) for event in events]
    return [*chunks[: len(ids) - 1], b"".join(chunks[len(ids) - 1 :]) + chunk(b"[DONE]") + b"0\r\n\r\n"]


class Batch:
    """Writes the next token of every stream at once, ``pace`` seconds apart; at full speed in each turn of the loop."""

    def __init__(self, writes: list[bytes], pace: float, burst: int) -> None:
        joined = (b"".join(writes[begin : begin + burst]) for begin in range(0, len(writes), burst))
        self._writes = list(joined)
        self._pace = pace
        self._streams: dict[asyncio.Transport, int] = {}
        self._running = False

    def add(self, transport: asyncio.Transport) -> None:
        self._streams[transport] = 0
        if not self._running:
            self._running = True
            self._await_step()

    def _await_step(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pace:
            loop.call_later(self._pace - loop.time() % self._pace, self._step)
        else:
            loop.call_soon(self._step)

    def _step(self) -> None:
        for transport, place in list(self._streams.items()):
            if place + 1 == len(self._writes) or transport.is_closing():
                del self._streams[transport]
            else:
                self._streams[transport] = place + 1
            transport.write(self._writes[place])
        self._running = bool(self._streams)
        if self._running:
            self._await_step()


class Connection(asyncio.Protocol):
    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by descent

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = next((line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), b"0")
        if not end or len(body) < int(length):
            return
        self._received = b""
        path = head.split(b" ", 2)[1].decode()
        if not path.endswith("/generate"):
            self._answer(200, FACTS.get(path))
        elif b'"unknown_to_sglang"' in body:  # how the adapter finds out that it is no router
            self._answer(400, {"error": "unknown"})
        else:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            self._batch.add(self._transport)

    def _answer(self, status: int, told: Any) -> None:
        body = json.dumps(told).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def serve(port: int, batch: Batch) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(batch), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    (reply,) = json.loads(Path(sys.argv[3]).read_text())["replies"]
    writes = stream(sys.argv[1], reply["token_ids"])
    uvloop.run(serve(int(sys.argv[2]), Batch(writes, reply["delay"], reply["burst"])))
