"""Full turns of GLM and Kimi under their policies, with the models' own tokenizers and templates.

The replies are ours, in the models' spelling; streamed and not must fold to the same thing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paraserve.deploy import choose_format, join
from paraserve.engines.base import EngineInfo
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.settings import ServerSettings
from paraserve.tokenizers.checkpoint import Checkpoint, load_checkpoint
from tests.policies.exchange import Exchange, given, send

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "save_note",
            "parameters": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "stars": {"type": "integer"}},
            },
        },
    }
]
BODY = "    if ok:\n        go()  \n"


class Model:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    async def turn(
        self, body: dict[str, Any], text: str, *, flags: str, path: str, stream: bool = False, **sizes: Any
    ) -> Exchange:
        """One request to this model, served under ``path``; the engine says ``text`` and its end token."""
        tokenizer = self.checkpoint.tokenizer
        end = min(self.checkpoint.eos_token_ids)
        reply = ScriptedReply(token_ids=[*tokenizer.encode(text), end])
        info = EngineInfo(
            context_length=sizes.get("context_length", 8192),
            max_prompt_tokens=sizes.get("max_prompt_tokens"),
            vocab_size=tokenizer.vocab_size,
            eos_token_ids=self.checkpoint.eos_token_ids,
            constraints=frozenset({"lark", "structural_tag"}),
        )
        engine = ScriptedEngine([reply], info=info)
        settings = ServerSettings(**given(flags))
        chosen = choose_format(settings, self.checkpoint)
        deployment = join(settings, self.checkpoint, chosen, engine, model_path=Path(path))
        options = {"stream_options": {"include_usage": True}} if stream else {}
        return await send({**body, "stream": stream, **options}, deployment, engine)

    def prompt(self, got: Exchange) -> str:
        return self.checkpoint.tokenizer.decode(got.engine.requests[0].token_ids)

    def count(self, text: str) -> int:
        return len(self.checkpoint.tokenizer.encode(text))


@pytest.fixture(scope="module")
def glm(shared_assets: Path) -> Model:
    return Model(load_checkpoint(shared_assets / "tokenizers" / "glm-4.5"))


@pytest.fixture(scope="module")
def kimi(shared_assets: Path) -> Model:
    template = shared_assets / "templates" / "kimi-k2.6.jinja"
    return Model(load_checkpoint(shared_assets / "tokenizers" / "kimi-k2", chat_template=str(template)))


GLM_THOUGHT = "\n<think>Two notes, then.</think>"
GLM_CALLS = "".join(
    f"\n<tool_call>save_note\n<arg_key>title</arg_key>\n<arg_value> {title} </arg_value>\n<arg_key>body</arg_key>\n"
    f"<arg_value>{BODY}</arg_value>\n<arg_key>stars</arg_key>\n<arg_value> 5 </arg_value>\n</tool_call>"
    for title in ("one", "two")
)
KIMI_CALLS = "<|tool_calls_section_begin|>" + "".join(
    f"<|tool_call_begin|>functions.save_note:{index}<|tool_call_argument_begin|>"
    f"{json.dumps({'title': ' t ', 'body': BODY})}<|tool_call_end|>"
    for index in (1, 2)
)
KIMI_CALLS += "<|tool_calls_section_end|>"
WISH = [{"role": "user", "content": "Save two notes."}]
HISTORY = [
    {"role": "user", "content": "Save a note."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_9f", "type": "function", "function": {"name": "save_note", "arguments": "{}"}}],
    },
    {
        "role": "tool",
        "tool_call_id": "call_9f",
        "content": [{"type": "text", "text": "saved "}, {"type": "text", "text": "1"}],
    },
    *WISH,
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_full_glm_turn_keeps_reasoning_calls_and_every_space(glm: Model, stream: bool) -> None:
    body = {"messages": HISTORY, "tools": TOOLS, "tool_choice": "required"}
    text = f"{GLM_THOUGHT}\nI will.{GLM_CALLS}"
    got = await glm.turn(body, text, flags="--openai-compat para", path="models/GLM-4.5", stream=stream)
    assert got.status == 200
    (choice,) = got.choices
    assert (choice.reasoning, choice.content, choice.finish) == ("Two notes, then.", "I will.", "tool_calls")
    assert [call["name"] for call in choice.calls] == ["save_note", "save_note"]
    assert [json.loads(call["arguments"]) for call in choice.calls] == [
        {"title": f" {title} ", "body": BODY, "stars": 5} for title in ("one", "two")
    ]
    assert len({call["id"] for call in choice.calls}) == 2

    assert got.engine.requests[0].constraint is None
    assert "saved 1" in glm.prompt(got)
    assert got.usage is not None
    assert got.usage["completion_tokens"] == glm.count(text) + 1
    assert got.usage["completion_tokens_details"] == {"reasoning_tokens": glm.count("<think>Two notes, then.</think>")}
    assert "reasoning_tokens" not in got.usage
    assert got.policies is not None
    assert {"glm-compat", "flatten-tool-role-text-content"} <= set(got.policies.split(", "))


async def test_a_glm_turn_that_is_forced_without_the_policy_has_a_grammar(glm: Model) -> None:
    body = {"messages": WISH, "tools": TOOLS, "tool_choice": "required"}
    got = await glm.turn(body, f"{GLM_THOUGHT}{GLM_CALLS}", flags="", path="models/GLM-4.5")
    assert got.engine.requests[0].constraint is not None
    assert got.choices[0].finish == "tool_calls"
    assert got.usage is not None
    assert got.usage["reasoning_tokens"] == got.usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert got.policies is None


@pytest.mark.parametrize(
    "sizes",
    [
        {"context_length": 150},
        {"context_length": 150, "max_prompt_tokens": 145},
        {"context_length": 1000, "max_prompt_tokens": 150},
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_glm_input_that_is_too_long_is_413_with_both_numbers(
    glm: Model, stream: bool, sizes: dict[str, int]
) -> None:
    body = {"messages": [{"role": "user", "content": "word " * 200}]}
    got = await glm.turn(body, "x", flags="--openai-glm-compat", path="models/GLM-4.5", stream=stream, **sizes)
    assert got.engine.requests == []
    assert (got.status, got.streams) == (413, False)
    assert got.error is not None
    assert got.error["code"] == "context_length_exceeded"
    assert f"maximum context length is {sizes['context_length']} tokens" in got.error["message"]
    assert got.policies == "glm-compat"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_full_kimi_turn_has_canonical_ids_and_fixed_values(kimi: Model, stream: bool) -> None:
    flags = "--openai-compat para --openai-kimi-tool-call-ids"
    body = {"messages": HISTORY, "tools": TOOLS, "thinking": {"type": "enabled"}, "n": 2, "top_p": 0.5}
    text = f"Two more.</think>I will.{KIMI_CALLS}"
    got = await kimi.turn(body, text, flags=flags, path="models/Kimi-K2.6", stream=stream)
    assert got.status == 200
    (choice,) = got.choices
    assert (choice.reasoning, choice.content, choice.finish) == ("Two more.", "I will.", "tool_calls")
    assert [call["id"] for call in choice.calls] == ["functions.save_note:1", "functions.save_note:2"]
    assert [json.loads(call["arguments"]) for call in choice.calls] == [{"title": " t ", "body": BODY}] * 2

    (asked,) = got.engine.requests
    assert (asked.sampling.top_p, asked.sampling.max_tokens <= 8192) == (0.95, True)
    prompt = kimi.prompt(got)
    assert prompt.endswith("<think>")
    assert "functions.save_note:0" in prompt
    assert "## Return of functions.save_note:0\nsaved 1" in prompt
    assert "call_9f" not in prompt
    assert got.usage is not None
    assert got.usage["reasoning_tokens"] == kimi.count("Two more.</think>")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_kimi_turn_without_thinking_is_all_content(kimi: Model, stream: bool) -> None:
    body = {"messages": WISH, "thinking": {"type": "disabled"}}
    got = await kimi.turn(body, "Done.", flags="--openai-kimi-compat", path="models/KIMI", stream=stream)
    assert kimi.prompt(got).endswith("</think>")
    (choice,) = got.choices
    assert (choice.reasoning, choice.content) == ("", "Done.")
    assert got.usage is not None
    assert got.usage["reasoning_tokens"] == 0

    off = await kimi.turn(body, "Hm.</think>Done.", flags="", path="models/KIMI", stream=stream)
    assert kimi.prompt(off).endswith("<think>")
    assert off.choices[0].reasoning == "Hm."
