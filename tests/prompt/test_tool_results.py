"""Where tool results stand in a prompt, and their media: as laws, on templates of ours and on every real one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.prompt.chat import PromptSettings
from paraserve.prompt.errors import PromptError
from paraserve.prompt.tool_results import result_order
from tests.prompt.own_templates import LISTS, PLAIN, STRICT
from tests.prompt.real_templates import real_prompts
from tests.prompt.requests import asked

USER = {"role": "user", "content": "hi"}
NAMES = ("aaa", "bbb", "aaa")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "d",
            "parameters": {"type": "object", "properties": {"x": {"type": "string", "description": "d"}}},
        },
    }
    for name in ("aaa", "bbb")
]
SHOWS_IDS = LISTS.replace("[{{ m.role }}]", "[{{ m.role }} {{ m.tool_call_id }}]")
SORTS = """
{%- for m in messages -%}
{%- if m.role != 'tool' %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.arguments -}}
>{% endfor %}{% for c in m.tool_calls or [] %}{% for r in messages if r.role == 'tool' and r.tool_call_id == c.id -%}
[tool]{% if r.content is string %}{{ r.content }}{% else %}{% for p in r.content -%}
{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}{% endif %}{% endfor %}{% endfor %}{% endif -%}
{%- endfor -%}
"""


def calls(*names: str) -> dict[str, Any]:
    made = [
        {"id": f"call{n:05}", "type": "function", "function": {"name": name, "arguments": json.dumps({"x": f"X{n}"})}}
        for n, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(number: int, content: Any = None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"call{number:05}", "content": content or f"RESULT{number}"}


def image(name: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"https://x.test/{name}.png"}}


@pytest.mark.parametrize("source", [PLAIN, LISTS, STRICT])
def test_results_stand_in_the_order_of_their_calls(make_prompt, source):
    """Where the template shows no ids a result is read as the next call's; two calls of one function included."""
    prompt = make_prompt(source)
    sent = [USER, calls(*NAMES), result(2), result(0), result(1)]
    prepared = prompt.prepare(asked(sent))
    in_order = prompt.prepare(asked([*sent[:2], result(0), result(1), result(2)]))
    assert prepared.text == in_order.text
    assert "results_in_call_order" in prepared.normalizations
    assert "results_in_call_order" not in in_order.normalizations


def test_results_stay_as_they_were_sent_where_the_prompt_says_which_call_each_answers(make_prompt):
    prepared = make_prompt(SHOWS_IDS).prepare(asked([USER, calls(*NAMES), result(1), result(0), result(2)]))
    assert prepared.text.index("RESULT1") < prepared.text.index("RESULT0")
    assert prepared.normalizations == ()


def test_results_of_a_round_are_sorted_also_where_another_message_stands_between(make_prompt):
    sent = [USER, calls("aaa", "bbb"), result(1), {"role": "user", "content": "HMM"}, result(0)]
    text = make_prompt(LISTS).prepare(asked(sent)).text
    assert text.index("RESULT0") < text.index("HMM") < text.index("RESULT1")


@pytest.mark.parametrize("role", ["user", "assistant", "developer", "system"])
def test_a_result_moves_behind_its_call_where_the_template_would_lose_it(make_prompt, role):
    adjacent = LISTS.replace(
        "[{{ m.role }}]",
        "{% if m.role == 'tool' and messages[loop.index0 - 1].role not in ['tool', 'assistant'] %}"
        "{% continue %}{% endif %}[{{ m.role }}]",
    )
    for between in ([{"role": role, "content": "HMM"}], [{"role": role, "content": "HMM"}, result(0)]):
        sent = [USER, calls("aaa", "bbb"), *([] if len(between) > 1 else [result(0)]), *between, result(1)]
        prepared = make_prompt(adjacent).prepare(asked(sent))
        assert prepared.text.index("RESULT0") < prepared.text.index("RESULT1") < prepared.text.index("HMM")
        assert "results_behind_calls" in prepared.normalizations


@given(data=st.data())
def test_an_order_of_results_is_a_permutation_that_moves_nothing_else(data):
    messages: list[dict[str, Any]] = []
    for turn in range(data.draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": f"u{turn}"})
        made = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=4))  # ids may repeat
        function = {"name": "f", "arguments": "{}"}
        messages.append({"role": "assistant", "tool_calls": [{"id": i, "function": function} for i in made]})
        for each in data.draw(st.permutations([{"role": "tool", "tool_call_id": i} for i in made])):
            messages += [each, *data.draw(st.lists(st.just({"role": "user", "content": "x"}), max_size=1))]
    for gather in (False, True):
        order = result_order(messages, gather=gather, sort=True, notes={})
        assert sorted(order) == list(range(len(messages)))
        others = [place for place in order if messages[place]["role"] != "tool"]
        assert others == sorted(others)
        placed = [messages[place] for place in order]
        again: dict[str, None] = {}
        assert result_order(placed, gather=gather, sort=True, notes=again) == list(range(len(placed)))
        assert again == {}


