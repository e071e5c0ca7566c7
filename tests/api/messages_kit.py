"""A reader of Messages streams that is as strict as the strictest client."""

from __future__ import annotations

import json
from typing import Any

FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}


def events(body: str) -> list[dict[str, Any]]:
    """The payloads of a stream; each event's name is its type."""
    found = []
    for frame in body.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        found.append(payload)
    return found


def accumulated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that an SDK has at the end.

    The rules are those of the clients: the message starts empty and with its usage; blocks are started, grow and are
    stopped one after the other, a thought after its signature; the message's delta has how it ended and the usage, and
    nothing comes after its stop. A call that was cut is not stopped, is no block, and is the last.
    """
    first, *middle, delta, last = [part for part in parts if part["type"] != "ping"]
    assert [first["type"], delta["type"], last["type"]] == ["message_start", "message_delta", "message_stop"]
    message: dict[str, Any] = json.loads(json.dumps(first["message"]))
    assert (message["content"], message["stop_reason"]) == ([], None)
    assert message["usage"]["input_tokens"] >= 0
    assert message["usage"]["output_tokens"] == 0
    started: dict[str, Any] | None = None
    begun = 0
    for part in middle:
        if part["type"] == "content_block_start":
            assert started is None
            assert part["index"] == begun
            started, begun = dict(part["content_block"]), begun + 1
            assert not any(started.get(field) for field in ("text", "thinking", "signature", "input"))
            continue
        assert started is not None
        assert part["index"] == begun - 1
        if part["type"] == "content_block_delta":
            kind, field = FIELDS[part["delta"]["type"]]
            assert started["type"] == kind
            assert not started.get("signature")
            started[field] = started.get(field, "") + part["delta"][field]
        else:
            assert part["type"] == "content_block_stop"
            assert started.get("signature", "unsigned")
            if started["type"] == "tool_use":
                started["input"] = json.loads(started.pop("partial_json", "{}"))
            message["content"].append(started)
            started = None
    assert begun
    assert started is None or (started["type"] == "tool_use" and delta["delta"]["stop_reason"] != "tool_use")
    assert delta["delta"]["stop_reason"]
    assert delta["usage"]["output_tokens"] >= 0
    message["content"] = message["content"] or [{"type": "text", "text": ""}]
    return {**message, **delta["delta"], "usage": delta["usage"]}
