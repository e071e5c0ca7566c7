"""The line that each request leaves in the log, at the wire."""

from __future__ import annotations

import asyncio
import base64
import inspect
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from paraserve.observability.logs import LineFormatter
from paraserve.observability.request_log import _reply_fields, line_of, parameters, shortened
from tests.api.wire import CHAT, COMPLETIONS, USER, LeavingClient, post
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE

Lines = Callable[[], list[dict[str, Any]]]
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
BLOB = base64.b64encode(bytes(range(256)) * 8).decode()


@pytest.fixture
def log() -> Iterator[Lines]:
    """The lines that were written, as JSON, at every level."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(as_json=True))
    ours = logging.getLogger("paraserve")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    ours.removeHandler(handler)
    ours.setLevel(before)


def requests(log: Lines) -> list[dict[str, Any]]:
    return [line for line in log() if line["logger"] == "paraserve.requests"]


@MODES
async def test_one_line_says_what_a_request_was_and_came_to(log: Lines, stream: bool) -> None:
    scripted = engine(reply("<think>ab</think>c", cached_tokens=3))
    async with client(deployment(scripted, openai_force_tool_choice_auto=True)) as http:
        tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
        asked = {"tools": tools, "tool_choice": "required", "stream": stream, "messages": USER}
        response = await http.post(CHAT, json=asked, headers={"x-request-id": "abc"})
    (line,) = requests(log)
    assert response.status_code == 200
    assert line["level"] == "info"
    expected = {"request_id": "abc", "method": "POST", "endpoint": CHAT, "model": "toy", "status": 200}
    expected |= {"finish_reasons": ["stop"], "policies": ["force-tool-choice-auto"]}
    expected |= {"prompt_tokens": line["prompt_tokens"], "completion_tokens": 6, "reasoning_tokens": 4}
    assert line.items() >= {**expected, "cached_tokens": 3}.items()
    assert line.get("stream") is (True if stream else None)
    assert line["reply_id"] in response.text
    assert line["queue_seconds"] >= 0
    assert line["preparation_seconds"] <= line["first_token_seconds"] <= line["seconds"]
    assert line["engine_seconds"] <= line["seconds"]


async def test_what_was_adapted_in_the_prompt_is_named(log: Lines) -> None:
    messages = [{"role": "developer", "content": "be brief"}, *USER]
    async with client(deployment(engine())) as http:
        rendered = (await post(http, "/v1/chat/completions/render", messages=messages)).json()
        response = await post(http, messages=messages)
    assert rendered["normalizations"]
    assert response.headers["x-paraserve-normalizations"] == ", ".join(rendered["normalizations"])
    assert requests(log)[-1]["normalizations"] == rendered["normalizations"]


@MODES
async def test_failures_are_warnings_that_name_their_code(log: Lines, stream: bool) -> None:
    down = EngineError(502, "engine_unreachable", "The engine cannot be reached.")
    async with client(deployment(engine(reply("ab", error=down, error_after=1)))) as http:
        await post(http, stream=stream)
        await post(http, max_tokens=-2)
    failed, refused = requests(log)
    assert (failed["level"], failed["status"], failed["error"]) == ("warning", 502, "engine_unreachable")
    assert failed["completion_tokens"] == 1
    assert (refused["level"], refused["status"], refused["error"]) == ("info", 400, "invalid_value")
    assert "completion_tokens" not in refused


async def test_a_client_that_left_is_told_from_a_failure(log: Lines) -> None:
    scripted = engine(reply("abc", hang_after=1))
    leaving = LeavingClient(create_app(deployment(scripted)), CHAT, stream=True, messages=USER)
    await asyncio.wait_for(leaving.got.wait(), PATIENCE)
    await leaving.leave()
    (line,) = requests(log)
    assert (line["level"], line["status"], line["broken_off"]) == ("info", 499, "client_left")
    assert "error" not in line


async def test_probes_are_quiet_and_unknown_paths_are_named(log: Lines) -> None:
    async with client(deployment(engine())) as http:
        for path in ("/health", "/health_generate", "/metrics", "/nowhere%0AGET"):
            await http.get(path)
    levels = {line["endpoint"]: line["level"] for line in requests(log)}
    quiet = dict.fromkeys(("/health", "/health_generate", "/metrics"), "debug")
    assert levels == {**quiet, "other": "info"}
    assert requests(log)[-1]["path"] == "/nowhere\nGET"


async def test_every_line_that_a_request_causes_has_its_id(log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    served = deployment(engine())
    monkeypatch.setattr(type(served.constraints), "asked", lambda *_: 1 / 0)
    async with client(served) as http:
        await http.post(CHAT, json={"messages": USER}, headers={"x-request-id": "abc"})
    ours = {line["logger"]: line["request_id"] for line in log() if "request_id" in line}
    assert ours.items() >= {"paraserve.requests": "abc", "paraserve.api.last_answers": "abc"}.items()


async def test_off_is_off(log: Lines) -> None:
    async with client(deployment(engine(), log_requests="off")) as http:
        await post(http)
    assert requests(log) == []


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_metadata_shows_nothing_of_what_was_said(log: Lines, path: str) -> None:
    said = {"messages": [{"role": "user", "content": "my secret wish"}]} if path == CHAT else {"prompt": "secret wish"}
    async with client(deployment(engine(reply("granted")))) as http:
        await post(http, path, temperature=0.123, **said)
    shown = json.dumps(requests(log))
    assert "wish" not in shown
    assert "granted" not in shown
    assert "0.123" not in shown


async def test_parameters_show_how_and_not_what(log: Lines) -> None:
    async with client(deployment(engine(), log_requests="parameters")) as http:
        await post(http, temperature=0.5, unknown_field={"a": "b" * 500}, api_key="hush")
        await http.post(CHAT, content=b"{not json")
    first, second = requests(log)
    assert first["parameters"]["messages"] == 1
    assert first["parameters"]["temperature"] == 0.5
    assert first["parameters"]["api_key"] == "[redacted]"
    assert len(first["parameters"]["unknown_field"]) < 250
    assert "hush" not in json.dumps(first)
    assert second["parameters"] == {}
    assert second["status"] == 400


@MODES
async def test_bodies_show_request_and_reply_up_to_the_cap(log: Lines, stream: bool) -> None:
    async with client(deployment(engine(reply("granted")), log_requests="bodies", log_requests_size=2048)) as http:
        await post(http, stream=stream, messages=[{"role": "user", "content": "wish"}])
        await post(http, stream=stream, messages=[{"role": "user", "content": "many words " * 1000}])
        await http.post(CHAT, content=b"{not json")
    small, large, broken = requests(log)
    assert "wish" in small["body"]
    assert "chat.completion" in small["reply"]
    assert len(large["body"]) < 2048 + 40
    assert large["body"].endswith("bytes in all)")
    assert broken["body"] == "{not json"
    assert "invalid" in broken["reply"]


@pytest.mark.parametrize("detail", ["metadata", "parameters", "bodies"])
async def test_no_key_gets_into_the_log(log: Lines, detail: str) -> None:
    served = deployment(engine(), api_key=("sesame-street",), log_requests=detail)
    async with client(served) as http:
        for header in ("Bearer sesame-street", "Bearer wrong-street", "Basic c2VzYW1l"):
            headers = {"authorization": header, "cookie": "crumb-street", "x-api-key": "other-street"}
            await http.post(CHAT, json={"messages": USER}, headers=headers)
            await http.get("/v1/models?api_key=query-street", headers=headers)
            await http.get("/nowhere?api_key=query-street", headers=headers)
    assert len(requests(log)) == 9
    shown = json.dumps(log())
    assert "street" not in shown
    assert "c2VzYW1l" not in shown


@pytest.mark.parametrize("spelled", [lambda b: b, lambda b: b.replace("/", "\\/"), lambda b: b.replace("+", "\\u002B")])
@pytest.mark.parametrize("before", ["data:image/png;base64,", ""])
def test_media_are_shown_as_their_length(before: str, spelled: Callable[[str], str]) -> None:
    body = f'{{"url": "{before}{spelled(BLOB)}", "text": "and so on"}}'
    shown = shortened(body.encode(), 10_000)
    assert len(shown) < 150
    assert "characters)" in shown
    assert shown.endswith('"text": "and so on"}')


@pytest.mark.parametrize(
    "url", ["data:image/svg+xml,%3Csvg%20" + "%20" * 200, "data:text/plain;charset=utf-8," + "é" * 200]
)
def test_data_urls_of_any_encoding_are_shown_as_their_length(url: str) -> None:
    assert len(shortened(json.dumps({"url": url}, ensure_ascii=False).encode(), 10_000)) < 100


@pytest.mark.parametrize("text", ["Hallo Welt, " * 50, "日本語" * 200, json.dumps("日本語" * 200), "{}" * 500])
def test_text_is_shown_as_it_is(text: str) -> None:
    assert shortened(text.encode(), 10_000) == text


@pytest.mark.parametrize("unit", [b"a" * 255 + b"!", b"data:", b'"', b"\\u002", b"A", b'"api_key":"', b"\\/"])
def test_what_a_body_costs_the_log_is_bounded(unit: bytes) -> None:
    """Nothing behind the window is looked at, and what is looked at, at once (this would not end)."""
    body, rest = unit * (2**17 // len(unit) + 1), b'"secret": ' * 2**19
    shown, _, told = shortened(body + rest, 1000).rpartition("(")
    assert len(shown) <= 1003
    assert told == f"{len(body + rest)} bytes in all)"
    assert shown == shortened(body + b"x" * len(rest), 1000).rpartition("(")[0]


def test_parameters_of_what_is_no_object_are_empty() -> None:
    assert parameters(b"[1]") == parameters(b"") == parameters(b"\xff") == {}


def test_every_field_of_the_line_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
    section = page[page.index("## Logs") : page.index("## Metrics")]
    source = inspect.getsource(line_of) + inspect.getsource(_reply_fields)
    fields = re.findall(r'^        "(\w+)":', source, re.MULTILINE)
    assert len(fields) > 20
    assert [name for name in fields if f"`{name}`" not in section and f'"{name}"' not in section] == []


async def test_a_request_that_cannot_be_counted_leaves_its_line(log: Lines) -> None:
    """The scripted engine's words are ours; those of others are checked before they come as far."""
    async with client(deployment(engine(reply("x", cached_tokens=-(2**70))))) as http:
        await post(http)
    assert len(requests(log)) == 1
