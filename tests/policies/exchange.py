"""One request at the wire, and everything that it led to: what the engine was asked and what the client got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paraserve.api.app import create_app
from paraserve.deployment import Deployment
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.settings import load_settings
from tests import toy
from tests.waiting import PATIENCE, until

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass
class FoldedChoice:
    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, Any] | None = None
    """Usage inside the choice, where Kimi's API has it."""

    def take(self, part: dict[str, Any]) -> None:
        self.content += part.get("content") or ""
        self.reasoning += part.get("reasoning_content") or ""
        for call in part.get("tool_calls") or ():
            if call.get("index", len(self.calls)) == len(self.calls):
                self.calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            self.calls[call.get("index", -1)]["arguments"] += call["function"]["arguments"]


@dataclass
class Exchange:
    """``body`` is the response's whole body, ``status`` 0 where not even a head went out."""

    engine: ScriptedEngine
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def streams(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def events(self) -> list[dict[str, Any]]:
        frames = [frame.removeprefix("data: ") for frame in self.body.decode().split("\n\n") if frame[:5] == "data:"]
        return [json.loads(frame) for frame in frames if frame != "[DONE]"]

    @property
    def error(self) -> dict[str, Any] | None:
        """The error object: the response's, or the stream's last event's."""
        answer = self.events[-1] if self.streams else json.loads(self.body)
        found: dict[str, Any] | None = answer.get("error")
        return found

    @property
    def usage(self) -> dict[str, Any] | None:
        """The response's, or that of the chunk without choices."""
        if not self.streams:
            return json.loads(self.body).get("usage")  # type: ignore[no-any-return]
        found = [event["usage"] for event in self.events if event.get("choices") == []]
        assert len(found) <= 1
        return found[0] if found else None

    @property
    def choices(self) -> list[FoldedChoice]:
        """Stream and whole response folded to the same thing."""
        answers = self.events if self.streams else [json.loads(self.body)]
        folded: dict[int, FoldedChoice] = {}
        for choice in (choice for answer in answers for choice in answer.get("choices", ())):
            into = folded.setdefault(choice["index"], FoldedChoice())
            into.take(choice.get("delta") or choice.get("message") or {"content": choice.get("text")})
            into.finish = choice["finish_reason"] or into.finish
            into.usage = choice.get("usage") or into.usage
        return [folded[index] for index in sorted(folded)]

    @property
    def policies(self) -> str | None:
        return self.headers.get("x-paraserve-policies")

    @property
    def prompt(self) -> str:
        """What the engine read, as text."""
        return toy.TOKENIZER.decode(self.engine.requests[0].token_ids)


async def exchange(
    body: dict[str, Any],
    *replies: ScriptedReply,
    flags: str = "",
    model_path: str = "models/toy",
    endpoint: str = "chat",
    leave_when: Callable[[Exchange], object] | None = None,
    **served: Any,
) -> Exchange:
    """Send ``body`` to a toy that is served with ``flags``.

    Args:
        replies: what the scripted engine says.
        leave_when: holds when the client closes its connection.
        served: for `toy.deployment`.
    """
    engine = toy.engine(*replies)
    deployment = toy.deployment(engine, model_path=model_path, **served, **given(flags))
    return await send(body, deployment, engine, endpoint=endpoint, leave_when=leave_when)


def given(flags: str) -> dict[str, Any]:
    """The settings that flags give, by name."""
    loaded = load_settings(flags.split(), {})
    return {name: getattr(loaded.settings, name) for name in loaded.origins}


async def send(
    body: dict[str, Any],
    deployment: Deployment,
    engine: ScriptedEngine,
    *,
    endpoint: str = "chat",
    leave_when: Callable[[Exchange], object] | None = None,
) -> Exchange:
    """Send ``body`` to an app that serves ``deployment``."""
    app = create_app(deployment)
    result = Exchange(engine)
    sent = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        if leave_when is None:
            await asyncio.Event().wait()
        else:
            await until(lambda: leave_when(result))
        return {"type": "http.disconnect"}

    async def take(message: Any) -> None:
        if message["type"] == "http.response.start":
            result.status = message["status"]
            result.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            result.body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": PATHS[endpoint],
        "raw_path": PATHS[endpoint].encode(),
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("toy", 80),
    }
    await asyncio.wait_for(app(scope, receive, take), PATIENCE)
    return result
