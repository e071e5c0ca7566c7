"""Traces: where they begin, what the engine is told, which spans a request leaves, and that none is made unasked."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.middleware import Middleware

from paraserve.api import traced as traced_module
from paraserve.api.app import create_app
from paraserve.api.traced import Traced
from paraserve.engines.base import EngineError
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.observability.tracing import Tracing
from paraserve.settings import ServerSettings, load_settings
from paraserve.settings.declare import ConfigurationError
from tests.api.wire import CHAT, post
from tests.toy import client, deployment, engine, reply

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENDPOINT = "http://127.0.0.1:9/v1/traces"


class Served:
    """The toy with traces kept in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scripted: ScriptedEngine) -> None:
        self.engine = scripted
        self._kept = InMemorySpanExporter()
        tracing = Tracing(SimpleSpanProcessor(self._kept))
        monkeypatch.setattr("paraserve.api.app.traced", lambda _: [Middleware(Traced, tracing=tracing)])
        transport = httpx.ASGITransport(create_app(deployment(scripted)), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://toy")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_leaves_a_span_and_where_its_time_went(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    served = Served(monkeypatch, engine(reply("Hello."), reply("Hello.")))
    async with served.http:
        await post(served.http, stream=stream, n=2)
    root = served.named(f"POST {CHAT}")
    assert sorted(span.name for span in served.spans) == sorted(
        [root.name, "prompt", "queue", "engine", "engine", "first token", "first token"]
    )
    for span in served.spans:
        assert span.context is not None
        assert root.context is not None
        assert span.context.trace_id == root.context.trace_id
        assert root.start_time <= span.start_time <= span.end_time <= root.end_time  # type: ignore[operator]
    found = attributes(root)
    assert (found["http.response.status_code"], found["gen_ai.response.finish_reasons"]) == (200, ("stop", "stop"))
    assert (found["gen_ai.usage.output_tokens"], found["gen_ai.request.model"]) == (14, "toy")


async def test_the_clients_trace_goes_on_to_the_engine_through_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, engine(reply("Hello.")))
    async with served.http as http:
        await http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}, headers={"traceparent": PARENT})
    root = served.named(f"POST {CHAT}")
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == PARENT.split("-")[2]
    assert root.context is not None
    (request,) = served.engine.requests
    told = request.routing.headers["traceparent"]
    assert told == f"00-{PARENT.split('-')[1]}-{root.context.span_id:016x}-01"


async def test_a_trace_that_the_client_does_not_sample_is_handed_on_and_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served(monkeypatch, engine(reply("Hello.")))
    async with served.http as http:
        headers = {"traceparent": PARENT.removesuffix("01") + "00"}
        await http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}, headers=headers)
    assert served.spans == ()
    (request,) = served.engine.requests
    assert request.routing.headers["traceparent"].startswith(PARENT[:36])
    assert request.routing.headers["traceparent"].endswith("-00")


async def test_without_traces_the_clients_context_passes_unchanged() -> None:
    scripted = engine(reply("Hello."))
    transport = httpx.ASGITransport(create_app(deployment(scripted)))
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
        await http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}, headers=headers)
    (request,) = scripted.requests
    assert {name: request.routing.headers[name] for name in headers} == headers


BAD_PARENTS = {
    "no trace": PARENT.replace(PARENT.split("-")[1], "0" * 32),
    "no span": PARENT.replace(PARENT.split("-")[2], "0" * 16),
    "of no version": "ff" + PARENT[2:],
    "longer than its version": PARENT + "-more",
    "in capitals": PARENT.upper(),
    "cut": PARENT[:-3],
    "other words": "hello",
    "none": None,
}


