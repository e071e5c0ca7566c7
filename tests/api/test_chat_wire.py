"""Chat completions at the wire: the exact bytes, and a stream that folds to the response."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.wire import CHAT, chunks, folded, frames, post, unfolded
from tests.toy import TOKENIZER, client, deployment, engine, reply

SHELVES = {
    "type": "function",
    "function": {
        "name": "list_shelves",
        "parameters": {"type": "object", "properties": {"room": {"type": "string"}, "n": {"type": "integer"}}},
    },
}
CALL = '<tool_call>\n{"name": "list_shelves", "arguments": {"room": "a \\"b\\" ü", "n": 1}}\n</tool_call>'
OTHER = '\n<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>'


async def both(text: str | list[str], served: dict[str, Any] | None = None, **fields: Any):
    """The whole response, and the chunks of the stream, of the same scripted replies."""
    texts = [text] if isinstance(text, str) else text
    results = []
    for stream in (False, True):
        async with client(deployment(engine(*map(reply, texts)), **(served or {}))) as http:
            response = await post(http, stream=stream, **fields)
        assert response.status_code == 200, response.text
        results.append(response)
    return results[0].json(), chunks(results[1].text)


def without_ids(choices: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {i: {**c, "tool_calls": [{**call, "id": ""} for call in c["tool_calls"]]} for i, c in choices.items()}


async def test_a_whole_response_has_openais_shape_and_right_counts() -> None:
    body, _ = await both("Hi ü.")
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "chat.completion",
        "model": "toy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi ü."},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": TOKENIZER.added_tokens["<|end|>"],
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 7, "total_tokens": 11, "reasoning_tokens": 0},
    }


async def test_a_streams_frames_are_exactly_these() -> None:
    async with client(deployment(engine(reply("ü.")))) as http:
        response = await post(http, stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    payloads = frames(response.text)
    first = json.loads(payloads[0])
    head = f'{{"id":"{first["id"]}","object":"chat.completion.chunk","created":{first["created"]},"model":"toy",'
    end = TOKENIZER.added_tokens["<|end|>"]
    assert payloads == [
        head
        + '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}',
        head + '"choices":[{"index":0,"delta":{"content":"ü"},"logprobs":null,"finish_reason":null}]}',
        head + '"choices":[{"index":0,"delta":{"content":"."},"logprobs":null,"finish_reason":null}]}',
        head + f'"choices":[{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"stop","matched_stop":{end}}}]}}',
        "[DONE]",
    ]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Hello there 🌤️", {}),
        ("<think>why\n</think>\n\nbecause", {}),
        ("Use it." + CALL + OTHER, {"tools": [SHELVES]}),
        ("<think>look</think>" + CALL, {"tools": [SHELVES], "tool_choice": "required"}),
        ("Use it." + CALL + OTHER, {"tools": [SHELVES], "parallel_tool_calls": False}),
        ("Use it." + CALL, {"tools": [SHELVES], "tool_choice": "none"}),
        ("Use it." + CALL, {}),
        ("alpha beta gamma delta", {"stop": ["ta ga"]}),
        ("alpha beta", {"max_tokens": 7}),
        ("Use it." + CALL, {"tools": [SHELVES], "max_tokens": 60}),
        ("<think>never done", {"max_tokens": 9}),
        ("<think>never done", {}),
        ("<think>a</think>b" + CALL, {"tools": [SHELVES], "logprobs": True, "top_logprobs": 2}),
    ],
)
async def test_a_stream_folds_to_the_whole_response(text: str, fields: dict[str, Any]) -> None:
    whole, parts = await both(text, stream_options=None, **fields)
    assert without_ids(folded(parts)) == without_ids(unfolded(whole))


async def test_calls_are_parsed_and_their_finish_reason_is_tool_calls() -> None:
    body, _ = await both("Use it." + CALL + OTHER, tools=[SHELVES])
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Use it."
    calls = choice["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"room": 'a "b" ü', "n": 1}, {}]
    assert len({call["id"] for call in calls}) == 2


async def test_content_is_null_only_beside_calls() -> None:
    body, _ = await both(CALL, tools=[SHELVES])
    assert body["choices"][0]["message"]["content"] is None
    body, _ = await both("<think>all the budget</think>", max_tokens=30)
    assert body["choices"][0]["message"]["content"] == ""


@pytest.mark.parametrize(
    ("choice", "finish"),
    [
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "list_shelves"}}, "tool_calls"),
        ("none", "stop"),
    ],
)
async def test_the_finish_reason_is_the_same_for_every_choice_and_mode(choice: Any, finish: str) -> None:
    """Else a client that loops until `stop` never sees that a forced call was one, or only in one of the modes."""
    whole, parts = await both(CALL, tools=[SHELVES], tool_choice=choice)
    assert whole["choices"][0]["finish_reason"] == finish
    assert folded(parts)[0]["finish_reason"] == finish


async def test_a_named_call_says_stop_where_the_operator_wants_openais_word() -> None:
    named = {"type": "function", "function": {"name": "list_shelves"}}
    served = {"named_tool_finish_reason": "stop"}
    whole, parts = await both(CALL, served, tools=[SHELVES], tool_choice=named)
    assert whole["choices"][0]["finish_reason"] == "stop" == folded(parts)[0]["finish_reason"]
    whole, _ = await both(CALL, served, tools=[SHELVES], tool_choice="required")
    assert whole["choices"][0]["finish_reason"] == "tool_calls"


async def test_required_without_a_call_is_told_as_it_is() -> None:
    whole, _ = await both("I cannot do that.", tools=[SHELVES], tool_choice="required")
    assert whole["choices"][0]["finish_reason"] == "stop"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "I cannot do that."}


async def test_a_call_cut_by_the_limit_is_length_and_not_a_call() -> None:
    whole, parts = await both("Use it." + CALL, tools=[SHELVES], max_tokens=60)
    assert whole["choices"][0]["finish_reason"] == "length" == folded(parts)[0]["finish_reason"]


async def test_call_shaped_text_stays_when_calls_are_not_wanted() -> None:
    text = "Use this: " + CALL + " ok"
    whole, _ = await both(text, tools=[SHELVES], tool_choice="none")
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": text}


async def test_tool_choice_none_and_an_empty_list_leave_tools_out_of_the_prompt() -> None:
    prompts = []
    for fields in (
        {},
        {"tools": []},
        {"tools": [], "tool_choice": "none"},
        {"tools": [SHELVES], "tool_choice": "none"},
    ):
        scripted = engine()
        async with client(deployment(scripted)) as http:
            assert (await post(http, **fields)).status_code == 200
        prompts.append(list(scripted.requests[0].token_ids))
    assert all(prompt == prompts[0] for prompt in prompts)


async def test_several_choices_have_their_own_text_and_one_usage() -> None:
    whole, parts = await both(["one", "two two"], n=2, stream_options=None)
    assert {c["message"]["content"] for c in whole["choices"]} == {"one", "two two"}
    assert [c["index"] for c in whole["choices"]] == [0, 1]
    assert whole["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 12,
        "total_tokens": 16,
        "reasoning_tokens": 0,
    }
    assert {c["content"] for c in folded(parts).values()} == {"one", "two two"}


async def test_logprobs_are_the_generated_tokens_once_each_in_both_modes() -> None:
    """Where a parser is on, they would vanish with the markup, or come twice."""
    text = "<think>ä</think>ö" + CALL
    whole, parts = await both(text, tools=[SHELVES], logprobs=True, top_logprobs=2)
    expected = [TOKENIZER.token_bytes(i) for i in TOKENIZER.encode(text + "<|end|>")]
    entries = whole["choices"][0]["logprobs"]["content"]
    assert [bytes(entry["bytes"]) for entry in entries] == expected
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert folded(parts)[0]["logprobs"] == entries


async def test_a_stop_string_is_trimmed_and_named_and_ends_the_engine() -> None:
    scripted = engine(reply("alpha beta gamma delta"))
    async with client(deployment(scripted)) as http:
        body = (await post(http, stop=["beta gamma", "zzz"])).json()
    assert body["choices"][0]["message"]["content"] == "alpha "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["choices"][0]["matched_stop"] == "beta gamma"
    assert body["usage"]["completion_tokens"] == len("alpha beta gamma")
    assert scripted.aborted == [scripted.requests[0].request_id]


async def test_half_a_character_at_the_limit_is_released_once() -> None:
    whole, parts = await both("aü", max_tokens=2)
    assert whole["choices"][0]["message"]["content"] == "a\ufffd" == folded(parts)[0]["content"]


@pytest.mark.parametrize("path", [CHAT])
async def test_reasoning_tokens_are_counted_the_same_in_both_modes(path: str) -> None:
    text = "<think>plan</think>Answer"
    whole, parts = await both(
        text, stream_options={"include_usage": True}, served={"stream_options_without_stream": "ignore"}
    )
    assert whole["usage"]["reasoning_tokens"] == len("plan") + 2
    assert parts[-1]["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 6}


@pytest.mark.parametrize(
    ("kwargs", "text", "tokens"),
    [
        ({"thinking": True}, "plan it out</think>Answer", 12),
        ({"thinking": True}, "plan it out", 12),
        ({"thinking": False}, "Answer", 0),
        ({"thinking": False}, "Use the <think> tag, then </think>.", 0),
    ],
)
async def test_reasoning_is_counted_from_where_the_prompt_left_the_model(
    kwargs: dict[str, Any], text: str, tokens: int
) -> None:
    whole, parts = await both(text, chat_template_kwargs=kwargs)
    assert whole["usage"]["reasoning_tokens"] == tokens
    reasoning = folded(parts)[0]["reasoning_content"]
    assert reasoning == (text.partition("</think>")[0] if kwargs["thinking"] else "")


async def test_reasoning_is_summed_over_choices_and_whole_when_cut() -> None:
    whole, _ = await both(["abc</think>x", "abcdefgh"], n=2, chat_template_kwargs={"thinking": True}, max_tokens=6)
    assert whole["usage"]["reasoning_tokens"] == 4 + 6


SHELF_CALL = '<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>'
GLM_CALL = (
    "<tool_call>list_shelves\n<arg_key>room</arg_key>\n<arg_value>a</arg_value>\n<arg_key>n</arg_key>\n"
    "<arg_value>1</arg_value>\n</tool_call>"
)
GLM = {"reasoning_parser": "glm45", "tool_call_parser": "glm45"}


@pytest.mark.parametrize("stop", ["<arg_key>n", "<arg_value>1", "1</arg_value>", "shelves"])
async def test_a_stop_string_inside_a_call_cuts_it(stop: str) -> None:
    whole, parts = await both(GLM_CALL, GLM, tools=[SHELVES], stop=stop)
    assert whole["choices"][0]["finish_reason"] == "stop" == folded(parts)[0]["finish_reason"]


async def test_a_stop_string_that_closes_calls_ends_the_call() -> None:
    whole, parts = await both(GLM_CALL + GLM_CALL, GLM, tools=[SHELVES], stop="</tool_call>")
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"room": "a", "n": 1}
    assert whole["choices"][0]["finish_reason"] == "tool_calls" == folded(parts)[0]["finish_reason"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_stop_strings_that_sleep_in_reasoning_do_not_depend_on_how_it_was_cut(size: int) -> None:
    """A word of the thought would end the reply before its answer; so would tokens that hold the end of
    reasoning and the beginning of the answer."""
    text = "<think>xQ: plan x</think>an xswer Q: next"
    scripted = engine(reply(text, chunk_sizes=(size,)))
    async with client(deployment(scripted, openai_stop_after_reasoning=True)) as http:
        body = (await post(http, stop=["Q:", "xQ"])).json()
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("xQ: plan x", "an xswer ")
    assert body["choices"][0]["matched_stop"] == "Q:"


async def test_one_call_at_most_without_parallel_calls() -> None:
    whole, _ = await both("Hm." + SHELF_CALL + "\n" + SHELF_CALL + "ok", tools=[SHELVES], parallel_tool_calls=False)
    assert len(whole["choices"][0]["message"]["tool_calls"]) == 1
    assert "tool_call" not in whole["choices"][0]["message"]["content"]
    whole, _ = await both("Hm." + SHELF_CALL + "\n" + SHELF_CALL, tools=[SHELVES], parallel_tool_calls=None)
    assert len(whole["choices"][0]["message"]["tool_calls"]) == 2


async def test_an_undeclared_call_is_content_unless_the_operator_wants_it() -> None:
    other = SHELF_CALL.replace("list_shelves", "unknown")
    whole, _ = await both(other, tools=[SHELVES])
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": other}
    whole, _ = await both(other, {"undeclared_tools": "call"}, tools=[SHELVES])
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "unknown"


@pytest.mark.parametrize(
    ("strictness", "strict", "enforced"),
    [
        ("off", True, False),
        ("requested", True, True),
        ("requested", False, False),
        ("requested", None, False),
        ("always", False, True),
        ("always", None, True),
    ],
)
async def test_the_operator_says_whose_schemas_are_enforced(
    strictness: str, strict: bool | None, enforced: bool
) -> None:
    tool = {**SHELVES, "function": {**SHELVES["function"], "strict": strict}}
    scripted = engine()
    async with client(deployment(scripted, tool_strictness=strictness)) as http:
        await post(http, tools=[tool])
    assert (scripted.requests[0].constraint is not None) == enforced


async def test_special_tokens_are_shown_when_the_client_wants_them() -> None:
    text = "a<|user|>b"
    whole, _ = await both(text)
    assert whole["choices"][0]["message"]["content"] == "ab"
    whole, _ = await both(text, skip_special_tokens=False)
    assert whole["choices"][0]["message"]["content"] == text


async def test_each_choice_has_a_seed_of_its_own() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        await post(http, n=3, seed=2**32 - 1)
        await post(http, n=2)
    assert [request.sampling.seed for request in scripted.requests] == [2**32 - 1, 0, 1, None, None]


async def test_thinking_on_and_off_have_grammars_of_their_own() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        for thinking in (True, False, True):
            kwargs = {"thinking": thinking}
            await post(http, chat_template_kwargs=kwargs, response_format={"type": "json_object"})
    on, off, again = (request.constraint for request in scripted.requests)
    assert on == again != off


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"tools": [SHELVES], "tool_choice": "required"},
        {"ebnf": "root ::= [a]"},
    ],
)
async def test_an_answer_that_has_begun_cannot_be_constrained_from_its_start(fields: dict[str, Any]) -> None:
    served = deployment(engine(), reasoning_parser="qwen3")
    async with client(served) as http:
        for prefill, status in (('{"a":', 400), ("<think>plan</think>", 200), ("<think>pl", 200)):
            messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": prefill}]
            if "ebnf" in fields and prefill == "<think>pl":
                continue  # refused for a reason of its own
            response = await post(http, messages=messages, continue_final_message=True, **fields)
            assert response.status_code == status, (prefill, response.text)
            if status == 400:
                assert response.json()["error"]["param"] == "continue_final_message"


async def test_ids_go_on_counting_over_the_conversation() -> None:
    call = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [call, {**call, "id": "functions.ls:1"}]},
        {"role": "tool", "tool_call_id": "functions.ls:0", "content": "a"},
        {"role": "tool", "tool_call_id": "functions.ls:1", "content": "b"},
    ]
    text = (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>"
    )
    tool = {"type": "function", "function": {"name": "ls"}}
    whole, parts = await both(
        text, {"tool_call_parser": "kimi_k2", "reasoning_parser": "none"}, messages=history, tools=[tool]
    )
    assert whole["choices"][0]["message"]["tool_calls"][0]["id"] == "functions.ls:2"
    assert folded(parts)[0]["tool_calls"][0]["id"] == "functions.ls:2"
