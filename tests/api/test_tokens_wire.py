"""Looking at a prompt: tokenize, detokenize, render, server info."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from paraserve.prompt.chat import ChatPrompt, PreparedPrompt
from paraserve.protocol.chat import ChatCompletionRequest
from tests.api.wire import USER, post
from tests.toy import TOKENIZER, client, deployment, engine, reply
from tests.waiting import PATIENCE, until

RENDER = "/v1/chat/completions/render"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
async def test_a_text_is_tokenized_as_completions_do_and_comes_back(path: str) -> None:
    async with client(deployment(engine())) as http:
        body = (await http.post(path, json={"prompt": "aü<think>", "return_token_strs": True})).json()
        back = (await http.post("/detokenize", json={"tokens": body["tokens"]})).json()
    assert body["tokens"] == TOKENIZER.encode("aü<think>")
    assert (body["count"], body["max_model_len"]) == (4, 4096)
    assert body["token_strs"][-1] == "<think>"
    assert back == {"text": "aü<think>", "prompt": "aü<think>"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "none"},
        {"chat_template_kwargs": {"thinking": True}},
        {"messages": [*USER, {"role": "assistant", "content": None}, {"role": "user", "content": "ü"}]},
        {"messages": [*USER, {"role": "assistant", "content": "Well, "}], "continue_final_message": True},
    ],
)
async def test_render_and_tokenize_show_exactly_what_the_engine_gets(fields: dict[str, Any]) -> None:
    scripted = engine()
    body = {"messages": USER, **fields}
    async with client(deployment(scripted)) as http:
        served = (await post(http, **body)).json()
        rendered = (await http.post(RENDER, json=body)).json()
        counted = (await http.post("/tokenize", json={**body, "return_text": True})).json()
    sent = list(scripted.requests[0].token_ids)
    assert rendered["tokens"] == counted["tokens"] == sent
    assert rendered["count"] == counted["count"] == served["usage"]["prompt_tokens"]
    assert rendered["text"] == counted["text"] == TOKENIZER.decode(sent)


async def test_render_says_where_the_reply_starts_and_what_was_adapted() -> None:
    async with client(deployment(engine())) as http:
        thinking = (await http.post(RENDER, json={"messages": USER, "chat_template_kwargs": {"thinking": True}})).json()
        off = (await http.post(RENDER, json={"messages": USER, "chat_template_kwargs": {"thinking": False}})).json()
        plain = (await http.post(RENDER, json={"messages": USER})).json()
        null = [*USER, {"role": "assistant", "content": None, "tool_calls": []}, *USER]
        adapted = (await http.post(RENDER, json={"messages": null})).json()
    assert [r["reply_starts"] for r in (thinking, off, plain)] == ["reasoning", "content", "header"]
    assert plain["normalizations"] == []
    assert adapted["normalizations"]
    assert "None" not in adapted["text"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": USER}, "prompt"),
        ("/tokenize", {"messages": [{"role": "x"}]}, "messages[0].role"),
        ("/tokenize", {"prompt": "a", "model": "other"}, "model"),
        ("/detokenize", {"tokens": [99999]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        (RENDER, {"messages": []}, "messages"),
    ],
)
async def test_wrong_input_is_named(path: str, body: dict[str, Any], param: str) -> None:
    async with client(deployment(engine())) as http:
        response = await http.post(path, json=body)
    assert response.status_code in {400, 404}
    assert response.json()["error"]["param"] == param


async def test_server_info_says_what_was_found_out_and_no_secret() -> None:
    served = deployment(engine(), api_key=("sesame",), model_path="secret/place/toy")
    async with client(served) as http:
        http.headers["authorization"] = "Bearer sesame"
        response = await http.get("/server_info")
    body = response.json()
    assert body["models"] == ["toy"]
    assert body["engine"]["version"] == "scripted"
    assert body["prompt"]["templates"]["default"]["arguments"] == ["object"]
    assert body["prompt"]["tokenizer"] == {
        "class": "ByteTokenizer",
        "backend": None,
        "vocab_size": TOKENIZER.vocab_size,
    }
    assert "sesame" not in response.text
    assert "secret" not in response.text


async def test_a_server_wide_template_default_applies_and_a_request_wins() -> None:
    """Template and parser follow the default, and the request's own word."""
    served = {"chat_template_kwargs": {"thinking": False}}
    async with client(deployment(engine(reply("plan</think>Yes")), **served)) as http:
        silent = (await post(http)).json()["choices"][0]["message"]
        asked = (await post(http, chat_template_kwargs={"thinking": True})).json()["choices"][0]["message"]
    assert silent == {"role": "assistant", "content": "plan</think>Yes"}
    assert asked == {"role": "assistant", "content": "Yes", "reasoning_content": "plan"}


async def test_a_prefilled_thought_decides_where_the_reply_goes() -> None:
    """A closed prefill gives content, an open one reasoning until its end."""
    answers = [("<think>short plan</think>", "The answer is 4"), ("<think>half a pl", "an</think>4")]
    results = []
    for prefill, text in answers:
        messages = [*USER, {"role": "assistant", "content": prefill}]
        async with client(deployment(engine(reply(text)))) as http:
            body = (await post(http, messages=messages, continue_final_message=True)).json()
        results.append(body["choices"][0]["message"])
    assert results == [
        {"role": "assistant", "content": "The answer is 4"},
        {"role": "assistant", "content": "4", "reasoning_content": "an"},
    ]


async def test_a_long_prompt_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is prepared, health is answered: on the event loop, the preparation would wait for that in vain."""
    healthy = threading.Event()
    began: list[bool] = []
    in_time: list[bool] = []
    prepare = ChatPrompt.prepare

    def late(prompt: ChatPrompt, request: ChatCompletionRequest, **options: Any) -> PreparedPrompt:
        began.append(True)
        in_time.append(healthy.wait(PATIENCE))
        return prepare(prompt, request, **options)

    monkeypatch.setattr(ChatPrompt, "prepare", late)
    async with client(deployment(engine(), max_body_size=2**20)) as http:
        long = [{"role": "user", "content": "word " * 200}] * 20
        posted = asyncio.create_task(post(http, messages=long, max_tokens=1))
        await until(lambda: began)
        assert (await http.get("/health")).status_code == 200
        healthy.set()
        await posted
    assert in_time == [True]
