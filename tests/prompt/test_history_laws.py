"""Laws of adapting, over random conversations: nothing is lost, nothing leaks, and what was adapted stays as it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraserve.prompt.capabilities import probe_template
from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.history import HistoryAdapter
from paraserve.prompt.template import ChatTemplate
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer
from tests.prompt.own_templates import LISTS, PLAIN, STRICT
from tests.prompt.requests import asked

TEMPLATES = {"plain": PLAIN, "lists": LISTS, "strict": STRICT}


@st.composite
def conversations(draw):
    """Messages as clients send them, and every text in them: each is one word that occurs once."""
    words: list[str] = []

    def word(kind):
        words.append(f"{kind}{len(words)}x")
        return words[-1]

    def content(kind, *, empty=False):
        forms = ["text", "parts", "typed"] + (["null", "missing", "empty", "none"] if empty else [])
        form = draw(st.sampled_from(forms))
        if form == "text":
            return {"content": word(kind)}
        if form == "parts":
            return {"content": [{"type": "text", "text": word(kind)} for _ in range(draw(st.integers(1, 3)))]}
        if form == "typed":
            mark = {"cache_control": {"type": "ephemeral"}}
            return {"content": [{"type": "input_text", "text": word(kind), **mark}]}
        return {"null": {"content": None}, "missing": {}, "empty": {"content": ""}, "none": {"content": []}}[form]

    def calls(turn):
        made = []
        for number in range(draw(st.integers(0, 3))):
            arguments = {"key": word("arg"), "n": [1, None]}
            spelled = draw(st.sampled_from([arguments, json.dumps(arguments)]))
            function = {"name": "lookup", "arguments": spelled}
            made.append({"id": f"call_{turn}_{number}", "type": "function", "function": function})
        return made

    messages = []
    for _ in range(draw(st.integers(0, 2))):
        messages.append({"role": draw(st.sampled_from(["system", "developer"])), **content("sys")})
    for turn in range(draw(st.integers(1, 4))):
        messages.append({"role": "user", **content("user")})
        made = calls(turn)
        extra = draw(st.sampled_from([{}, {"refusal": None, "name": None, "reasoning_content": None}]))
        given_calls = (
            {"tool_calls": made} if made else draw(st.sampled_from([{}, {"tool_calls": []}, {"tool_calls": None}]))
        )
        messages.append({"role": "assistant", **content("said", empty=True), **given_calls, **extra})
        for call in draw(st.permutations(made)):
            messages.append({"role": "tool", "tool_call_id": call["id"], **content("result", empty=True)})
        if draw(st.booleans()):
            messages.append({"role": draw(st.sampled_from(["system", "developer"])), **content("late")})
    return messages, words


@pytest.fixture(scope="module")
def prompts():
    made = {}
    for name, source in TEMPLATES.items():
        templates = {"default": source}
        made[name] = ChatPrompt(Checkpoint(name, ByteTokenizer(), templates))
    return made


@pytest.mark.parametrize("name", TEMPLATES)
@given(drawn=conversations())
@settings(max_examples=80, deadline=None)
def test_every_word_of_every_message_is_in_the_prompt_once_and_nothing_else_of_ours(prompts, name, drawn):
    messages, words = drawn
    before = json.dumps(messages)
    text = prompts[name].prepare(asked(messages)).text
    assert [word for word in words if text.count(word) != 1] == []
    assert "None" not in text
    assert "'type'" not in text
    assert "ephemeral" not in text
    assert json.dumps(messages) == before


@pytest.mark.parametrize("name", TEMPLATES)
@given(drawn=conversations())
@settings(max_examples=50, deadline=None)
def test_adapted_messages_need_no_adapting(name, drawn):
    adapter = HistoryAdapter(probe_template(ChatTemplate.compile(TEMPLATES[name]), {}))
    adapted, _ = adapter.adapt(drawn[0])
    assert adapter.adapt(adapted) == (adapted, ())
