"""An emoji that a client cut in two is read on every endpoint that takes text."""

from __future__ import annotations

import json
import logging

import pytest

from tests.api.wire import CHAT, COMPLETIONS
from tests.toy import TOKENIZER, client, deployment, engine, reply

RENDER = "/v1/chat/completions/render"
MESSAGES = '{"messages": [{"role": "user", "content": "cut \\ud83d, whole \\ud83d\\ude00, spelled \\\\ud83d"}]%s}'
PROMPT = '{"prompt": "cut \\ud83d, whole \\ud83d\\ude00, spelled \\\\ud83d"%s}'
READ = "cut \ufffd, whole \U0001f600, spelled \\ud83d"


@pytest.mark.parametrize(("path", "body"), [(CHAT, MESSAGES), (COMPLETIONS, PROMPT)])
@pytest.mark.parametrize("stream", ["", ', "stream": true'])
async def test_half_an_emoji_reaches_the_engine_as_the_replacement_character(path: str, body: str, stream: str) -> None:
    scripted = engine(reply("ok"))
    async with client(deployment(scripted)) as http:
        answer = await http.post(path, content=(body % stream).encode())
    assert answer.status_code == 200, answer.text
    assert READ in TOKENIZER.decode(scripted.requests[0].token_ids)


@pytest.mark.parametrize(("path", "body"), [(RENDER, MESSAGES), ("/tokenize", MESSAGES), ("/tokenize", PROMPT)])
async def test_half_an_emoji_is_shown_as_the_replacement_character(path: str, body: str) -> None:
    async with client(deployment(engine())) as http:
        answer = await http.post(path, content=(body % "").encode())
        assert answer.status_code == 200, answer.text
        tokens = answer.json().get("tokens") or answer.json()["token_ids"]
        back = await http.post("/detokenize", content=json.dumps({"tokens": tokens, "x": "\ud83d"}).encode())
    assert READ in back.json()["text"]


@pytest.mark.parametrize(("path", "body"), [(CHAT, MESSAGES), (COMPLETIONS, PROMPT)])
async def test_half_an_emoji_goes_through_to_the_engine_in_extra_fields(
    path: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="paraserve.api")
    scripted = engine(reply("ok"))
    async with client(deployment(scripted, engine_extra_fields=("note",), engine_fields_from="anyone")) as http:
        answer = await http.post(path, content=(body % ', "note": "\\ud83d", "other": "\\ud83d"').encode())
    assert answer.status_code == 200, answer.text
    assert scripted.requests[0].extras == {"note": "\ufffd"}


async def test_bad_json_beside_half_an_emoji_is_still_bad_json() -> None:
    async with client(deployment(engine())) as http:
        answer = await http.post(CHAT, content=(MESSAGES % ",").encode())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"
