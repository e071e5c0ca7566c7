"""Tools for a chat template that knows none, said in its messages."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.formats.events import ToolCallDelta, ToolCallStart
from paraserve.formats.families.tool_texts import TOOL_TEXTS
from paraserve.formats.output import parser_for
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.chat import PromptSettings
from paraserve.prompt.errors import PromptError
from paraserve.prompt.tool_text import TextualTools
from tests.prompt.own_templates import PLAIN
from tests.prompt.requests import asked
from tests.prompt.test_tool_results import calls, image, result

CHAT = """
{%- for m in messages %}[{{ m.role }}]{{ m.content }}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""
USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": name, "description": None}} for name in ("aaa", "bbb")]
HERMES = TOOL_TEXTS["hermes"]


def prepare(make_prompt: Any, messages: Any, tools: Any = TOOLS, source: str = CHAT, **options: Any) -> Any:
    return make_prompt(source, tool_text=HERMES, **options).prepare(asked(messages, tools))


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}], None])
def test_tools_are_declared_at_the_end_of_the_system_message(make_prompt, system):
    head = [{"role": "system", "content": system}] if system else []
    prepared = prepare(make_prompt, [*head, USER])
    assert prepared.text.startswith("[system]" + ("Be brief.\n\n# Tools" if system else "# Tools"))
    declared = [json.dumps({"type": "function", "function": {"name": name}}) for name in ("aaa", "bbb")]
    assert "<tools>\n" + "\n".join(declared) + "\n</tools>" in prepared.text
    assert prepared.text.endswith("[user]hi\n[assistant]")
    assert "tools_as_text" in prepared.normalizations
    assert "tools_not_in_prompt" not in prepared.normalizations


def test_calls_and_results_of_the_history_are_said_as_the_model_would_write_and_read_them(make_prompt):
    asks, both = {"role": "user", "content": "so?"}, {**calls("aaa", "bbb"), "content": "both"}
    prepared = prepare(make_prompt, [USER, both, result(1), result(0), asks], None)
    assert prepared.text == (
        "[user]hi\n"
        '[assistant]both\n<tool_call>\n{"name": "aaa", "arguments": {"x": "X0"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "bbb", "arguments": {"x": "X1"}}\n</tool_call>\n'
        "[user]<tool_response>\nRESULT0\n</tool_response>\n<tool_response>\nRESULT1\n</tool_response>\n"
        "[user]so?\n[assistant]"
    )
    assert prepared.normalizations == ("results_in_call_order", "tools_as_text")


def test_a_conversation_without_tools_is_left_as_it_is(make_prompt):
    prepared = prepare(make_prompt, [USER], None)
    assert prepared.text == "[user]hi\n[assistant]"
    assert prepared.normalizations == ()


def test_a_template_that_knows_tools_is_never_overruled(make_prompt):
    prepared = prepare(make_prompt, [USER], source=PLAIN)
    assert prepared.normalizations == ()
    assert "# Tools" not in prepared.text


def test_arguments_that_are_no_object_pass_or_are_refused_as_everywhere(make_prompt):
    broken = calls("aaa")
    broken["tool_calls"][0]["function"]["arguments"] = '{"x": "cut'
    assert '{"arguments": "{\\"x\\": \\"cut"}' in prepare(make_prompt, [USER, broken, result(0)]).text
    with pytest.raises(PromptError) as caught:
        prepare(make_prompt, [USER, broken, result(0)], settings=PromptSettings(lenient_arguments=False))
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"


def test_without_normalization_the_messages_stay_the_clients_own(make_prompt):
    prepared = prepare(make_prompt, [USER], settings=PromptSettings(normalization="off"))
    assert prepared.text == "[user]hi\n[assistant]"
    assert prepared.normalizations == ("tools_not_in_prompt",)


def test_an_image_in_a_result_has_no_place_in_a_template_of_texts(make_prompt):
    with pytest.raises(PromptError) as caught:
        prepare(make_prompt, [USER, calls("aaa"), result(0, [image("0")])], media=frozenset({"image"}))
    assert caught.value.param == "messages[2].content[0]"


@pytest.mark.parametrize("name", TOOL_TEXTS)
@given(
    arguments=st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text())),
    text=st.text(alphabet="ab \n"),
)
def test_what_is_written_of_a_call_is_what_the_format_reads_as_this_call(name, arguments, text):
    function = {"name": "aaa", "arguments": json.dumps(arguments)}
    messages = [USER, {"role": "assistant", "content": text, "tool_calls": [{"id": "c", "function": function}]}]
    said, _ = TextualTools(TOOL_TEXTS[name], TemplateCapabilities(tools=False)).adapt(messages, ())
    format = TOOL_TEXTS[name].format
    parser = parser_for(format)(format, tools=[ToolSpec("aaa", {})], start=ReplyStart.HEADER)
    events = [*parser.feed(said[-1]["content"]), *parser.finish("stop")]
    assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["aaa"]
    assert json.loads("".join(e.arguments for e in events if isinstance(e, ToolCallDelta))) == arguments
