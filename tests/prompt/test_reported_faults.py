"""Faults that users of this kind of server reported, as behaviours of the prompt."""

import json
from pathlib import Path

import msgspec
import pytest

from paraserve.formats.types import ReplyStart
from paraserve.prompt.chat import ChatPrompt, PromptSettings
from paraserve.prompt.errors import PromptError
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer
from tests.prompt.own_templates import LISTS, PLAIN, STRICT
from tests.prompt.requests import asked

USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]


def call(arguments, call_id="c1"):
    return {"id": call_id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def turn(arguments="{}", content=None, result="ok", **fields):
    return [
        USER,
        {"role": "assistant", "content": content, "tool_calls": [call(arguments)], **fields},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def test_no_tools_means_no_tool_mode_even_for_templates_that_only_ask_whether_tools_are_defined(make_prompt):
    for condition in ("tools is defined", "tools", "tools is not none"):
        prompt = make_prompt(f"{{% if {condition} %}}TOOL MODE {{% endif %}}{{{{ messages[0].content }}}}")
        assert prompt.prepare(asked([USER])).text == "hi", condition
        assert prompt.prepare(asked([USER], TOOLS)).text == "TOOL MODE hi", condition


@pytest.mark.parametrize("call_id", ["call_9f", "functions_Read_0", "functions.get_weather:0", "x" * 80])
def test_ids_stay_as_the_client_sent_them(make_prompt, call_id):
    messages = turn()
    messages[1]["tool_calls"][0]["id"] = messages[2]["tool_call_id"] = call_id
    text = make_prompt(PLAIN).prepare(asked(messages)).text
    assert f"<call {call_id} " in text


def test_ids_become_nine_characters_only_where_the_template_raises_on_others(make_prompt):
    strict = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}"
    strict += "{{ raise_exception('nine') }}{% endif %}<{{ c.id }} {{ c.function.arguments }}>{% endfor %}"
    strict += "{% if m.role == 'tool' %}({{ m.tool_call_id }}){% endif %}{% endfor %}"
    prepared = make_prompt(strict).prepare(asked(turn(content="")))
    shown = prepared.text[prepared.text.index("<") + 1 :][:9]
    assert f"({shown})" in prepared.text
    assert shown.isalnum()
    assert prepared.normalizations == ("short_ids",)


@pytest.mark.parametrize(
    ("kwargs", "start", "enabled"),
    [({}, ReplyStart.REASONING, True), ({"enable_thinking": False}, ReplyStart.CONTENT, False)],
)
def test_the_reply_starts_where_the_prompt_ends(make_prompt, kwargs, start, enabled):
    prepared = make_prompt(PLAIN).prepare(asked([USER], template_kwargs=kwargs))
    assert prepared.start is start
    assert prepared.thinks is enabled


def test_effort_none_turns_thinking_off(make_prompt):
    prepared = make_prompt(PLAIN).prepare(asked([USER], reasoning_effort="none"))
    assert prepared.start is ReplyStart.CONTENT
    assert not prepared.thinks


def test_another_templates_name_for_the_switch_is_understood(make_prompt):
    prompt = make_prompt(PLAIN)
    for value in (False, "false", 0):
        prepared = prompt.prepare(asked([USER], template_kwargs={"thinking": value}))
        assert prepared.start is ReplyStart.CONTENT, value


def test_a_template_that_does_not_think_leaves_a_bare_header(make_prompt):
    assert make_prompt(LISTS).prepare(asked([USER])).start is ReplyStart.HEADER


def test_user_text_that_ends_like_a_marker_starts_nothing(make_prompt):
    messages = [{"role": "user", "content": "what is <think>"}]
    assert make_prompt(LISTS).prepare(asked(messages)).start is ReplyStart.HEADER


def test_a_template_that_raises_is_the_clients_error_in_the_templates_words(make_prompt):
    source = PLAIN.replace(
        "[{{ m.role }}]", "{% if m.name %}{{ raise_exception('no names') }}{% endif %}[{{ m.role }}]"
    )
    with pytest.raises(PromptError, match=r"^no names$") as caught:
        make_prompt(source).prepare(asked([{**USER, "name": "me"}]))
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", [PLAIN, LISTS, STRICT])
def test_a_list_of_texts_reads_as_the_joined_text(make_prompt, source):
    prompt = make_prompt(source)
    parts = [{"type": "text", "text": "12 C"}, {"type": "text", "text": "rain"}]
    as_list = prompt.prepare(asked(turn(result=parts))).text
    as_text = prompt.prepare(asked(turn(result="12 Crain"))).text
    assert as_list == as_text
    assert "12 C" in as_list
    assert "type" not in as_list
    assert prompt.prepare(asked(turn(result=[]))).text == prompt.prepare(asked(turn(result=""))).text


def test_an_image_in_a_tool_result_is_refused_by_name(make_prompt):
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]
    with pytest.raises(PromptError, match="does not take image") as caught:
        make_prompt(PLAIN).prepare(asked(turn(result=parts)))
    assert caught.value.param == "messages[2].content[1]"
    with pytest.raises(PromptError, match="takes no image in a tool message") as caught:
        make_prompt(PLAIN, media=frozenset({"image"})).prepare(asked(turn(result=parts)))
    assert caught.value.param == "messages[2].content[1]"


