"""A field that asks for thinking, or for none, and has no effect is named."""

import msgspec
import pytest

from paraserve.formats.types import ReplyStart
from paraserve.protocol.chat import decode_chat
from tests.prompt.own_templates import LISTS, PLAIN

OFF = {"type": "disabled"}


def prepare(prompt, **fields):
    return prompt.prepare(decode_chat(msgspec.json.encode({"messages": [{"role": "user", "content": "hi"}]} | fields)))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"enable_thinking": False}, {"enable_thinking_not_used"}),
        ({"thinking": OFF}, {"thinking_not_used"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"thinking_not_used"}),
        ({"thinking": OFF, "chat_template_kwargs": {"enable_thinking": False}}, set()),
        ({"reasoning": {"enabled": False}}, set()),
        ({"reasoning": {"effort": "none"}}, set()),
        ({"reasoning": {"effort": "none", "exclude": True}}, {"reasoning_exclude_not_used"}),
        ({"reasoning": {"max_tokens": 100}}, {"reasoning_max_tokens_not_used"}),
        ({"chat_template_kwargs": {"thinking": False}}, set()),
        ({}, set()),
    ],
)
def test_on_a_template_that_switches(make_prompt, fields, named):
    assert set(prepare(make_prompt(PLAIN), **fields).normalizations) == named


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"reasoning": {"enabled": False}}, {"reasoning_not_used"}),
        ({"reasoning": {"enabled": True}}, {"reasoning_not_used"}),
        ({"reasoning": {"effort": "high"}}, {"reasoning_effort_not_used"}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking_not_used"}),
        ({"chat_template_kwargs": {"thinking": "enabled"}}, set()),
    ],
)
def test_on_a_template_without_a_switch(make_prompt, fields, named):
    assert set(prepare(make_prompt(LISTS), **fields).normalizations) == named


@pytest.mark.parametrize("reasoning", [{"effort": "none"}, {"enabled": False}, {"enable": "false"}])
def test_no_thinking_in_the_words_of_other_apis_is_no_thinking(make_prompt, reasoning):
    assert prepare(make_prompt(PLAIN), reasoning=reasoning).start is ReplyStart.CONTENT
    assert prepare(make_prompt(PLAIN), reasoning={"enabled": True}).start is ReplyStart.REASONING