@pytest.mark.parametrize("normalization", ["auto", "off"])
@pytest.mark.parametrize("source", [LISTS, SHOWS_IDS, SORTS])
def test_media_come_in_the_order_of_their_places_in_the_prompt_whatever_sorted_them(make_prompt, source, normalization):
    settings = PromptSettings(normalization=normalization)
    prompt = make_prompt(source, media=frozenset({"image"}), settings=settings)
    results = [result(n, [{"type": "text", "text": f"PICTURE{n}"}, image(str(n))]) for n in (2, 0, 1)]
    assert_media_follow(prompt.prepare(asked([USER, calls(*NAMES), *results])))


def assert_media_follow(prepared: Any) -> None:
    """The texts beside the images stand in the prompt in the order of the images' names."""
    names = [item.url.rpartition("/")[2].partition(".")[0] for item in prepared.media]
    assert names == sorted(names, key=lambda name: prepared.text.index(f"PICTURE{name}"))


def test_media_come_in_the_order_of_the_prompt_on_every_template_with_images(shared_assets):
    tried = 0
    for path, prompt in real_prompts(shared_assets).items():
        takes = prompt.capabilities["default"]
        if "user.image" not in takes.media or not takes.results:
            continue
        results = [result(n, [{"type": "text", "text": f"PICTURE{n}"}, image(str(n))]) for n in (2, 0, 1)]
        seen = {"role": "user", "content": [{"type": "text", "text": "PICTURE9"}, image("9")]}
        asks = {"role": "user", "content": "what is it?"}
        for messages in (
            [seen, calls(*NAMES), *results],
            [USER, calls(*NAMES), *results, {"role": "assistant", "content": "ok"}, seen],
            [USER, calls(*NAMES), results[0], asks, *results[1:]],
        ):
            prepared = prompt.prepare(asked(messages, TOOLS))
            assert len(prepared.media) == (4 if seen in messages else 3), path.stem
            if "result_media_to_user" not in prepared.normalizations:
                assert_media_follow(prepared)
        tried += 1
    assert tried > 15


def test_an_image_that_the_template_shows_only_to_the_user_follows_the_results_in_a_users_message(make_prompt):
    only_user = (
        LISTS.replace("== 'image_url' %}", "== 'image_url' and m.role == 'user' %}")
        .replace("macro text(content)", "macro text(content, m)")
        .replace("text(m.content)", "text(m.content, m)")
    )
    prompt = make_prompt(only_user, media=frozenset({"image"}))
    results = [result(n, [{"type": "text", "text": f"RESULT{n}"}, image(str(n))]) for n in (1, 0)]
    prepared = prompt.prepare(asked([USER, calls("aaa", "bbb"), *results, USER]))
    assert prepared.text.endswith("[tool]RESULT0\n[tool]RESULT1\n[user]<image><image>\n[user]hi\n[assistant]")
    assert [item.url for item in prepared.media] == ["https://x.test/0.png", "https://x.test/1.png"]
    assert "result_media_to_user" in prepared.normalizations


def test_an_image_for_which_the_template_has_no_place_at_all_is_refused_at_its_place(make_prompt):
    prompt = make_prompt(PLAIN, media=frozenset({"image"}))
    with pytest.raises(PromptError) as caught:
        prompt.prepare(asked([USER, calls("aaa", "bbb"), result(1), result(0, [image("0")])]))
    assert caught.value.param == "messages[3].content[0]"


def test_results_behind_their_calls_on_every_template(shared_assets):
    """Whatever stands between a result and its call, it is in the prompt, and read as that call's."""
    for path, prompt in real_prompts(shared_assets).items():
        if not prompt.capabilities["default"].results:
            continue
        for between in ({"role": "user", "content": "HMM"}, {"role": "assistant", "content": "HMM"}):
            for messages in (
                [USER, calls("aaa", "bbb"), result(0), between, result(1)],
                [USER, calls("aaa", "aaa"), between, result(1), result(0)],
            ):
                text = prompt.prepare(asked(messages, TOOLS)).text
                assert all(word in text for word in ("RESULT0", "RESULT1")), path.stem
                if prompt.capabilities["default"].result_order != "named":
                    assert text.index("RESULT0") < text.index("RESULT1"), path.stem
                assert "HMM" in text, path.stem
