"""The floor: the least that an ASGI application on uvicorn can do for a stream, with the same bytes a token.

``python benchmarks/floor_server.py PORT TOKENS PACE PHASE``. It decodes nothing, knows no token and writes one fixed
chunk after another at the same pace as the scripted engine, in step or spread like it; what a server costs beyond this
is what the layer costs.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import uvicorn

_CHUNK = (
    b'data: {"id":"chatcmpl-%s","object":"chat.completion.chunk","created":1700000000,"model":"floor",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n' % (b"0" * 32)
)
_HEAD = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


def floor_app(tokens: int, pace: float, *, in_step: bool) -> Any:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    last = b'data: {"choices":[],"usage":' + json.dumps(usage).encode() + b"}\n\ndata: [DONE]\n\n"
    small = json.dumps({"object": "chat.completion", "choices": [], "usage": usage}).encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        if b'"stream": true' not in body:
            length = str(len(small)).encode()
            head = [(b"content-type", b"application/json"), (b"content-length", length)]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": small})
            return
        await send({"type": "http.response.start", "status": 200, "headers": _HEAD})
        clock = asyncio.get_running_loop().time
        due = clock()
        if pace:
            due += pace - due % pace if in_step else random.uniform(0, pace)
        for _ in range(tokens):
            if pace:
                due += pace
                if (early := due - clock()) > 0:
                    await asyncio.sleep(early)
            await send({"type": "http.response.body", "body": _CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": last, "more_body": False})

    return app


def main() -> None:
    port, tokens, pace, phase = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    uvicorn.run(
        floor_app(tokens, pace, in_step=phase == "step"),
        port=port,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
    )


if __name__ == "__main__":
    main()
