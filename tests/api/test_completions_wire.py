"""Text completions at the wire."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.engines.scripted.engine import ScriptedReply
from tests.api.wire import COMPLETIONS, chunks, post
from tests.toy import TOKENIZER, ByteTokenizer, client, deployment, engine, reply


def joined(parts: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    choices: dict[int, dict[str, Any]] = {}
    for part in parts:
        for choice in part["choices"]:
            whole = choices.setdefault(choice["index"], {"text": "", "logprobs": None})
            whole["text"] += choice["text"]
            if choice["logprobs"] is not None:
                whole["logprobs"] = whole["logprobs"] or {key: [] for key in choice["logprobs"]}
                for key, values in choice["logprobs"].items():
                    whole["logprobs"][key] += values
            if choice["finish_reason"] is not None:
                whole["finish_reason"] = choice["finish_reason"]
                whole["matched_stop"] = choice["matched_stop"]
    return choices


def whole_choices(body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {choice.pop("index"): choice for choice in body["choices"]}


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("aü", ["aü"]),
        (["aü", "b"], ["aü", "b"]),
        ([97, 98], ["ab"]),
        ([[97], [98, 99]], ["a", "bc"]),
    ],
)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 1])
@pytest.mark.parametrize("max_tokens", [0, 3])
async def test_every_prompt_form_gives_its_choices_in_order_in_both_modes(
    prompt: Any, texts: list[str], n: int, echo: bool, logprobs: int | None, max_tokens: int
) -> None:
    if max_tokens == 0 and not echo:
        return
    fields = {"prompt": prompt, "n": n, "echo": echo, "logprobs": logprobs, "max_tokens": max_tokens}
    async with client(deployment(engine(reply("xyzzy")))) as http:
        response = await post(http, COMPLETIONS, **fields)
        assert response.status_code == 200, response.text
        body = response.json()
        parts = chunks((await post(http, COMPLETIONS, stream=True, **fields)).text)
    said = "xyz"[:max_tokens]
    assert [choice["text"] for choice in body["choices"]] == [
        (text if echo else "") + said for text in texts for _ in range(n)
    ]
    assert [choice["index"] for choice in body["choices"]] == list(range(len(texts) * n))
    assert body["usage"]["prompt_tokens"] == sum(len(text.encode()) for text in texts)
    assert body["usage"]["completion_tokens"] == max_tokens * len(texts) * n
    for choice in body["choices"]:
        assert choice["finish_reason"] == "length"
        if logprobs is None:
            assert choice["logprobs"] is None
        else:
            check_logprobs(choice, echoed=echo)
    assert joined(parts) == whole_choices(body)


def check_logprobs(choice: dict[str, Any], *, echoed: bool) -> None:
    scored = choice["logprobs"]
    assert "".join(scored["tokens"]) == choice["text"]
    assert len({len(values) for values in scored.values()}) == 1
    offsets = scored["text_offset"]
    assert [
        choice["text"][at : at + len(token)] for at, token in zip(offsets, scored["tokens"], strict=True)
    ] == scored["tokens"]
    assert offsets == sorted(offsets)
    assert (scored["token_logprobs"][0] is None) == echoed
    assert all(value is not None for value in scored["token_logprobs"][1:])


async def test_offsets_rise_from_zero_and_tokens_are_not_piled_up() -> None:
    async with client(deployment(engine(reply(" apples")))) as http:
        body = (await post(http, COMPLETIONS, prompt="\n1. A has 20", echo=True, logprobs=1)).json()
    choice = body["choices"][0]
    assert choice["text"] == "\n1. A has 20 apples"
    assert choice["logprobs"]["text_offset"][:3] == [0, 1, 2]
    check_logprobs(choice, echoed=True)


async def test_the_default_limit_is_sixteen_tokens() -> None:
    async with client(deployment(engine(reply("x" * 40)))) as http:
        assert (await post(http, COMPLETIONS)).json()["usage"]["completion_tokens"] == 16


async def test_call_and_reasoning_markup_is_text_but_reasoning_is_counted() -> None:
    text = "<think>ab</think><tool_call>x</tool_call>"
    async with client(deployment(engine(reply(text)))) as http:
        body = (await post(http, COMPLETIONS, max_tokens=100)).json()
        assert body["choices"][0]["text"] == text
        assert body["usage"]["reasoning_tokens"] == 4
        opened = (await post(http, COMPLETIONS, prompt="Q<think>", max_tokens=100)).json()
    assert opened["usage"]["reasoning_tokens"] >= 3


async def test_an_empty_prompt_starts_from_bos_or_is_a_400() -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, COMPLETIONS, prompt="")
        assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt")
    tokenizer = ByteTokenizer(bos="<|user|>")
    scripted = engine()
    async with client(deployment(scripted, tokenizer=tokenizer)) as http:
        response = await post(http, COMPLETIONS, prompt="", echo=True)
    assert response.status_code == 200
    assert list(scripted.requests[0].token_ids) == [TOKENIZER.added_tokens["<|user|>"]]
    assert response.json()["choices"][0]["text"] == "Hello."


@pytest.mark.parametrize("prompt", [[99999], [[1], [99999]]])
async def test_ids_outside_the_vocabulary_never_reach_the_engine(prompt: Any) -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        response = await post(http, COMPLETIONS, prompt=prompt)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "prompt"
    assert scripted.requests == []


async def test_scores_of_a_prompt_are_refused_where_the_engine_has_none() -> None:
    async with client(deployment(engine(prompt_logprobs=False))) as http:
        response = await post(http, COMPLETIONS, echo=True, logprobs=1)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "logprobs")


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("Hello", {"stop": "llo"}, "He"),
        ("Hello", {"stop": "lo"}, "Hel"),
        ("aü", {"max_tokens": 2}, "a\ufffd"),
        ("üx", {"max_tokens": 3}, "üx"),
    ],
)
@pytest.mark.parametrize("echo", [False, True])
async def test_scored_tokens_always_join_to_the_text(
    text: str, fields: dict[str, Any], expected: str, echo: bool
) -> None:
    async with client(deployment(engine(reply(text)))) as http:
        asked = {"prompt": "pü", "logprobs": 1, "echo": echo, **fields}
        body = (await post(http, COMPLETIONS, **asked)).json()
        parts = chunks((await post(http, COMPLETIONS, stream=True, **asked)).text)
    assert body["choices"][0]["text"] == ("pü" if echo else "") + expected
    check_logprobs(body["choices"][0], echoed=echo)
    assert joined(parts) == whole_choices(body)


@pytest.mark.parametrize("prompt", ["<|user|>hi<|assistant|>", "<think>", "a<|end|>b", "<|user|>", "\u00fc<|end|>"])
@pytest.mark.parametrize("bos", [None, "<|user|>"])
@pytest.mark.parametrize("fields", [{}, {"logprobs": 0}, {"skip_special_tokens": False}])
async def test_a_text_is_echoed_as_it_was_sent(prompt: str, bos: str | None, fields: dict[str, Any]) -> None:
    if bos is not None and prompt.startswith(bos):
        return
    async with client(deployment(engine(reply("xyz")), tokenizer=ByteTokenizer(bos=bos))) as http:
        asked = {"prompt": prompt, "echo": True, "max_tokens": 3, **fields}
        body = (await post(http, COMPLETIONS, **asked)).json()
        parts = chunks((await post(http, COMPLETIONS, stream=True, **asked)).text)
    assert body["choices"][0]["text"] == prompt + "xyz"
    assert joined(parts) == whole_choices(body)
    if fields.get("logprobs") is not None:
        check_logprobs(joined(parts)[0], echoed=True)


class UnevenTokenizer(ByteTokenizer):
    """Id 1 is a letter and the first byte of another."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"a\xc3" if token_id == 1 else super().token_bytes(token_id)


