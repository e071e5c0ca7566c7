"""Turns that templates refuse one behind the other, and thoughts as other servers spell them."""

from typing import Any

import pytest

from paraserve.protocol.chat import check_chat
from paraserve.protocol.errors import RequestError
from tests.prompt.own_templates import LISTS, PLAIN
from tests.prompt.real_templates import real_prompts
from tests.prompt.requests import asked
from tests.prompt.test_tool_results import TOOLS, calls, result

USER = {"role": "user", "content": "hi"}
NEXT = {"role": "user", "content": "NEXT"}
EMPTY = ["", None, []]
ALTERNATES = """
{%- set ns = namespace(n=0) -%}
{%- for m in messages -%}
{%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
{%- if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('alternate') }}{% endif -%}
{%- set ns.n = ns.n + 1 -%}
{%- endif -%}
{%- if m.role == 'assistant' and not m.content and not m.tool_calls %}{{ raise_exception('empty') }}{% endif -%}
[{{ m.role }}]
{%- if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif -%}
{%- for c in m.tool_calls or [] %}<{{ c.function.arguments }}>{% endfor -%}
{%- endfor -%}
"""


@pytest.mark.parametrize("nothing", EMPTY)
def test_a_turn_in_which_nothing_is_said_is_left_out_where_the_template_refuses_it(make_prompt, nothing):
    empty = {"role": "assistant", "content": nothing}
    prepared = make_prompt(ALTERNATES).prepare(asked([USER, empty, NEXT]))
    assert prepared.text == "[user]hi\n\nNEXT"
    assert {"dropped_empty_turn", "merged_users"} <= set(prepared.normalizations)
    kept = make_prompt(LISTS).prepare(asked([USER, empty, NEXT]))
    assert kept.text == "[user]hi\n[assistant]\n[user]NEXT\n[assistant]"


def test_a_users_message_behind_results_gets_an_empty_turn_between_where_the_template_wants_one(make_prompt):
    prepared = make_prompt(ALTERNATES).prepare(asked([USER, calls("aaa"), result(0), NEXT]))
    assert prepared.text.endswith("[tool]RESULT0[assistant][user]NEXT")
    assert prepared.normalizations == ("added_empty_turn",)
    assert make_prompt(LISTS).prepare(asked([USER, calls("aaa"), result(0), NEXT])).normalizations == ()


def test_users_messages_side_by_side_are_joined_whatever_they_hold(make_prompt):
    listed = {"role": "user", "content": [{"type": "text", "text": "PART"}]}
    prepared = make_prompt(ALTERNATES).prepare(asked([USER, listed, NEXT]))
    assert prepared.text == "[user]hi\n\nPART\n\nNEXT"


def test_turns_that_say_nothing_and_users_behind_results_on_every_template(shared_assets):
    for path, prompt in real_prompts(shared_assets).items():
        tools = TOOLS if prompt.capabilities["default"].tools else None
        for nothing in EMPTY:
            empty: dict[str, Any] = {"role": "assistant", "content": nothing}
            for messages in ([USER, empty, NEXT], [USER, NEXT, empty]):
                assert "NEXT" in prompt.prepare(asked(messages, tools)).text, path.stem
            if prompt.capabilities["default"].results:
                turn = [USER, calls("aaa"), result(0)]
                for messages in ([*turn, NEXT], [*turn, empty, NEXT]):
                    text = prompt.prepare(asked(messages, TOOLS)).text
                    assert text.index("RESULT0") < text.index("NEXT"), path.stem


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "THOUGHT"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "THO"}, {"type": "text", "text": "UGHT"}]},
        {"type": "thinking", "thinking": [{"type": "text", "text": "THOUGHT"}], "closed": True},
        {"type": "reasoning", "text": "THOUGHT"},
        {"type": "reasoning", "reasoning": "THOUGHT"},
    ],
)
def test_parts_that_hold_a_thought_are_reasoning(make_prompt, part):
    answer = {"role": "assistant", "content": [part, {"type": "text", "text": "ANSWER"}]}
    request = check_chat(asked([USER, answer, NEXT]))
    assert "<think>THOUGHT</think>" in make_prompt(LISTS).prepare(request).text
    assert "THOUGHT" not in make_prompt(PLAIN).prepare(request).text


@pytest.mark.parametrize("thought", [5, [5], [{"type": "text"}], None])
def test_a_part_that_holds_no_thought_is_refused_by_its_place(thought):
    answer = {"role": "assistant", "content": [{"type": "thinking", "thinking": thought}]}
    with pytest.raises(RequestError) as caught:
        check_chat(asked([USER, answer]))
    assert caught.value.param == "messages[1].content[0].thinking"


THINKING_PARTS = """{%- for m in messages %}[{{ m.role }}]{%- if m.content is string %}{{ m.content }}{% else %}
{%- for p in m.content %}{%- if p.type == 'thinking' %}<{{ p.thinking }}>{% else %}{{ p.text }}{% endif %}{%- endfor %}
{%- endif %}
{% endfor %}{%- if add_generation_prompt %}[assistant]{% endif %}"""


@pytest.mark.parametrize("content", ["Paris.", [{"type": "text", "text": "Paris."}], "", None], ids=str)
def test_thoughts_that_a_template_shows_as_a_part_stand_before_all_that_was_said(
    make_prompt: Any, content: Any
) -> None:
    answer = {"role": "assistant", "content": content, "reasoning_content": "Hm."}
    prepared = make_prompt(THINKING_PARTS).prepare(asked([USER, answer, USER]))
    said = "Paris." if content else ""
    assert f"[assistant]<Hm.>{said}[user]" in prepared.text
    assert "reasoning_parts" in prepared.normalizations
