"""Every way that a key could take into a log line, an error, a metric or a trace, and that none is open.

A key is one in force (given or from a file), or one that is presented and wrong. Each is presented in the header and
stands somewhere else in the same request as well.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import urllib.parse
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.middleware import Middleware

from paraserve.api.app import create_app
from paraserve.api.traced import Traced
from paraserve.engines.base import EngineError
from paraserve.engines.scripted.engine import ScriptedEngine
from paraserve.observability.logs import FIELDS, configure_logging
from paraserve.observability.tracing import Tracing
from paraserve.settings import ServerSettings
from tests.api.wire import CHAT, COMPLETIONS, USER
from tests.pairwise import pairwise
from tests.toy import deployment, engine, reply

GIVEN = "given-correct/horse+battery=="
FILED = 'filed"staple\\of/keys'
GUESS = "guessed-wrong-horse.battery"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STRAY = "sk-proj-0123456789abcdefghij"
"""A key of another service, presented nowhere."""
KEYS = {"given": GIVEN, "filed": FILED, "wrong": GUESS}
DETAILS = ("parameters", "bodies")
FORMS = ("json", "text")


def cases(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Pairs of what is varied: no line of code looks at three of these at once. Keys go by their names."""
    rows = pairwise(*axes.values())
    return pytest.mark.parametrize(tuple(axes), rows)


@pytest.fixture
def key(whose: str) -> str:
    return KEYS[whose]


