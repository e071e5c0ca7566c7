"""Tools that a system message declares in the middle of a conversation (Kimi K3)."""

from typing import Any

import msgspec
import pytest

from paraserve.prompt.errors import PromptError
from paraserve.protocol.chat import decode_chat
from paraserve.protocol.errors import RequestError
from tests.prompt.own_templates import LISTS, PLAIN
from tests.prompt.real_templates import real_prompts

USER = {"role": "user", "content": "hi"}
DECLARES = LISTS.replace(
    "[{{ m.role }}]", "{% if m.tools %}MORE {{ m.tools | tojson }}\n{% continue %}{% endif %}[{{ m.role }}]"
)


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def decoded(*messages: Any, tools: Any = None) -> Any:
    return decode_chat(msgspec.json.encode({"messages": messages, "tools": tools}))


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}, {"content": "Use it."}])
def test_they_are_shown_where_they_stand_and_what_the_message_says_before_them(make_prompt, role, content):
    messages = [USER, {"role": "assistant", "content": "ok"}, {"role": role, **content, "tools": [tool("late")]}, USER]
    prepared = make_prompt(DECLARES).prepare(decoded(*messages, tools=[tool("early")]))
    said = "[system]Use it.\n" if content.get("content") else ""
    shown = "[assistant]ok\n" + said + 'MORE [{"type": "function", "function": {"name": "late"}}]\n[user]hi\n'
    assert shown in prepared.text
    assert '"early"' in prepared.text


def test_without_a_choice_of_tools_they_are_not_in_the_prompt(make_prompt):
    messages = [
        USER,
        {"role": "system", "tools": [tool("late")]},
        {"role": "system", "content": "S", "tools": [tool("b")]},
    ]
    prepared = make_prompt(DECLARES).prepare(decoded(*messages), with_tools=False)
    assert prepared.text == "[user]hi\n[system]S\n[assistant]"


@pytest.mark.parametrize("source", [PLAIN, LISTS])
def test_a_template_that_cannot_show_them_is_a_400_at_their_place(make_prompt, source):
    with pytest.raises(PromptError) as caught:
        make_prompt(source).prepare(decoded(USER, {"role": "system", "tools": [tool("late")]}))
    assert caught.value.param == "messages[1].tools"
    assert "send them in the request's tools" in caught.value.message


@pytest.mark.parametrize(
    ("messages", "tools", "param"),
    [
        ([{**USER, "tools": [tool("a")]}], None, "messages[0].tools"),
        ([USER, {"role": "assistant", "content": "x", "tools": [tool("a")]}], None, "messages[1].tools"),
        ([{"role": "system", "tools": [tool("a")]}, USER], [tool("a")], "messages[0].tools[0].function.name"),
        (
            [{"role": "system", "tools": [tool("a")]}, USER, {"role": "system", "tools": [tool("b"), tool("a")]}],
            None,
            "messages[2].tools[1].function.name",
        ),
        ([{"role": "system", "tools": [tool("a"), tool("a")]}, USER], None, "messages[0].tools[1].function.name"),
        ([{"role": "system", "tools": [{"type": "web"}]}, USER], None, "messages[0].tools[0].type"),
        ([{"role": "system", "tools": {"a": 1}}, USER], None, "messages[0].tools"),
        ([{"role": "system"}, USER], None, "messages[0].content"),
        ([{"role": "system", "tools": []}, USER], None, "messages[0].content"),
        ([{**USER, "content": None, "tools": []}], None, "messages[0].content"),
        ([USER, {"role": "tool", "content": "x"}], None, "messages[1].tool_call_id"),
        ([USER, {"role": "tool", "tool_call_id": "none", "content": "x"}], None, "messages[1].tool_call_id"),
    ],
)
def test_wrong_roles_names_twice_and_missing_ids_are_refused_by_their_place(messages, tools, param):
    with pytest.raises(RequestError) as caught:
        decoded(*messages, tools=tools)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_of_the_real_templates_one_shows_them(shared_assets):
    takers = [
        path for path, prompt in real_prompts(shared_assets).items() if prompt.capabilities["default"].message_tools
    ]
    assert [path.stem for path in takers] == ["kimi-k3"]
    prompt = real_prompts(shared_assets)[takers[0]]
    messages = [USER, {"role": "developer", "content": "Use it.", "tools": [tool("late", description=None)]}, USER]
    text = prompt.prepare(decoded(*messages)).text
    assert text.index("Use it.") < text.index("## New Tools Available") < text.index('"late"') < text.rindex("hi")
    assert "null" not in text