@pytest.mark.parametrize("source", [PLAIN, LISTS, STRICT])
def test_null_and_absent_content_are_empty_and_never_the_word_none(make_prompt, source):
    prompt = make_prompt(source)
    reference = prompt.prepare(asked(turn(content=""))).text
    assert prompt.prepare(asked(turn(content=None))).text == reference
    absent = turn()
    del absent[1]["content"]
    assert prompt.prepare(asked(absent)).text == reference
    assert "None" not in reference
    assert "get_weather" in reference


@pytest.mark.parametrize("arguments", ['{"b": 1, "a": [1.0, null]}', {"b": 1, "a": [1.0, None]}])
def test_arguments_reach_the_template_as_an_object_with_their_order(make_prompt, arguments):
    text = make_prompt(PLAIN).prepare(asked(turn(arguments))).text
    assert '{"b": 1, "a": [1.0, null]}' in text


@pytest.mark.parametrize("arguments", ["", None, "  ", "null", " null\n"])
@pytest.mark.parametrize("source", [PLAIN, LISTS])
def test_empty_arguments_are_an_empty_object(make_prompt, source, arguments):
    assert "get_weather {}" in make_prompt(source).prepare(asked(turn(arguments))).text


@pytest.mark.parametrize(
    "arguments", ["text", "[1]", '{"a": 1', '{"a": 1}{"b": 2}', '{"a": NaN}', [1], 5, "[" * 20_000]
)
@pytest.mark.parametrize("source", [PLAIN, LISTS])
def test_other_arguments_pass_or_are_refused_by_name_where_the_operator_is_strict(make_prompt, source, arguments):
    """What a model wrote and a client sends back must not end the session: a call that was cut, most of all."""
    strict = make_prompt(source, settings=PromptSettings(lenient_arguments=False))
    with pytest.raises(PromptError, match="must be a JSON object") as caught:
        strict.prepare(asked(turn(arguments)))
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"
    prepared = make_prompt(source).prepare(asked(turn(arguments)))
    assert "invalid_arguments" in prepared.normalizations
    if isinstance(arguments, str):
        shown = arguments if source is LISTS else json.dumps(arguments, ensure_ascii=False)
        assert shown in prepared.text


def test_a_developer_message_is_a_system_message_unless_the_template_names_the_role(make_prompt):
    messages = [{"role": "developer", "content": "Reply only PLUM"}, USER]
    for source in (PLAIN, LISTS, STRICT):
        prepared = make_prompt(source).prepare(asked(messages))
        assert prepared.text.startswith("[system]Reply only PLUM")
        assert prepared.normalizations == ("developer_as_system",)
    named = LISTS.replace("[{{ m.role }}]", "[{{ 'DEV' if m.role == 'developer' else m.role }}]")
    prepared = make_prompt(named).prepare(asked(messages))
    assert prepared.text.startswith("[DEV]Reply only PLUM")
    assert prepared.normalizations == ()