@pytest.mark.parametrize(
    ("token_ids", "max_tokens", "expected"),
    [
        ([1, 0xBC, 98], 1, ["a\ufffd"]),
        ([1, 0xBC, 98], 2, ["a", "ü"]),
        ([98, 1, 98, 1], 4, ["b", "a", "\ufffdb", "a\ufffd"]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 4])
async def test_a_token_that_ends_inside_a_character_has_the_same_text_in_both_modes(
    token_ids: list[int], max_tokens: int, expected: list[str], chunk: int
) -> None:
    said = ScriptedReply(token_ids=token_ids, chunk_sizes=[chunk])
    async with client(deployment(engine(said), tokenizer=UnevenTokenizer())) as http:
        asked = {"prompt": "p", "logprobs": 1, "max_tokens": max_tokens}
        body = (await post(http, COMPLETIONS, **asked)).json()
        parts = chunks((await post(http, COMPLETIONS, stream=True, **asked)).text)
    assert body["choices"][0]["logprobs"]["tokens"] == expected
    check_logprobs(body["choices"][0], echoed=False)
    assert joined(parts) == whole_choices(body)


@pytest.mark.parametrize("prompt", ["a<answer>", "a<think>b</think>\n<answer>\n"])
async def test_a_prompt_that_opened_the_answer_is_constrained_within_it(prompt: str) -> None:
    """As in chat, where a template or a prefill has opened it: the marker is not written again, nor reasoning."""
    scripted = engine()
    served = deployment(scripted, reasoning_parser="hunyuan_a13b", tool_call_parser="hunyuan_a13b")
    async with client(served) as http:
        for sent in (prompt, "a"):
            fields = {"prompt": sent, "response_format": {"type": "json_object"}}
            assert (await post(http, COMPLETIONS, **fields)).status_code == 200
    within, before = scripted.requests
    assert within.constraint is not None
    assert before.constraint is not None
    assert (within.in_reasoning, before.in_reasoning) == (False, True)
    assert "<answer>" in str(before.constraint.value)
    assert "\n<answer>" not in str(within.constraint.value)
    assert within.constraint.value != before.constraint.value


async def test_each_prompt_is_constrained_from_where_it_leaves_the_model() -> None:
    scripted = engine()
    fields = {"prompt": ["a</think>", "b<think>"], "response_format": {"type": "json_object"}}
    async with client(deployment(scripted)) as http:
        assert (await post(http, COMPLETIONS, **fields)).status_code == 200
    closed, opened = (request.constraint for request in scripted.requests)
    assert closed is not None
    assert opened is not None
    assert not closed.covers_reasoning
    assert opened.covers_reasoning
    assert closed.value != opened.value


@pytest.mark.parametrize("body", [{"prompt": "x" * 40_000, "n": 128}, {"prompt": ["x" * 40_000] * 128}])
async def test_the_prompts_of_all_choices_together_are_bounded(body: dict[str, Any]) -> None:
    async with client(deployment(engine(context_length=100_000))) as http:
        refused = await http.post(COMPLETIONS, json=body | {"max_tokens": 1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
        assert str(128 * 40_000) in refused.text
        single = await http.post(COMPLETIONS, json={"prompt": "x" * 40_000, "max_tokens": 1})
        assert single.status_code == 200
