"""The template environment: what Hugging Face gives, and what is stopped."""

import threading

import pytest

from paraserve.prompt import template as template_module
from paraserve.prompt.errors import PromptError
from paraserve.prompt.template import ChatTemplate
from paraserve.tokenizers.base import CheckpointError
from tests.prompt.own_templates import PLAIN
from tests.prompt.reference_jinja import render as reference_render


def render(source, **variables):
    return ChatTemplate.compile(source).render({"messages": [], **variables})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'a': '<b>&é\"'} | tojson }}", '{"a": "<b>&é\\""}'),
        ("{{ [1, {'b': 2}] | tojson(separators=(',', ':')) }}", '[1,{"b":2}]'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", '{"a": 2, "b": 1}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
        ("{{ dict(a=1) | tojson }}", '{"a": 1}'),
        ("{{ missing }}|{{ messages.missing }}", "|"),
        ("{{ {'items': 3}.items() | list }}", "[('items', 3)]"),
    ],
)
def test_templates_get_what_they_are_written_for(source, expected):
    assert render(source) == expected


def test_strftime_now_is_the_local_time():
    assert render("{{ strftime_now('%Y') }}").startswith("2")


def test_raise_exception_gives_the_templates_own_words():
    with pytest.raises(PromptError) as caught:
        render("{{ raise_exception('Conversation roles must alternate') }}")
    assert caught.value.message == "Conversation roles must alternate"
    assert (caught.value.param, caught.value.code) == ("messages", "template_error")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['__name__'] }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{% include 'x' %}",
        "{{ lipsum(100000000) }}",
    ],
)
def test_the_sandbox_holds(source):
    with pytest.raises(PromptError, match="cannot render"):
        render(source)


@pytest.mark.parametrize(
    "source", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(1) }}", "{{ dict.__class__ }}"]
)
def test_what_is_unsafe_and_only_printed_is_nothing(source):
    assert render(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}" + "x" * 100 + "{% endfor %}{% endfor %}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a'.ljust(999999999) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ messages | tojson(indent=999999999) }}",
        "{{ [1] | batch(999999999, 0) | list }}",
    ],
)
def test_a_render_that_runs_away_is_stopped(monkeypatch, source):
    monkeypatch.setattr(template_module, "MAX_RENDER_SECONDS", 0.2)
    monkeypatch.setattr(template_module, "MAX_OUTPUT_CHARS", 1_000_000)
    with pytest.raises(PromptError, match="was stopped") as caught:
        render(source)
    assert caught.value.code == "template_limit"


def test_endless_recursion_is_an_error_and_no_crash():
    with pytest.raises(PromptError):
        render("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}")


def test_text_with_large_numbers_is_no_format():
    assert render("{{ 'id 12345678901 is %s' % 'ok' }}") == "id 12345678901 is ok"
    assert render("{{ 'id 12345678901 {} {}'.format('is', 'ok') }}") == "id 12345678901 is ok"


def test_a_broken_template_is_an_error_of_the_start_that_names_the_line():
    with pytest.raises(CheckpointError, match=r"'mine' is broken at line 2.*--chat-template"):
        ChatTemplate.compile("{% for m in messages %}\n{{ m. }}", "mine")


def test_variables_are_what_template_kwargs_may_set():
    assert "enable_thinking" in ChatTemplate.compile(PLAIN).variables


def test_threads_share_a_template():
    compiled = ChatTemplate.compile(PLAIN)
    wrong = []

    def work(number):
        messages = [{"role": "user", "content": f"{number}-{turn}"} for turn in range(50)]
        expected = reference_render(PLAIN, messages)
        for _ in range(20):
            if compiled.render({"messages": messages, "add_generation_prompt": True}) != expected:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
