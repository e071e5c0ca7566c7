"""Rounds of calls in several turns through every real template: every text is in the prompt, or its loss is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paraserve.prompt import probes
from paraserve.prompt.chat import ChatPrompt, PromptSettings
from paraserve.prompt.errors import PromptError
from tests.prompt.matrix_cases import TOOLS, parts
from tests.prompt.real_templates import real_prompts
from tests.prompt.requests import asked

NO_CALLS = {
    "gemma3",
    "glm-4-9b-0414.vllm",
    "kimi-k2-instruct.llamacpp",
    "kimi-k2-thinking.llamacpp",
    "smollm2",
    "smollm3",
}
DROP_TEXT = {"gpt-oss", "mistral-7b-v0.3", "mistral-nemo-2407", "mistral-small-3.2-2506", "mistral.vllm-parallel"}


class Conversation:
    """Messages, each text a word of its own."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.words: list[str] = []
        self.beside: list[str] = []
        self._calls = 0

    def word(self, kind: str) -> str:
        self.words.append(f"{kind}{len(self.words)}zq")
        return self.words[-1]

    def user(self) -> "Conversation":
        return self._say("user")

    def answer(self) -> "Conversation":
        return self._say("assistant")

    def _say(self, role: str) -> "Conversation":
        self.messages.append({"role": role, "content": self.word(role)})
        return self

    def round(self, calls: int = 1, *, text: str = "text", results: bool = True) -> "Conversation":
        content: Any = None
        if text != "none":
            self.beside.append(self.word("beside"))
            content = parts(self.beside[-1]) if text == "list" else self.beside[-1]
        made = []
        for _ in range(calls):
            self._calls += 1
            arguments = json.dumps({"city": self.word("city")})
            function = {"name": "get_weather", "arguments": arguments}
            made.append({"id": f"call{self._calls:05}", "type": "function", "function": function})
        self.messages.append({"role": "assistant", "content": content, "tool_calls": made})
        if results:
            for call in made:
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.word("result")})
        return self


CONVERSATIONS: dict[str, Callable[[Conversation], Conversation]] = {
    "one turn, open": lambda c: c.user().round().round(),
    "three rounds": lambda c: c.user().round().round().round(),
    "one turn, answered": lambda c: c.user().round().round().answer().user(),
    "two turns": lambda c: c.user().round().round().answer().user().round().round(),
    "two turns, answered": lambda c: c.user().round().round().answer().user().round().round().answer().user(),
    "parallel": lambda c: c.user().round(2).round(2).answer().user().round(2),
    "text in some rounds": lambda c: c.user().round(text="none").round().answer().user().round().round(text="none"),
    "texts as lists": lambda c: c.user().round(text="list").round(text="list").answer().user().round(text="list"),
    "a turn without calls first": lambda c: c.user().answer().user().round().round().answer().user().round(),
    "calls without results": lambda c: c.user().round().round(results=False),
    "ends with an answer": lambda c: c.user().round().round().answer(),
    "no calls": lambda c: c.user().answer().user().answer().user(),
}


@pytest.fixture(scope="module")
def prompts(shared_assets: Path) -> dict[str, ChatPrompt]:
    return {path.stem: prompt for path, prompt in real_prompts(shared_assets).items()}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_every_text_of_many_rounds_is_in_the_prompt_once_or_its_loss_is_named(name, prompts):
    faults = []
    for template, prompt in prompts.items():
        conversation = CONVERSATIONS[name](Conversation())
        if template in NO_CALLS and conversation.beside:
            with pytest.raises(PromptError, match="does not render tool"):
                prompt.prepare(asked(conversation.messages, TOOLS))
            continue
        prepared = prompt.prepare(asked(conversation.messages, TOOLS))
        wrong = [word for word in conversation.words if prepared.text.count(word) != 1]
        named = "text_not_in_prompt" in prepared.normalizations
        lost = bool(wrong) and template in DROP_TEXT and set(wrong) <= set(conversation.beside)
        if named != lost or (wrong and not lost):
            faults.append((template, wrong, prepared.normalizations))
    assert faults == []


def test_only_templates_with_a_rule_of_their_own_drop_text_beside_calls(prompts):
    dropping = {name for name, prompt in prompts.items() if prompt.capabilities["default"].call_text.endswith("_last")}
    assert dropping == DROP_TEXT


FIRST_ONLY = (
    "{% set seen = namespace(calls=false) %}{% for m in messages %}[{{ m.role }}]"
    "{% if not m.tool_calls or not seen.calls %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}{% set seen.calls = true %}<{{ c.function.arguments }}>{% endfor %}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
)
LAST_ONLY = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role != 'assistant' or not m.tool_calls or loop.index > "
    "messages | length - 3 %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<{{ c.function.arguments }}>{% endfor %}{% endfor %}"
)


def test_text_that_only_the_first_round_shows_becomes_a_message_in_later_ones(make_prompt):
    conversation = CONVERSATIONS["two turns, answered"](Conversation())
    prepared = make_prompt(FIRST_ONLY).prepare(asked(conversation.messages, TOOLS))
    assert [word for word in conversation.words if prepared.text.count(word) != 1] == []
    assert prepared.normalizations == ("separate_text",)
    assert "[assistant]" + conversation.beside[0] + "<" in prepared.text


def test_a_text_said_twice_and_shown_once_is_named_as_lost(make_prompt):
    conversation = CONVERSATIONS["three rounds"](Conversation())
    for message in conversation.messages:
        if "tool_calls" in message:
            message["content"] = "Let me look."
    adapted = make_prompt(LAST_ONLY).prepare(asked(conversation.messages, TOOLS))
    assert adapted.text.count("Let me look.") == 3
    assert "text_not_in_prompt" not in adapted.normalizations
    as_sent = make_prompt(LAST_ONLY, settings=PromptSettings(normalization="off"))
    prepared = as_sent.prepare(asked(conversation.messages, TOOLS))
    assert prepared.text.count("Let me look.") == 1
    assert "text_not_in_prompt" in prepared.normalizations


def test_no_text_of_the_probes_is_a_part_of_another():
    texts = [value for name, value in vars(probes).items() if name.isupper() and isinstance(value, str)]
    assert len(texts) > 12
    assert [(one, other) for one in texts for other in texts if one is not other and one in other] == []
