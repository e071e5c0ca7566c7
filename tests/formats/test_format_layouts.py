"""Families whose chat template was not at hand: replies laid out as public parsers, ports and model cards show them.

The texts are our own; what is taken over is where each source puts line breaks, and which markers it leaves out.
"""

import pytest

from paraserve.formats.registry import detect, get_format
from paraserve.formats.types import ReplyStart
from tests.formats.formats_kit import parse_invariant

NOTE = ("save_note", {"title": "x y", "stars": 3})
SHELVES = ("list_shelves", {})

LAYOUTS = {
    # a port of the chat template: values on lines of their own, a block for each call
    "dots, as its template writes it": (
        "dots",
        'Hm.\n</think>\n\nNow.\n<dots_function_call>\n<invoke name="save_note">\n<parameter name="title">\nx y\n'
        '</parameter>\n<parameter name="stars">\n3\n</parameter>\n</invoke>\n</dots_function_call>\n'
        '<dots_function_call>\n<invoke name="list_shelves">\n</invoke>\n</dots_function_call>',
        "Now.",
    ),
    # the tests of SGLang's and vLLM's parsers: values in the line, several calls in one block
    "dots, as the parsers read it": (
        "dots",
        'Hm.</think>Now.<dots_function_call><invoke name="save_note"><parameter name="title">x y</parameter>'
        '<parameter name="stars">3</parameter></invoke><invoke name="list_shelves"></invoke></dots_function_call>',
        "Now.",
    ),
    # both parsers, where the model falls back to JSON
    "dots, in JSON": (
        "dots",
        'Hm.</think>Now.<dots_function_call>\n{"name": "save_note", "parameters": {"title": "x y", "stars": 3}}\n'
        '</dots_function_call>\n<dots_function_call>{"name": "list_shelves", "arguments": {}}</dots_function_call>',
        "Now.",
    ),
    # the model card's output format
    "ernie45, calls": (
        "ernie45",
        'Hm.\n</think>\n\n<tool_call>\n{"name": "save_note", "arguments": {"title": "x y", "stars": 3}}\n</tool_call>\n'
        '<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>\n',
        "",
    ),
    "ernie45, three line breaks": (
        "ernie45",
        'Hm.\n</think>\n\n\n<tool_call>\n{"name": "save_note", "arguments": {"title": "x y", "stars": 3}}\n'
        '</tool_call>\n<tool_call>\n{"name": "list_shelves", "arguments": {}}\n</tool_call>\n',
        "",
    ),
    # SGLang's tests: line breaks and spaces between tags, where the template writes none
    "iquest_q1, loose": (
        "iquest_q1",
        "Hm.</think>Now.<iquest_tool_call>save_note\n<arg_key>title</arg_key><arg_value>x y</arg_value>"
        "<arg_key>stars</arg_key> <arg_value>3</arg_value>\n</iquest_tool_call>"
        "<iquest_tool_call>list_shelves</iquest_tool_call>",
        "Now.",
    ),
    # vLLM's tests: a space before, an array over several lines
    "jamba": (
        "jamba",
        ' <tool_calls>[\n    {"name": "save_note", "arguments": {"title": "x y", "stars": 3}},\n'
        '    {"name": "list_shelves", "arguments": {}}\n]</tool_calls>',
        "",
    ),
    # the model card: calls follow each other directly
    "longcat": (
        "longcat",
        'Now.<longcat_tool_call>\n{"name": "save_note", "arguments": {"title": "x y", "stars": 3}}\n'
        '</longcat_tool_call><longcat_tool_call>\n{"name": "list_shelves", "arguments": {}}\n</longcat_tool_call>',
        "Now.",
    ),
    # a trajectory that the maintainers published
    "longcat2": (
        "longcat2",
        "Hm.\n</longcat_think>\n<longcat_tool_call>save_note\n<longcat_arg_key>title</longcat_arg_key>\n"
        "<longcat_arg_value>x y</longcat_arg_value>\n<longcat_arg_key>stars</longcat_arg_key>\n"
        "<longcat_arg_value>3</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>list_shelves\n"
        "</longcat_tool_call>\n",
        "",
    ),
    # recorded in an engine that reads the family's template
    "k2_horizon": (
        "k2_horizon",
        "Hm.</ifm|think_fast>\n<ifm|tool_calls>\n<ifm|tool_call>save_note\n<ifm|arg_key>title</ifm|arg_key>\n"
        "<ifm|arg_value>x y</ifm|arg_value>\n<ifm|arg_key>stars</ifm|arg_key>\n<ifm|arg_value>3</ifm|arg_value>\n"
        "</ifm|tool_call>\n<ifm|tool_call>list_shelves\n</ifm|tool_call>\n</ifm|tool_calls>",
        "",
    ),
    # SGLang's and vLLM's tests: no line breaks, and the two other spellings that the template can be asked for
    "k2_horizon, typed": (
        "k2_horizon",
        "Hm.</ifm|think>Now.<ifm|tool_calls><ifm|tool_call>save_note<ifm|arg_key>title</ifm|arg_key>"
        "<ifm|arg_type>string</ifm|arg_type><ifm|arg_value>x y</ifm|arg_value><ifm|arg_key>stars</ifm|arg_key>"
        "<ifm|arg_type>integer</ifm|arg_type><ifm|arg_value>3</ifm|arg_value></ifm|tool_call>"
        "<ifm|tool_call>list_shelves</ifm|tool_call></ifm|tool_calls>",
        "Now.",
    ),
    "k2_horizon, in JSON": (
        "k2_horizon",
        'Hm.</ifm|think_faster>\nNow.<ifm|tool_calls>\n<ifm|tool_call>{"name": "save_note", "arguments": '
        '{"title": "x y", "stars": 3}}</ifm|tool_call><ifm|tool_call>{"name": "list_shelves", "arguments": {}}'
        "</ifm|tool_call></ifm|tool_calls>",
        "Now.",
    ),
    # the chat template of GigaChat3, with the end token that vLLM's tests show
    "gigachat3": (
        "gigachat3",
        'Now.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "save_note", "arguments": {"title": "x y", '
        '"stars": 3}}<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "list_shelves", "arguments": {}}'
        "<|message_sep|>\n\n",
        "Now.",
    ),
    # vLLM's and SGLang's parsers: content that a separator ends or not
    "gigachat31": (
        "gigachat31",
        'Now.<|message_sep|><|function_call|>{"name": "save_note", "arguments": {"title": "x y", "stars": 3}}'
        '<|function_call|>{"name": "list_shelves", "arguments": {}}<|message_sep|>',
        "Now.",
    ),
    # the chat template; several calls in one block, as SGLang's parser reads them
    "muse_glimmer": (
        "muse_glimmer",
        "Hm.<|eom|><|start|>assistant to=user<|message|>Now.<|eom|><|start|>assistant to=save_note<|message|>"
        '<atem:function_calls>\n<atem:invoke name="save_note">\n<atem:parameter name="title">x y</atem:parameter>\n'
        '<atem:parameter name="stars">3</atem:parameter>\n</atem:invoke>\n<atem:invoke name="list_shelves">\n'
        "</atem:invoke>\n</atem:function_calls><|eot|>",
        "Now.",
    ),
    # vLLM's and SGLang's tests: a header with and without the tool's name
    "inkling": (
        "inkling",
        "Hm.<|end_message|><|message_model|><|content_text|>Now.<|end_message|><|message_model|>save_note"
        '<|content_invoke_tool_json|>{"name":"save_note","args":{"title":"x y","stars":3}}<|end_message|>'
        '<|message_model|><|content_invoke_tool_json|>{"name":"list_shelves","args":{}}<|end_message|>'
        "<|content_model_end_sampling|>",
        "Now.",
    ),
    # older parsers and clients: no word of what constrains the arguments
    "plamo3, without the constraint": (
        "plamo3",
        "Hm.<|plamo:end_think:plamo|>Now.<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>"
        "<|plamo:begin_tool_name:plamo|>save_note<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
        '<|plamo:msg|>{"title": "x y", "stars": 3}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>'
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>list_shelves<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{}<|plamo:end_tool_arguments:plamo|>"
        "<|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
        "Now.",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_published_layout_is_read_exactly(layout: str) -> None:
    name, text, content = LAYOUTS[layout]
    format = get_format(name)
    folded = parse_invariant(format, text, start=ReplyStart.REASONING)
    assert folded.reasoning == ("Hm." if format.reasoning else "")
    assert folded.content == content
    assert folded.plain_calls == [NOTE, SHELVES]


def test_an_answer_of_ernie_stands_between_its_markers_or_without() -> None:
    for text in ("Hm.\n</think>\n\n<response>\nYes.\n</response>\n", "Hm.\n</think>\nYes."):
        folded = parse_invariant(get_format("ernie45"), text, start=ReplyStart.REASONING)
        assert (folded.reasoning, folded.content) == ("Hm.", "Yes.")


def test_the_prompt_has_written_the_opener_of_the_first_message() -> None:
    call = '{"name":"list_shelves","args":{}}<|end_message|>'
    for name, text, reasoning, content, calls in (
        ("inkling", f"list_shelves<|content_invoke_tool_json|>{call}", "", "", [SHELVES]),
        ("inkling", "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>Yes.", "Hm.", "Yes.", []),
        ("inkling", "Yes, without a header.", "", "Yes, without a header.", []),
        ("muse_glimmer", " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes.", "Hm.", "Yes.", []),
        ("muse_glimmer", " to=user<|message|>Yes.<|eot|>", "", "Yes.", []),
        ("muse_glimmer", "Yes, without a header.", "", "Yes, without a header.", []),
    ):
        folded = parse_invariant(get_format(name), text)
        assert (folded.reasoning, folded.content, folded.plain_calls) == (reasoning, content, calls)


def test_mere_words_of_a_function_call_are_text() -> None:
    for name in ("gigachat3", "gigachat31"):
        folded = parse_invariant(get_format(name), "I make a function call.<|message_sep|>\n\n")
        assert (folded.content, folded.calls) == ("I make a function call.", [])


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ '<longcat_tool_call>' + call.name }}<longcat_arg_key>{{ key }}</longcat_arg_key>", "longcat2"),
        ("{{ '<|iquest_assistant|><think>' }}", "iquest_q1"),
        ("'<atem:function_calls>\n<atem:invoke name=' '<|start|>assistant' '<|message|>'", "muse_glimmer"),
        ("{{ '<|message_model|>' + name + '<|content_invoke_tool_json|>' }}", "inkling"),
        ("{{ '<ifm|tool_calls>\n' }}<ifm|think>", "k2_horizon"),
        ("role_sep='<|role_sep|>\n' 'role': 'function call'", "gigachat3"),
        ("{{ '<|role_sep|>\n' }}{{ '<|function_call|>' }}", "gigachat31"),
    ],
)
def test_the_template_tells_the_two_forms_apart(template: str, name: str) -> None:
    found = detect(template)
    assert found is not None
    assert found.name == name