def test_a_developer_message_after_a_system_message_joins_it(make_prompt):
    messages = [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, USER]
    for source in (PLAIN, LISTS, STRICT):
        assert make_prompt(source).prepare(asked(messages)).text.startswith("[system]A\n\nB\n[user]hi")


def test_late_instructions_stay_where_they_are_taken_and_join_the_head_elsewhere(make_prompt):
    messages = [USER, {"role": "assistant", "content": "x"}, {"role": "developer", "content": "B"}, USER]
    assert "[assistant]x\n[system]B\n[user]hi" in make_prompt(LISTS).prepare(asked(messages)).text
    strict = make_prompt(STRICT).prepare(asked(messages))
    assert strict.text.startswith("[system]B\n[user]hi\n[assistant]x")
    assert strict.normalizations == ("developer_as_system", "hoisted_system")


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "R"},
        {"reasoning": "R"},
        {"reasoning_content": "R", "reasoning": "R"},
        {"reasoning_content": "R", "reasoning": "other"},
        {"reasoning_content": None, "reasoning": "R"},
        {"reasoning_content": "", "reasoning": "R"},
    ],
)
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_both_names_of_reasoning_hold_the_same_value(make_prompt, fields, name):
    source = "{% for m in messages %}{{ m.content }}<{{ m.get('" + name + "', '') }}>"
    source += "{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}{% endfor %}"
    text = make_prompt(source).prepare(asked(turn('{"a": 1}', content="", **fields))).text
    assert "<R>" in text
    assert "None" not in text


def test_a_closed_prefill_goes_on_as_content_and_an_open_one_as_reasoning(make_prompt):
    prompt = make_prompt(PLAIN)

    def prefill(text, **request):
        messages = [USER, {"role": "assistant", "content": text}]
        return prompt.prepare(asked(messages, continue_final_message=True, **request))

    closed = prefill("<think>short plan</think>")
    assert closed.text == "[user]hi\n[assistant]<think>short plan</think>"
    assert closed.start is ReplyStart.CONTENT
    opened = prefill("<think>half a pl")
    assert opened.text == "[user]hi\n[assistant]<think>half a pl"
    assert opened.start is ReplyStart.REASONING
    assert opened.thinks
    plain = prefill("The answer is ")
    assert plain.text.endswith("[assistant]The answer is ")
    assert plain.start is ReplyStart.CONTENT
    assert plain.prefill == "The answer is "


def test_a_message_with_reasoning_alone_goes_on_in_reasoning(make_prompt):
    messages = [USER, {"role": "assistant", "content": None, "reasoning_content": "half"}]
    prepared = make_prompt(PLAIN).prepare(asked(messages, continue_final_message=True))
    assert prepared.text == "[user]hi\n[assistant]<think>half"
    assert prepared.start is ReplyStart.REASONING


@pytest.mark.parametrize("messages", [[USER], turn()[:2], turn()])
def test_there_must_be_an_assistants_text_to_continue(make_prompt, messages):
    with pytest.raises(PromptError, match="continue_final_message needs"):
        make_prompt(PLAIN).prepare(asked(messages, continue_final_message=True))


def test_input_image_is_an_image_like_any_other(make_prompt):
    prompt = make_prompt(LISTS, media=frozenset({"image"}))
    for part in (
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        {"type": "image_url", "image_url": "https://x.test/a.png"},
        {"type": "input_image", "image_url": "https://x.test/a.png"},
    ):
        prepared = prompt.prepare(asked([{"role": "user", "content": [part]}]))
        assert prepared.text == "[user]<image>\n[assistant]"
        assert prepared.media[0].url == "https://x.test/a.png"


def test_empty_strings_pass(make_prompt):
    prompt = make_prompt(PLAIN)
    assert prompt.prepare(asked([{"role": "user", "content": ""}])).text.startswith("[user]\n")
    assert prompt.prepare(asked([{"role": "assistant", "content": "x"}])).text.startswith("[assistant]x")
    assert "None" not in prompt.prepare(asked(turn(content=[]))).text