class Watched:
    """A server of which everything is kept that it writes about itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: Path, scripted: ScriptedEngine, **settings: Any) -> None:
        self.written = io.StringIO()
        self.spans = InMemorySpanExporter()
        tracing = Tracing(SimpleSpanProcessor(self.spans))
        monkeypatch.setattr("paraserve.api.app.traced", lambda _: [Middleware(Traced, tracing=tracing)])
        keys.write_text(f"{FILED}\n")
        served = deployment(scripted, api_key=(GIVEN,), api_key_file=str(keys), log_level="debug", **settings)
        configure_logging(served.settings, self.written)
        transport = httpx.ASGITransport(create_app(served), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://toy")
        self.answers: list[str] = []

    async def send(self, path: str, headers: Any, *, content: bytes | None = None, method: str = "POST") -> int:
        response = await self.http.request(method, path, headers=headers, content=content)
        self.answers += [str(response.headers), response.text if response.status_code >= 400 else ""]
        return response.status_code

    async def everything(self) -> str:
        metrics = (await self.http.get("/metrics")).text
        spans = [span.to_json() for span in self.spans.get_finished_spans()]
        assert '"request"' in self.written.getvalue() or " request " in self.written.getvalue()
        assert spans
        return "\n".join([self.written.getvalue(), *self.answers, metrics, *spans])


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def watched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logging_as_before: None, form: str, detail: str
) -> Watched:
    return Watched(monkeypatch, tmp_path / "keys", engine(), log_format=form, log_requests=detail)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def found(key: str, text: str) -> list[str]:
    """The spellings of a key that a text holds, to a bit more than half of it."""
    escaped = json.dumps(key)[1:-1]
    parts = {key, escaped, json.dumps(escaped)[1:-1], urllib.parse.quote(key), key[: len(key) // 2 + 2]}
    parts |= {base64.b64encode(f"user:{key}".encode()).decode(), key.replace("/", "\\/")}
    return [part for part in parts if part in text]


HEADERS = {
    "bearer": lambda key: bearer(key),
    "lower case": lambda key: {"authorization": f"bearer {key}"},
    "two spaces": lambda key: {"authorization": f"Bearer  {key}"},
    "no scheme": lambda key: {"authorization": key},
    "words behind it": lambda key: {"authorization": f"Bearer {key} again"},
    "basic": lambda key: {"authorization": "Basic " + base64.b64encode(f"user:{key}".encode()).decode()},
    "azure": lambda key: {"api-key": key},
    "anthropic": lambda key: {"x-api-key": key},
    "proxy": lambda key: {"proxy-authorization": f"Bearer {key}"},
    "cookie": lambda key: {"cookie": f"session={key}"},
    "twice": lambda key: [("authorization", f"Bearer {key}"), ("authorization", f"Bearer {key}")],
}


@cases(where=HEADERS, whose=KEYS, form=FORMS, detail=["bodies"])
async def test_no_header_shows_a_key(watched: Watched, key: str, where: str) -> None:
    body = json.dumps({"messages": USER}).encode()
    for path in (CHAT, "/v1/nothing"):
        await watched.send(path, HEADERS[where](key), content=body)
    assert not found(key, await watched.everything())


def _chat(**fields: Any) -> bytes:
    return json.dumps({"messages": USER, "max_tokens": 5, **fields}).encode()


def _says(key: str) -> bytes:
    return _chat(messages=[{"role": "user", "content": f"my key is {key}, keep it"}])


def _tool(key: str) -> bytes:
    return _chat(tools=[{"type": "function", "function": {"name": key, "parameters": {"type": "object"}}}])


BODIES = {
    "a field named like a credential": lambda key: _chat(api_key=key),
    "a list of such": lambda key: _chat(headers={"Authorization": [f"Bearer {key}"]}),
    "an unknown field": lambda key: _chat(whatever={"deep": [key]}),
    "a field's name": lambda key: _chat(**{key: 1}),
    "a name in an object": lambda key: _chat(logit_bias={key: 1}),
    "the user": lambda key: _chat(user=key),
    "the model": lambda key: _chat(model=key),
    "a message": _says,
    "a role": lambda key: _chat(messages=[{"role": key, "content": "x"}]),
    "a tool's name": _tool,
    "a tool choice": lambda key: _chat(tool_choice={"type": "function", "function": {"name": key}}),
    "a stop string": lambda key: _chat(stop=[key]),
    "a schema": lambda key: _chat(
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {key: 1}}}
    ),
    "a wrong type": lambda key: _chat(temperature=key),
    "the end of what is shown": lambda key: _chat(user="x" * (197 - len(key) // 2) + " " + key),
    "no JSON at all": lambda key: f"key={key}&x".encode(),
    "JSON with escaped slashes": lambda key: _chat(user=key).replace(b"/", b"\\/"),
}


@cases(where=BODIES, whose=KEYS, form=FORMS, detail=DETAILS)
async def test_no_body_shows_the_key_that_is_presented_with_it(watched: Watched, key: str, where: str) -> None:
    for path in (CHAT, COMPLETIONS):
        await watched.send(path, bearer(key), content=BODIES[where](key))
    assert not found(key, await watched.everything())


@cases(where=BODIES, form=FORMS, detail=DETAILS)
async def test_no_body_shows_a_key_in_force_that_another_client_presents(watched: Watched, where: str) -> None:
    for key, other in ((GIVEN, FILED), (FILED, GIVEN)):
        await watched.send(CHAT, bearer(other), content=BODIES[where](key))
        assert not found(key, await watched.everything())


@cases(where=BODIES, form=FORMS, detail=DETAILS)
async def test_no_body_shows_what_looks_like_a_key(watched: Watched, where: str) -> None:
    await watched.send(CHAT, bearer(GIVEN), content=BODIES[where](STRAY))
    assert not found(STRAY, await watched.everything())


PLACES = {
    "query": lambda key: (f"{CHAT}?api_key={urllib.parse.quote(key)}", {}),
    "query of no endpoint": lambda key: (f"/v1/nothing?key={urllib.parse.quote(key)}", {}),
    "path of no endpoint": lambda key: (f"/v1/{urllib.parse.quote(key, safe='')}/chat", {}),
    "name of a model": lambda key: (f"/v1/models/{urllib.parse.quote(key, safe='')}", {}),
    "request id": lambda key: (CHAT, {"x-request-id": key}),
    "referer": lambda key: (CHAT, {"referer": f"http://page/?key={key}"}),
    "user agent": lambda key: (CHAT, {"user-agent": key}),
    "trace state": lambda key: (CHAT, {"traceparent": TRACE, "tracestate": f"vendor={key}"}),
    "routing key": lambda key: (CHAT, {"x-smg-routing-key": key}),
}


@cases(where=PLACES, whose=KEYS, method=["GET", "POST"], form=FORMS, detail=["bodies"])
async def test_no_address_and_no_other_header_shows_a_key(watched: Watched, key: str, where: str, method: str) -> None:
    path, headers = PLACES[where](key)
    await watched.send(path, {**bearer(key), **headers}, content=_chat(), method=method)
    assert not found(key, await watched.everything())


@cases(shown=range(1, 40, 3), whose=KEYS, form=FORMS, detail=["bodies"])
async def test_a_body_and_a_reply_that_are_cut_within_a_key_show_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    logging_as_before: None,
    key: str,
    form: str,
    detail: str,
    shown: int,
) -> None:
    scripted = engine(reply(f"It is {key}."))
    settings = {"log_format": form, "log_requests": detail}
    begins = json.dumps({"user": "x"}).index("x")
    watched = Watched(monkeypatch, tmp_path / "keys", scripted, log_requests_size=begins + shown, **settings)
    body = json.dumps({"user": key, "messages": USER}).encode()
    await watched.send(CHAT, bearer(key), content=body)
    assert f"x{key[:4]}"[1:] not in watched.written.getvalue()
    whole = json.dumps({"messages": USER}).encode()
    for stream in (b"true", b"false"):
        await watched.send(CHAT, bearer(key), content=whole[:-1] + b', "stream": ' + stream + b"}")
    assert not found(key, watched.written.getvalue())


class Carried(Exception):
    """A failure that nobody foresaw, with what the client sent in its text."""


@cases(whose=KEYS, form=FORMS, detail=["metadata"])
async def test_no_failure_shows_a_key_in_its_text_or_in_its_causes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    def fails(*_: Any) -> None:
        try:
            raise KeyError(key)
        except KeyError as error:
            warnings.warn(f"seen {key}", UserWarning, stacklevel=1)
            logging.getLogger("some.library").warning("headers: %r", {"Authorization": f"Bearer {key}"})
            raise Carried({"authorization": f"Bearer {key}"}, key.encode()) from error

    monkeypatch.setattr("paraserve.api.chat.decode_chat", fails)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        status = await watched.send(CHAT, bearer(key), content=_chat())
    shown = await watched.everything()
    assert status == (401 if key == GUESS else 500)
    assert ("Carried" in shown) == (key != GUESS)
    assert not found(key, shown)


@cases(after=[0, 2], whose=KEYS, form=FORMS, detail=["bodies"])
async def test_no_refusal_of_the_engine_shows_a_key(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    logging_as_before: None,
    key: str,
    form: str,
    detail: str,
    after: int,
) -> None:
    refusal = EngineError(400, "invalid_value", f"the engine got {key} and Bearer {key}")
    replies = [reply("Hello.", error=refusal, error_after=after) for _ in range(2)]
    watched = Watched(monkeypatch, tmp_path / "keys", engine(*replies), log_format=form, log_requests=detail)
    for stream in (True, False):
        response = await watched.http.post(CHAT, headers=bearer(key), content=_chat(stream=stream))
        watched.answers.append(response.text)
    assert not found(key, await watched.everything())


@cases(form=FORMS)
def test_the_servers_own_keys_are_on_no_line_of_the_start(form: str, logging_as_before: None) -> None:
    stream = io.StringIO()
    configure_logging(ServerSettings(api_key=(GIVEN,), engine_api_key=FILED, log_format=form), stream)
    logging.getLogger("x").warning("got %s", {"given": GIVEN, "engine": FILED}, extra={FIELDS: {"a": [GIVEN, FILED]}})
    assert not found(GIVEN, stream.getvalue())
    assert not found(FILED, stream.getvalue())


@cases(form=FORMS, detail=["metadata"])
async def test_what_a_client_presents_cannot_change_the_words_of_a_line(watched: Watched, form: str) -> None:
    for words in ('"request"', "paraserve.requests", "/v1/chat/completions", '","event":"', "endpoint", "status=401"):
        await watched.send(CHAT, bearer(words), content=_chat())
    lines = [line for line in watched.written.getvalue().splitlines() if "paraserve.requests" in line]
    assert len(lines) == 6
    assert all(CHAT in line and "401" in line and "request" in line for line in lines)
    if form == "json":
        assert {json.loads(line)["endpoint"] for line in lines} == {CHAT}
