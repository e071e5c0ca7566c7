"""What docs/security.md promises: what no client, template or body can do, and what never gets out."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import tracemalloc
from typing import Any

import httpx
import pytest

from paraserve.api.endpoints import ENDPOINTS
from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Generation, Sink
from paraserve.engines.relay import Relay
from paraserve.prompt.errors import PromptError
from paraserve.prompt.template import ChatTemplate
from paraserve.tokenizers.base import CheckpointError
from tests.api.wire import CHAT, COMPLETIONS, USER
from tests.toy import client, deployment, engine, reply
from tests.waiting import PATIENCE

KEY = "sk-correct-horse-battery"
GUESS = "sk-wrong-guess-staple"
BODIES = [endpoint.path for endpoint in ENDPOINTS if endpoint.takes is not None]
DIGITS = "9" * 1_000_000


def deep_behind_references(*, levels: int, steps: int) -> dict[str, Any]:
    """A tool whose schema is shallow as it stands, and too deep with its definitions put in place."""
    definitions: dict[str, Any] = {f"d{steps}": {}}
    for step in range(steps):
        inner: dict[str, Any] = {"$ref": f"#/$defs/d{step + 1}"}
        for _ in range(levels):
            inner = {"not": inner}
        definitions[f"d{step}"] = inner
    return {
        "type": "function",
        "function": {"name": "f", "parameters": {"$ref": "#/$defs/d0", "$defs": definitions}},
    }


def chat_with(field: str, value: str) -> str:
    return f'{{"messages": {json.dumps(USER)}, "{field}": {value}}}'


BOMBS: dict[str, str] = {
    "deep array": '{"messages": ' + "[" * 200_000,
    "deep array, whole": '{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}",
    "deep object": '{"a":' * 200_000,
    "deep in a message": f'{{"messages": [{{"role": "user", "content": "x", "y": {"[" * 900}{"]" * 900}}}]}}',
    "deep in a tool": chat_with(
        "tools",
        '[{"type": "function", "function": {"name": "f", "parameters": ' + '{"not": ' * 900 + "{}" + "}" * 900 + "}}]",
    ),
    "deep behind references in a tool": chat_with("tools", json.dumps([deep_behind_references(levels=80, steps=20)])),
    "deep template variable": chat_with("chat_template_kwargs", '{"x": ' + "[" * 900 + "]" * 900 + "}"),
    **{
        f"digits in {field}": chat_with(field, DIGITS)
        for field in ("temperature", "top_k", "seed", "max_tokens", "n", "priority", "thinking", "unknown")
    },
    "negative digits": chat_with("seed", "-" + DIGITS),
    "digits of a fraction": chat_with("temperature", "0." + DIGITS),
    "a vast exponent": chat_with("temperature", "1e" + DIGITS),
    "digits in a message": f'{{"messages": [{{"role": "user", "content": "x", "y": {DIGITS}}}]}}',
    "digits in a template variable": chat_with("chat_template_kwargs", f'{{"x": {DIGITS}}}'),
    "digits in a bound of a schema": chat_with(
        "response_format",
        '{"type": "json_schema", "json_schema": {"schema": {"type": "integer", "maximum": ' + DIGITS + "}}}",
    ),
    "digits in a repetition of a pattern": chat_with("regex", f'"a{{{DIGITS}}}"'),
    "digits in prompt": f'{{"prompt": [{DIGITS}]}}',
    "digits in tokens": f'{{"tokens": [{DIGITS}]}}',
    "digits in a key of logit_bias": chat_with("logit_bias", f'{{"{DIGITS}": 1}}'),
    "a huge key": chat_with("k" * 5_000_000, "1"),
    "a huge key in a message": f'{{"messages": [{{"role": "user", "{"k" * 5_000_000}": "x"}}]}}',
    "many keys": chat_with("logit_bias", "{" + ",".join(f'"{i}": 1' for i in range(200_000)) + "}"),
    "many unknown keys": "{" + ",".join(f'"k{i}": 1' for i in range(200_000)) + "}",
    "many messages": json.dumps({"messages": USER * 20_000}),
    "many tools": chat_with(
        "tools", "[" + ",".join(f'{{"type": "function", "function": {{"name": "f{i}"}}}}' for i in range(20_000)) + "]"
    ),
    "many stops": chat_with("stop", json.dumps([f"stop{i}" for i in range(50_000)])),
    "a long stop": chat_with("stop", json.dumps("a" * 1_000_000)),
    "many prompts": json.dumps({"prompt": ["x"] * 100_000}),
    "half a surrogate pair": chat_with("stop", '"\\ud800"'),
    "half a surrogate pair in a message": '{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "half a surrogate pair in a prompt": '{"prompt": "\\ud800"}',
    "not UTF-8": '{"prompt": "\udcff"}',
    "zero bytes": "\0" * 1_000_000,
    "NaN": chat_with("temperature", "NaN"),
}


ANYWHERE = ("deep array", "deep array, whole", "deep object", "many unknown keys", "digits in unknown", "not UTF-8")
"""What does not ask for a field of the endpoint."""
OWN = {"digits in prompt": COMPLETIONS, "many prompts": COMPLETIONS, "half a surrogate pair in a prompt": COMPLETIONS}
OWN |= {"digits in tokens": "/detokenize"}
SENT = [(name, OWN.get(name, CHAT)) for name in BOMBS] + [(name, path) for path in BODIES for name in ANYWHERE]


@pytest.mark.parametrize(("name", "path"), sorted(set(SENT)))
async def test_a_bomb_of_a_body_costs_bounded_time_and_memory(name: str, path: str) -> None:
    body = BOMBS[name].encode("utf-8", "surrogateescape")
    async with client(deployment(engine(), max_body_size=8 * 2**20)) as http:
        tracemalloc.start()
        async with asyncio.timeout(PATIENCE):  # one that goes off takes minutes
            response = await http.post(path, content=body)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert response.status_code < 500, response.text[:300]
        assert peak < 100 * 2**20, f"{peak >> 20} MiB for a body of {len(body) >> 10} KiB"
        assert len(response.content) < 100_000 or response.status_code == 200
        assert (await http.post(CHAT, json={"messages": USER})).status_code == 200, "and the server goes on"


async def test_a_body_is_refused_before_more_than_the_limit_is_held() -> None:
    async def endless() -> Any:
        sent = 0
        while True:
            sent += 1
            assert sent < 100, "still read after the limit"
            yield b"x" * 65_536

    async with client(deployment(engine(), max_body_size=2**20)) as http:
        for path in BODIES:
            response = await http.post(path, content=endless())
            assert response.status_code == 413


async def test_a_packed_body_counts_as_what_it_unpacks_to() -> None:
    bomb = gzip.compress(b"[" * (200 * 2**20), 9)
    async with client(deployment(engine(), max_body_size=2**20)) as http:
        for path in BODIES:
            tracemalloc.start()
            response = await http.post(path, content=bomb, headers={"content-encoding": "gzip"})
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert response.status_code == 413
            assert peak < 20 * 2**20
            unknown = await http.post(path, content=b"x", headers={"content-encoding": "br"})
            assert unknown.status_code == 415


@pytest.mark.parametrize("headers", [{}, {"authorization": f"Bearer {GUESS}"}, {"authorization": f"Bearer {KEY}"}])
@pytest.mark.parametrize("log_requests", ["metadata", "parameters", "bodies"])
async def test_no_key_is_in_an_answer_a_metric_or_a_log_line(
    headers: dict[str, str], log_requests: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served = deployment(engine(), api_key=(KEY,), log_requests=log_requests)
    said: list[str] = []
    async with client(served) as http:
        http.headers.update(headers)
        for endpoint in ENDPOINTS:
            body = next(iter(endpoint.examples.values()), None)
            response = await http.request(endpoint.method, endpoint.path.replace("{model:path}", "toy"), json=body)
            said += [response.text, str(response.headers)]
        said += [(await http.get(path)).text for path in ("/metrics", "/nothing")]
    said += [record.getMessage() + str(record.__dict__) for record in caplog.records if record.name.startswith("para")]
    said.append(repr(served.settings))
    assert len(said) > 30
    for text in said:
        assert KEY not in text
        assert GUESS not in text


class Bug(Exception):
    """What no stage foresees, with a path and an object in its message."""

    def __str__(self) -> str:
        return "/srv/secret/model.py: <Engine object at 0x7f0000000000>"


LEAKS = ["/srv/secret", "0x7f", "Traceback", 'File "', ".py", "site-packages", "secret/place"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [0, 2])
async def test_a_bug_shows_no_path_object_or_stack(
    path: str, stream: bool, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = engine(reply("Hello."))
    submit = scripted.submit

    class Buggy(Relay):
        chunks = 0

        def take(self, chunk: EngineChunk) -> None:
            if self.chunks == after:
                self.running.abort()
                self.end(Bug())
            else:
                self.chunks += 1
                self.sink.take(chunk)

    def buggy(request: EngineRequest, sink: Sink) -> Generation:
        relay = Buggy(sink)
        relay.running = submit(request, relay)
        return relay

    monkeypatch.setattr(scripted, "submit", buggy)
    served = deployment(scripted, model_path="secret/place/toy")
    async with client(served) as http:
        response = await http.post(path, json={"messages": USER, "prompt": "x", "stream": stream})
    assert (response.status_code == 500) != stream
    assert '"code":"internal_error"' in response.text
    assert not [leak for leak in LEAKS if leak in response.text + str(response.headers)]


REF = {"$ref": "x"}
WRONG: list[tuple[str, str, Any]] = [
    ("POST", CHAT, b"{"),
    ("POST", CHAT, {"messages": [{"role": "wizard", "content": "x"}]}),
    ("POST", CHAT, {"messages": USER, "model": "/srv/secret/model"}),
    ("POST", CHAT, {"messages": USER, "tools": [{"type": "function", "function": {"name": 3}}]}),
    ("POST", CHAT, {"messages": USER, "response_format": {"type": "json_schema", "json_schema": {"schema": REF}}}),
    ("POST", CHAT, {"messages": USER, "chat_template_kwargs": {"messages": object.__name__}}),
    ("POST", COMPLETIONS, {"prompt": [1, "a"]}),
    ("POST", "/tokenize", {}),
    ("POST", "/detokenize", {"tokens": [10**9]}),
    ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", None),
    ("GET", "/../../etc/passwd", None),
    ("PUT", CHAT, None),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong[0]} {wrong[1]} {str(wrong[2])[:40]}")
async def test_a_refusal_shows_nothing_of_the_server(wrong: tuple[str, str, Any]) -> None:
    method, path, body = wrong
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    async with client(deployment(engine(), model_path="secret/place/toy")) as http:
        response = await http.request(method, path, content=content)
    error = response.json()["error"] if response.status_code >= 400 else {"message": response.text}
    shown = error["message"].replace("/srv/secret/model", "what the client wrote")
    assert not [leak for leak in LEAKS if leak in shown]
    assert " object at " not in shown
    assert "<class" not in shown


async def test_an_engines_words_come_without_paths_and_addresses() -> None:
    down = EngineError(502, "engine_error", "The engine failed (500).")
    async with client(deployment(engine(reply("x", error=down)))) as http:
        response = await http.post(CHAT, json={"messages": USER})
    assert response.json()["error"]["message"] == "The engine failed (500)."


def grows(step: str, before: str = "", after: str = "", start: str = "'x'") -> str:
    """A template whose value is twice as long after each of 99 steps."""
    loop = "{% for i in range(99) %}{% set ns.x = " + step + " %}{% endfor %}"
    return before + "{% set ns = namespace(x=" + start + ") %}" + loop + after


ESCAPES = [
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{% import '/etc/passwd' as x %}{{ x }}",
    "{% from '/etc/passwd' import x %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__code__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '%s' | format(messages.__init__) }}",
    "{{ open('/etc/passwd').read() }}",
    "{{ messages.append(1) }}",
    "{% set x = messages.pop() %}",
]


@pytest.mark.parametrize("escape", ESCAPES)
async def test_a_template_reaches_neither_files_nor_the_program(escape: str) -> None:
    """A checkpoint's template is foreign code: it fails to load, or its request does, and it says nothing it found."""
    try:
        served = deployment(engine(), template=escape + "{% for m in messages %}{{ m.content }}{% endfor %}")
    except CheckpointError:
        return
    async with client(served) as http:
        response = await http.post(f"{CHAT}/render", json={"messages": USER})
    if response.status_code == 200:
        shown = response.json()["text"]
        assert shown.removesuffix("hi") in ("", "%s"), shown
    else:
        assert response.status_code == 400
        assert response.json()["error"]["code"].startswith("template_")
    for found in ("root:", "<class", "<function", "object at 0x", "<bound"):
        assert found not in response.text


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ 9 ** (9 ** (9 ** 9)) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'x'.ljust(10000000000) }}",
        "{{ range(10000000000) | list }}",
        "{{ lipsum(n=10000000) }}",
        "{{ ('x' * 1000000) | replace('', 'y' * 1000000) }}",
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
        "{% set n = 2 ** 5000000 %}{{ ([n] * 1000000) | sum }}",
        "{{ ([[1] * 1000] * 100000) | sum(start=[]) | length }}",
        "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}" + "{% endfor %}" * 3,
        grows("ns.x ~ ns.x"),
        grows("ns.x ~ ns.x", "{% autoescape true %}", "{% endautoescape %}"),
        grows("ns.x + ns.x"),
        grows("[ns.x, ns.x] | join"),
        grows("(ns.x, ns.x) | join('-')"),
        grows("''.join([ns.x, ns.x])"),
        grows("ns.x.join(['a', 'b', 'c'])"),
        grows("'%s%s' | format(ns.x, ns.x)"),
        grows("'%s%s' % (ns.x, ns.x)"),
        grows("'%(a)s%(a)s' % {'a': ns.x}"),
        grows("'{0}{0}'.format(ns.x)"),
        grows("ns.x.replace('x', 'xx')"),
        grows("ns.x * 2"),
        grows("[ns.x] * 2"),
        grows("ns.x + ns.x", start="[1]"),
        grows("f(ns.x)", "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"),
        "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set b %}{{ ns.x }}{{ ns.x }}{% endset %}"
        "{% set ns.x = b %}{% endfor %}",
        "{{ 'x' ~ ('y' * 9000000) ~ ('z' * 9000000) }}",
    ],
)
async def test_a_template_that_never_ends_or_grows_is_stopped(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it grows by: the last step is refused before it is made, so that it takes no memory."""
    monkeypatch.setattr("paraserve.prompt.template.MAX_RENDER_SECONDS", 1.0)
    async with client(deployment(engine(), template=template)) as http:
        response: httpx.Response = await http.post(f"{CHAT}/render", json={"messages": USER})
    assert response.status_code == 400


@pytest.mark.parametrize(
    "template",
    [
        "{% set ns = namespace(x=[]) %}{% for i in range(90) %}{% set ns.x = ns.x + ['x' * 9000000 ~ i] %}{% endfor %}",
        "{% for a in range(400) %}{% for b in range(400) %}x{% endfor %}{% endfor %}",
    ],
)
async def test_a_template_that_keeps_what_it_makes_is_stopped_by_the_processs_memory(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([2**30, 3 * 2**30])
    monkeypatch.setattr("paraserve.prompt.template.resident", lambda: next(sizes))
    with pytest.raises(PromptError, match="too much memory"):
        ChatTemplate.compile(template).render({"messages": USER})


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ 'a-b-c' | replace('-', '+') }}", "a+b+c"),
        ("{{ 'a-b-c' | replace('-', '+', 1) }}", "a+b-c"),
        ("{{ 121 | replace(1, 3) }}", "323"),
        ("{{ 'a-b-c'.replace('-', '') }}", "abc"),
        ("{{ [1, 2.5] | sum }}", "3.5"),
        ("{{ 'a' ~ 1 ~ none ~ [2] }}", "a1None[2]"),
        ("{{ 'a' + 'b' }}{{ 1 + 2 }}{{ [1] + [2] }}", "ab3[1, 2]"),
        ("{% autoescape true %}{{ 'a' ~ '<' ~ ('<' | safe) }}{% endautoescape %}", "a&lt;&lt;"),
        ("{{ [1, 'b'] | join('-') }}{{ [{'n': 1}, {'n': 2}] | join(',', attribute='n') }}", "1-b1,2"),
        ("{{ '-'.join(messages | map(attribute='role')) }}", "user"),
        ("{% set b %}x{{ 1 }}{% endset %}{{ b }}{% macro f() %}y{% endmacro %}{{ f() }}", "x1y"),
        ("{{ '%s and %(a)s' % {'a': 1} if false else '%s|%s' | format('a', 2) }}", "a|2"),
        ("{{ [{'n': 1}, {'n': 2}] | sum(attribute='n', start=4) }}", "7"),
        ("{{ [{'n': 1}, {'n': 2}] | sum('n') }}", "3"),
        ("{{ [[1], [2, 3]] | sum(start=[]) }}", "[1, 2, 3]"),
    ],
)
async def test_what_is_bounded_in_templates_does_what_jinja_does(template: str, text: str) -> None:
    async with client(deployment(engine(), template=template)) as http:
        response = await http.post(f"{CHAT}/render", json={"messages": USER})
    assert response.json()["text"] == text


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_stop_strings_are_bounded_in_number_and_length(path: str) -> None:
    async with client(deployment(engine())) as http:
        for stop, status in ((["x"] * 64, 200), (["x"] * 65, 400), ("x" * 512, 200), (["a", "x" * 513], 400)):
            response = await http.post(path, json={"messages": USER, "prompt": "x", "stop": stop})
            assert response.status_code == status
            assert status == 200 or response.json()["error"]["param"] == "stop"


async def test_choices_are_bounded_before_any_prompt_is_read() -> None:
    async with client(deployment(engine())) as http:
        for prompts, n in ((1025, 1), (600, 2)):
            response = await http.post(COMPLETIONS, json={"prompt": ["x" * 10_000] * prompts, "n": n})
            assert response.status_code == 400
            assert response.json()["error"]["param"] == "prompt"