def test_the_servers_default_turns_thinking_off_and_a_request_wins(make_prompt):
    prompt = make_prompt(PLAIN, settings=PromptSettings(template_kwargs={"enable_thinking": False}))
    assert prompt.prepare(asked([USER])).start is ReplyStart.CONTENT
    wants = asked([USER], template_kwargs={"enable_thinking": True})
    assert prompt.prepare(wants).start is ReplyStart.REASONING
    other_name = asked([USER], template_kwargs={"thinking": True})
    assert prompt.prepare(other_name).start is ReplyStart.REASONING


@pytest.mark.parametrize("source", [PLAIN, LISTS, STRICT])
def test_cache_control_changes_nothing(make_prompt, source):
    prompt = make_prompt(source)
    mark = {"cache_control": {"type": "ephemeral"}}

    def messages(marked):
        texts = ["one", "two", "three"]
        return [
            {
                "role": "assistant" if place % 2 else "user",
                "content": [{"type": "text", "text": text, **(mark if place == marked else {})}],
                **(mark if place == marked else {}),
            }
            for place, text in enumerate(texts)
        ]

    first, second = (prompt.prepare(asked(messages(marked))) for marked in (0, 2))
    assert first.token_ids == second.token_ids
    assert "ephemeral" not in first.text


def test_a_template_that_ignores_old_reasoning_gets_no_reasoning_in_content(make_prompt):
    messages = [USER, {"role": "assistant", "content": "x", "reasoning_content": "secret"}, USER]
    assert "secret" not in make_prompt(PLAIN).prepare(asked(messages)).text


def test_normalization_off_gives_the_template_the_clients_own_messages(make_prompt):
    prompt = make_prompt(PLAIN, settings=PromptSettings(normalization="off"))
    prepared = prompt.prepare(asked(turn(content=None)))
    assert "[assistant]None" in prepared.text
    assert prepared.normalizations == ()


def test_history_that_the_template_would_lose_is_refused(make_prompt):
    chat_only = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.role }}:{{ m.content }}\n{% endif %}{% endfor %}"
    with pytest.raises(PromptError, match="does not render tool calls") as caught:
        make_prompt(chat_only).prepare(asked(turn()))
    assert caught.value.param == "messages[1]"


def test_tools_that_the_template_ignores_are_said_or_refused(make_prompt):
    chat_only = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    assert make_prompt(chat_only).prepare(asked([USER], TOOLS)).normalizations == ("tools_not_in_prompt",)
    strict = make_prompt(chat_only, settings=PromptSettings(ignored_tools="refuse"))
    with pytest.raises(PromptError) as caught:
        strict.prepare(asked([USER], TOOLS))
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    "source",
    [PLAIN, LISTS, STRICT, PLAIN.replace("tools | tojson", "tools[0].function.name + tools[0].function.description")],
)
def test_a_null_in_a_tool_prints_nothing(make_prompt, source):
    bare = {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": None}}
    text = make_prompt(source).prepare(asked([USER], [bare])).text
    assert "TOOLS" in text
    assert "None" not in text
    assert "null" not in text


@pytest.mark.parametrize("text", ["cut \ud83c", '{"a": "\\ud83c"}'])
def test_half_a_surrogate_pair_becomes_the_replacement_character(make_prompt, text):
    prepared = make_prompt(PLAIN).prepare(asked([{"role": "user", "content": text}, *turn('{"a": "\\ud83c"}')]))
    assert "\ufffd" in prepared.text
    assert bytes(prepared.token_ids).decode() == prepared.text
    assert "lone_surrogates" in prepared.normalizations


def test_a_model_without_a_template_says_what_the_server_needs():
    checkpoint = Checkpoint(Path("model"), ByteTokenizer(), {})
    with pytest.raises(PromptError, match="--chat-template") as caught:
        ChatPrompt(checkpoint).prepare(asked([USER]))
    assert caught.value.code == "chat_template_missing"


def test_requests_with_tools_use_the_template_for_tools():
    templates = {name: name + " {{ tools }}" for name in ("default", "tool_use")}
    prompt = ChatPrompt(Checkpoint(Path("model"), ByteTokenizer(), templates))
    assert prompt.prepare(asked([USER])).text.startswith("default")
    assert prompt.prepare(asked([USER], TOOLS)).text.startswith("tool_use")


def test_what_was_learned_is_logged_and_plain_json(make_prompt, caplog):
    caplog.set_level("INFO")
    facts = make_prompt("{{ messages[0].content }}").facts()
    assert json.loads(msgspec.json.encode(facts))["templates"]["default"]["tools"] is False
    assert "puts no tools into the prompt" in caplog.text


def test_media_come_in_the_order_of_the_prompt(make_prompt):
    single = LISTS.replace(
        "[{{ m.role }}]", "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ 1 / 0 }}{% endif %}[{{ m.role }}]"
    )
    prompt = make_prompt(single, media=frozenset({"image"}))
    image = [{"type": "image_url", "image_url": {"url": f"https://{name}"}} for name in ("second", "first")]
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call("{}"), call("{}", "c2")]},
        {"role": "tool", "tool_call_id": "c2", "content": [image[0]]},
        {"role": "tool", "tool_call_id": "c1", "content": [image[1]]},
    ]
    assert [item.url for item in prompt.prepare(asked(messages)).media] == [
        "https://first",
        "https://second",
    ]


