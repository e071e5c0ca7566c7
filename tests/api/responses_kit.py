"""A reader of Responses streams that is as strict as the strictest client."""

from __future__ import annotations

import json
from typing import Any

DELTAS = {
    "response.output_text.delta": ("message", "content", "text"),
    "response.reasoning_text.delta": ("reasoning", "content", "text"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "text"),
}
CALLS = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
LAST = ("response.completed", "response.incomplete", "response.failed")


def events(body: str) -> list[dict[str, Any]]:
    """The payloads of a stream. Each event's name is its type, and they are numbered without gaps."""
    found = []
    for frame in body.removesuffix("\n\n").split("\n\n"):
        if frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        payload = json.loads(data.removeprefix("data: "))
        assert name == f"event: {payload['type']}"
        assert payload["sequence_number"] == len(found)
        found.append(payload)
    return found


def accumulated(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that its events add up to, checked to be the one that the last of them shows.

    The rules are those of the clients: created and in_progress first; an item is added, grows by deltas into parts that
    were added, each part and text is done with what was said, and the item is done; items do not overlap. A call that
    was cut is neither done nor followed by anything.
    """
    first, second, *middle, last = parts
    assert [first["type"], second["type"]] == ["response.created", "response.in_progress"]
    assert first["response"]["status"] == "in_progress"
    assert first["response"]["output"] == second["response"]["output"] == []
    assert first["response"]["id"] == second["response"]["id"] == last["response"]["id"]
    assert last["type"] in LAST
    assert last["type"] == f"response.{last['response']['status']}"
    output: list[dict[str, Any]] = []
    is_open = False
    for part in middle:
        kind = part["type"]
        if kind == "response.output_item.added":
            assert not is_open
            assert part["output_index"] == len(output)
            assert part["item"]["status"] == "in_progress"
            output.append(json.loads(json.dumps(part["item"])))
            is_open = True
            done: set[str] = set()
            continue
        item = output[-1]
        assert is_open
        assert part["output_index"] == len(output) - 1
        if kind == "response.output_item.done":
            whole = part["item"]
            assert {**item, "status": 0, "encrypted_content": 0} == {**whole, "status": 0, "encrypted_content": 0}
            assert len(done) == (1 if "call" in item["type"] else 2 * len(item["content"] + item.get("summary", [])))
            output[-1] = whole
            is_open = False
            continue
        assert part["item_id"] == item["id"]
        if kind.endswith("_part.added"):
            field = "summary" if "summary" in kind else "content"
            assert part[f"{field}_index"] == len(item[field]) == 0
            item[field].append(dict(part["part"]))
        elif kind.endswith("_part.done"):
            field = "summary" if "summary" in kind else "content"
            assert part["part"] == item[field][part[f"{field}_index"]]
            assert any("text" in name and ("summary" in name) == ("summary" in kind) for name in done)
            done.add(kind)
        elif kind in DELTAS:
            of, field, _ = DELTAS[kind]
            assert item["type"] == of
            item[field][part[f"{field}_index"]]["text"] += part["delta"]
            if of == "message":
                item[field][0]["logprobs"] += part["logprobs"]
        elif kind.removesuffix(".done") + ".delta" in DELTAS:
            _, field, _ = DELTAS[kind.removesuffix(".done") + ".delta"]
            assert part["text"] == item[field][part[f"{field}_index"]]["text"]
            assert part.get("logprobs", []) == item[field][0].get("logprobs", [])
            done.add(kind)
        else:
            of, field = CALLS[kind.rpartition(".")[0]]
            assert item["type"] == of
            if kind.endswith(".delta"):
                item[field] += part["delta"]
            else:
                assert (part[field], part["name"]) == (item[field], item["name"])
                done.add(kind)
    if is_open:
        output[-1]["status"] = "incomplete"
        assert "call" in output[-1]["type"] or last["type"] == "response.failed"
    assert output == last["response"]["output"]
    response: dict[str, Any] = last["response"]
    return response


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """What does not differ between two replies of the same text."""
    names = ("id", "call_id", "encrypted_content")
    output = [{k: v for k, v in item.items() if k not in names} for item in response["output"]]
    return {**response, "id": "", "created_at": 0, "completed_at": 0, "output": output}
