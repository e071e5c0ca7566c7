"""Reading what goes over the wire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import msgspec
from starlette.types import ASGIApp, Message

from tests.waiting import PATIENCE

USER = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def frames(body: str) -> list[str]:
    """The payloads of a stream, in order; every frame is one whole event."""
    assert body == "" or body.endswith("\n\n")
    lines = [line for line in body.split("\n\n") if line and not line.startswith(":")]
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    return [line.removeprefix("data: ") for line in lines]


def chunks(body: str) -> list[dict[str, Any]]:
    """The JSON payloads of a stream that ended well."""
    payloads = frames(body)
    assert payloads[-1] == "[DONE]"
    return [json.loads(payload) for payload in payloads[:-1]]


def payloads(body: str) -> list[dict[str, Any]]:
    """What the events of any API's stream hold, its end aside."""
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def folded(parts: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What a client that joins a chat stream's deltas has at the end, by choice."""
    choices: dict[int, dict[str, Any]] = {}
    for part in parts:
        for choice in part["choices"]:
            whole = choices.setdefault(
                choice["index"], {"content": "", "reasoning_content": "", "tool_calls": [], "logprobs": []}
            )
            delta = choice["delta"]
            whole["content"] += delta.get("content") or ""
            whole["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                _join_call(whole["tool_calls"], call)
            whole["logprobs"] += (choice["logprobs"] or {}).get("content", [])
            if choice["finish_reason"] is not None:
                assert "finish_reason" not in whole
                whole["finish_reason"] = choice["finish_reason"]
                whole["matched_stop"] = choice["matched_stop"]
    return choices


def _join_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    if delta["index"] == len(calls):
        assert delta["function"]["arguments"] == ""
        calls.append({"id": delta["id"], "name": delta["function"]["name"], "arguments": ""})
        assert delta["type"] == "function"
    else:
        assert delta.keys() == {"index", "function"}
        assert delta["function"].keys() == {"arguments"}
        calls[delta["index"]]["arguments"] += delta["function"]["arguments"]


def unfolded(body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """A whole chat response in the form of `folded`."""
    return {
        choice["index"]: {
            "content": choice["message"]["content"] or "",
            "reasoning_content": choice["message"].get("reasoning_content", ""),
            "tool_calls": [
                {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
                for call in choice["message"].get("tool_calls", [])
            ],
            "logprobs": (choice["logprobs"] or {}).get("content", []),
            "finish_reason": choice["finish_reason"],
            "matched_stop": choice["matched_stop"],
        }
        for choice in body["choices"]
    }


async def post(client: httpx.AsyncClient, path: str = CHAT, **fields: Any) -> httpx.Response:
    default = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    return await client.post(path, json={**default, **fields})


class LeavingClient:
    """One request whose client can leave: an ASGI exchange by hand."""

    def __init__(self, app: ASGIApp, path: str, **fields: Any) -> None:
        self._body = msgspec.json.encode(fields)
        self._gone = asyncio.Event()
        self._sent_body = False
        self.messages: list[Message] = []
        self.got = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json")],
            "client": ("test", 1),
            "server": ("toy", 80),
            "state": {},
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._sent_body:
            self._sent_body = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.messages.append(message)
        if message.get("body"):
            self.got.set()

    @property
    def body(self) -> bytes:
        """What has come of it."""
        return b"".join(message.get("body", b"") for message in self.messages)

    async def leave(self) -> None:
        """Close the connection, and wait until the server has let go of the request."""
        self._gone.set()
        await asyncio.wait_for(self.task, PATIENCE)