@pytest.mark.parametrize("bad", BAD_PARENTS.values(), ids=BAD_PARENTS)
@pytest.mark.parametrize("traces", [False, True], ids=["passed on", "traced here"])
async def test_a_bad_traceparent_takes_its_tracestate_with_it(
    monkeypatch: pytest.MonkeyPatch, bad: str | None, traces: bool
) -> None:
    headers = {"tracestate": "vendor=1"} | ({} if bad is None else {"traceparent": bad})
    if traces:
        served = Served(monkeypatch, engine(reply("Hello.")))
        http, scripted = served.http, served.engine
    else:
        scripted = engine(reply("Hello."))
        http = client(deployment(scripted))
    async with http:
        answer = await http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}, headers=headers)
    assert answer.status_code == 200
    told = scripted.requests[0].routing.headers
    assert "tracestate" not in told
    assert ("traceparent" in told) == traces
    assert told.get("traceparent") != bad or bad is None


async def test_of_two_traceparents_neither_is_taken_and_tracestates_are_one_list() -> None:
    later = "cc" + PARENT[2:] + "-more"
    scripted = engine(reply("Hello."), reply("Hello."))
    async with client(deployment(scripted)) as http:
        for parents in ([PARENT, PARENT], [later]):
            told = [("traceparent", parent) for parent in parents] + [("tracestate", "a=1"), ("tracestate", "b=2")]
            await http.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}]}, headers=told)
    refused, taken = (request.routing.headers for request in scripted.requests)
    assert not {"traceparent", "tracestate"} & refused.keys()
    assert (taken["traceparent"], taken["tracestate"]) == (later, "a=1,b=2")


@pytest.mark.parametrize(
    ("fields", "failing", "status", "code"),
    [
        ({"temperature": 9}, None, 400, "invalid_value"),
        ({}, EngineError(502, "engine_error", "The engine failed."), 502, "engine_error"),
        ({"stream": True}, EngineError(502, "engine_error", "The engine failed."), 502, "engine_error"),
    ],
)
async def test_a_failure_is_on_the_span(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], failing: EngineError | None, status: int, code: str
) -> None:
    served = Served(monkeypatch, engine(reply("Hello there", error=failing, error_after=2)))
    async with served.http:
        await post(served.http, **fields)
    root = served.named(f"POST {CHAT}")
    assert attributes(root)["http.response.status_code"] == status
    assert attributes(root)["error.type"] == code
    assert root.status.is_ok == (status < 500)
    engines = [span for span in served.spans if span.name == "engine"]
    assert [attributes(span)["error.type"] for span in engines] == ([code] if failing else [])


async def test_no_message_key_or_other_header_is_on_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, engine(reply("a secret reply")))
    async with served.http as http:
        body = {"messages": [{"role": "user", "content": "a secret question"}], "user": "a secret user"}
        await http.post(f"{CHAT}?q=secret", json=body, headers={"authorization": "Bearer secret", "cookie": "secret"})
    assert len(served.spans) > 3
    assert not [span for span in served.spans if "secret" in span.to_json()]


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.server.got.append((self.path, self.rfile.read(length)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_traces_reach_a_collector_when_the_process_ends(collector: http.server.HTTPServer) -> None:
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
    code = (
        "import asyncio\nfrom tests.api.wire import post\nfrom tests.toy import client, deployment, engine\n"
        "async def main():\n"
        f"    async with client(deployment(engine(), otlp_traces_endpoint={endpoint!r})) as http:\n"
        "        assert (await post(http)).status_code == 200\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (path, sent), *_ = collector.got  # type: ignore[attr-defined]
    assert path == "/v1/traces"
    assert b"first token" in sent


def test_nothing_of_opentelemetry_is_loaded_unasked() -> None:
    code = (
        "import sys\nfrom tests.toy import deployment, engine\nfrom paraserve.api.app import create_app\n"
        "create_app(deployment(engine()))\nsys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert traced_module.traced(ServerSettings()) == []


def test_asking_for_traces_without_the_extra_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    load_settings(["--otlp-traces-endpoint", ENDPOINT], {})
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"--otlp-traces-endpoint: .*paraserve\[otel\]"):
        load_settings(["--otlp-traces-endpoint", ENDPOINT], {})
