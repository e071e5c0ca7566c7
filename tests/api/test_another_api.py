"""An endpoint of another API is a decoder into a turn and an encoder of its events: it has its own words for errors,
and everything else is what chat does."""

from __future__ import annotations

import json
from typing import Self

import httpx
import pytest
from starlette.requests import Request

from paraserve.api import app
from paraserve.api.chat import ChatTurn
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.endpoints import ENDPOINTS, Endpoint
from paraserve.engines.base import EngineError
from paraserve.formats.events import ContentDelta
from paraserve.generation.events import ReplyDelta, ReplyEvent
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.errors import RequestError
from tests.toy import client, deployment, engine, reply

SAY = "/say"
GONE = EngineError(502, "engine_unreachable", "The engine is gone.")


def encode(error: RequestError) -> bytes:
    return json.dumps({"oops": error.code}).encode()


class SayEncoder:
    """Text of the reply, as it is or as events."""

    def __init__(self) -> None:
        self._said: list[str] = []

    def take(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyDelta):
            self._said += [part.text for part in event.events if isinstance(part, ContentDelta)]

    def response(self) -> bytes:
        return json.dumps({"said": "".join(self._said)}).encode()

    def encode(self, event: ReplyEvent) -> bytes:
        self._said = []
        self.take(event)
        return b"".join(b"event: said\ndata: %b\n\n" % json.dumps(text).encode() for text in self._said)

    keep_alive = b""

    def begin(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b"event: silence\n\n"

    def failure(self, error: RequestError) -> bytes:
        return b"event: oops\ndata: %b\n\n" % encode(error)


class SayTurn(ChatTurn):
    id_prefix = "say"

    @classmethod
    def read(cls, http: Request, body: bytes) -> Self:
        sent = json.loads(body)
        if "to" not in sent:
            raise RequestError("to: field required", param="to", code="missing_required_parameter")
        messages = [{"role": "user", "content": sent["to"]}]
        return cls(http, ChatCompletionRequest(messages=messages, stream=sent.get("stream")), body)

    def fold(self, shape: ReplyShape) -> Fold:
        return SayEncoder()

    def encoder(self, shape: ReplyShape) -> StreamEncoder:
        return SayEncoder()


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Endpoint("POST", SAY, SayTurn.respond, generates=True, error=encode)
    monkeypatch.setattr(app, "ENDPOINTS", (*ENDPOINTS, row))


async def test_it_answers_whole_and_streamed_from_the_same_events() -> None:
    scripted = engine(reply("<think>Hm.</think>Hi."), reply("Hi."))
    async with client(deployment(scripted)) as http:
        assert (await http.post(SAY, json={"to": "you"})).json() == {"said": "Hi."}
        streamed = await http.post(SAY, json={"to": "you", "stream": True})
    assert streamed.text.endswith('event: said\ndata: "."\n\nevent: silence\n\n')
    assert [asked.request_id.partition("-")[0] for asked in scripted.requests] == ["say", "say"]


@pytest.mark.parametrize(
    ("status", "code", "send"),
    [
        (400, "missing_required_parameter", lambda http: http.post(SAY, json={})),
        (400, "context_length_exceeded", lambda http: http.post(SAY, json={"to": "x" * 5000})),
        (405, "method_not_allowed", lambda http: http.get(SAY)),
        (500, "internal_error", lambda http: http.post(SAY, content=b"{")),
        (502, "engine_unreachable", lambda http: http.post(SAY, json={"to": "you"})),
    ],
)
async def test_a_failure_before_the_head_is_in_its_own_words(status: int, code: str, send: object) -> None:
    async with client(deployment(engine(reply("", error=GONE)))) as http:
        response: httpx.Response = await send(http)  # type: ignore[operator]
    assert (response.status_code, response.json()) == (status, {"oops": code})


async def test_a_refusal_without_a_key_is_in_its_own_words() -> None:
    async with client(deployment(engine(), api_key=("sesame",))) as http:
        response = await http.post(SAY, json={"to": "you"})
    assert (response.status_code, response.json()) == (401, {"oops": "invalid_api_key"})


async def test_a_failure_inside_a_stream_is_in_its_own_words() -> None:
    async with client(deployment(engine(reply("abc", error=GONE, error_after=1)))) as http:
        response = await http.post(SAY, json={"to": "you", "stream": True})
    assert response.status_code == 200
    assert response.text.endswith('event: oops\ndata: {"oops": "engine_unreachable"}\n\n')


async def test_its_requests_are_counted_from_the_start() -> None:
    async with client(deployment(engine())) as http:
        assert f'endpoint="{SAY}"' in (await http.get("/metrics")).text