def test_parallel_calls_become_single_ones_where_the_template_takes_one(make_prompt):
    messages = [
        USER,
        {"role": "assistant", "content": "both", "tool_calls": [call('{"n": 1}'), call('{"n": 2}', "c2")]},
        {"role": "tool", "tool_call_id": "c2", "content": "second"},
        {"role": "tool", "tool_call_id": "c1", "content": "first"},
        {"role": "assistant", "content": "done"},
    ]
    prepared = make_prompt(STRICT).prepare(asked(messages))
    places = [prepared.text.index(word) for word in ("both", '"n": 1', "first", '"n": 2', "second", "done")]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt"])
def test_template_kwargs_cannot_replace_the_requests_own_fields(make_prompt, name):
    with pytest.raises(PromptError) as caught:
        make_prompt(PLAIN).prepare(asked([USER], template_kwargs={name: []}))
    assert caught.value.param == f"chat_template_kwargs.{name}"


def test_a_request_is_not_changed(make_prompt):
    messages = turn('{"a": 1}', result=[{"type": "text", "text": "x"}], reasoning="R")
    before = json.dumps(messages)
    make_prompt(STRICT).prepare(asked(messages))
    assert json.dumps(messages) == before


def test_documents_reach_the_template(make_prompt):
    source = "{% for d in documents or [] %}<{{ d.title }}: {{ d.text }}>{% endfor %}{{ messages[0].content }}"
    documents = [{"title": "A", "text": "first"}, {"title": "B", "text": "second"}]
    prompt = make_prompt(source)
    assert prompt.prepare(asked([USER], documents=documents)).text == "<A: first><B: second>hi"
    assert prompt.prepare(asked([USER])).text == "hi"


@pytest.mark.parametrize(
    ("source", "effort", "kwargs", "unused"),
    [
        ("{{ messages[0].content }}", "high", {}, True),
        ("{{ messages[0].content }}{{ reasoning_effort }}", "high", {}, False),
        ("{{ messages[0].content }}{{ thinking_effort }}", "low", {}, False),
        ("{{ messages[0].content }}{{ reasoning_effort }}", "high", {"reasoning_effort": "low"}, True),
        ("{{ messages[0].content }}{{ reasoning_effort }}", None, {}, False),
        (PLAIN, "low", {}, True),
        (PLAIN, "none", {}, False),
        (PLAIN, "none", {"enable_thinking": True}, True),
    ],
)
def test_an_effort_that_the_template_is_not_told_is_named(make_prompt, source, effort, kwargs, unused):
    request = asked([USER], reasoning_effort=effort, template_kwargs=kwargs)
    assert ("reasoning_effort_not_used" in make_prompt(source).prepare(request).normalizations) is unused
