"""Declarations say what the reference reads in them: `parse_response` of transformers, whole and at every split.

Our own declarations stand for each thing that can be said; those that the package trl ships for known models stand for
what is said. Where we differ on purpose, a test below names it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paraserve.formats.declared.content import UnsupportedTemplateError
from paraserve.formats.declared.response_template import read_regions, read_response_template
from paraserve.formats.types import ReplyStart
from tests.formats.declared_templates import DECLARED
from tests.formats.formats_kit import TOOLS, parse, parse_invariant

transformers = pytest.importorskip("transformers", minversion="5.15", reason="the reference is transformers >= 5.15")

FUNCTIONS = [{"type": "function", "function": {"name": t.name, "parameters": dict(t.parameters)}} for t in TOOLS]
Message = tuple[str, str, list[tuple[str, Any]]]

JSON = '{"title": "x", "stars": 3}'
TAGS = "<parameter=title>\nx y\n</parameter>\n<parameter=stars>\n3\n</parameter>\n"
GLM = "<arg_key>title</arg_key>\n<arg_value>x</arg_value>\n<arg_key>stars</arg_key>\n<arg_value>3</arg_value>\n"
THOUGHT = "<think>\nhm\n</think>\n\n"
SHIPPED: dict[str, tuple[str, str]] = {
    "qwen3": (THOUGHT, f'<tool_call>\n{{"name": "save_note", "arguments": {JSON}}}\n</tool_call>'),
    "qwen3_5": (THOUGHT, f"<tool_call>\n<function=save_note>\n{TAGS}</function>\n</tool_call>"),
    "glm4moe": (THOUGHT, f"<tool_call>save_note\n{GLM}</tool_call>"),
    "llama3": ("", f'{{"name": "save_note", "parameters": {JSON}}}<|eot_id|>'),
    "nemotron_3": ("hm\n</think>\n", f"<tool_call>\n<function=save_note>\n{TAGS}</function>\n</tool_call>"),
    "gemma4": (
        "<|channel>thought\nhm<channel|>",
        '<|tool_call>call:save_note{stars:3,title:<|"|>x "y"<|"|>}<tool_call|>',
    ),
    "deepseek_r1_distill": ("hm\n</think>\n\n", ""),
}
"""How a reply in a shipped declaration spells reasoning, and a call."""
OPENED = ReplyStart.REASONING
HARMONY = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"


def reference(declared: Mapping[str, Any], text: str) -> Message:
    from transformers.utils.chat_parsing import parse_response

    frame = read_regions(declared).frame
    assert frame is not None
    message = parse_response(text, dict(declared), prefix=frame.example, tools=FUNCTIONS)
    thoughts = [message[key] for key in ("thinking", "reasoning", "reasoning_content") if message.get(key)]
    calls = message.get("tool_calls", [])
    found = []
    for call in calls if isinstance(calls, list) else [calls]:
        for one in call if isinstance(call, list) else [call]:
            function = one.get("function", one)
            arguments = function["arguments"]
            found.append((function["name"], json.loads(arguments) if isinstance(arguments, str) else arguments))
    return "".join(text for thought in thoughts for text in thought), message.get("content", ""), found


def ours(declared: Mapping[str, Any], text: str, **options: Any) -> Message:
    folded = parse_invariant(read_response_template(declared), text, **options)
    return folded.reasoning, folded.content, folded.plain_calls


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """The declarations in trl, read from its source: to import it would take torch."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None:
        pytest.skip("trl, whose declarations are compared, is not installed (pip install --no-deps trl)")
    tree = ast.parse((Path(spec.origin).parent / "chat_template_utils.py").read_text())
    values: dict[str, Any] = {"_SUPPORTS_PARSE_RESPONSE_TOOLS": True}
    for node in tree.body:
        source = ast.unparse(node)
        names = [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]
        made = isinstance(node, ast.For) or any(name.startswith(("_LFM2", "_XML")) for name in names)
        declared = any(name.endswith("_template") for name in names) and isinstance(node, ast.Assign)
        if made or (declared and isinstance(node.value, ast.Dict)):  # type: ignore[union-attr, attr-defined]
            exec(source, values)
    return {name[: -len("_template")]: value for name, value in values.items() if name.endswith("_template")}


@pytest.mark.parametrize("name", DECLARED)
def test_our_declarations_are_read_as_the_reference_reads_them(name: str) -> None:
    declared, reply = DECLARED[name]
    assert ours(declared, reply) == reference(declared, reply)
    answer = reply[: reply.index("Hi there") + 8]
    assert ours(declared, answer) == reference(declared, answer)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_declarations_are_read_as_the_reference_reads_them(name: str) -> None:
    declared = shipped()[name]
    thought, call = SHIPPED[name]
    start = OPENED if thought.startswith("hm") else ReplyStart.HEADER
    for text in ("", "Hi there", " Hi, 1 < 2.\n\n"):
        for reply in (thought + text, thought + text + call, thought + text + call + "\n" + call):
            assert ours(declared, reply, start=start) == reference(declared, reply), reply
    if start is ReplyStart.HEADER:
        assert ours(declared, call) == reference(declared, call)


@pytest.mark.parametrize(
    "reply",
    [
        HARMONY + "<|channel|>final<|message|>Hi there<|return|>",
        HARMONY + "<|channel|>final<|message|>Hi there",
        f"to=functions.save_note<|channel|>commentary json<|message|>{JSON}<|call|>",
    ],
)
def test_a_shipped_declaration_of_channels_is_read_as_the_reference_reads_it(reply: str) -> None:
    declared = shipped()["gptoss"]
    assert ours(declared, reply) == reference(declared, reply)


def test_every_shipped_declaration_is_compared_or_refused() -> None:
    refused = {"lfm2_2_5"}
    with pytest.raises(UnsupportedTemplateError, match="repetition within repetition"):  # may take exponential time
        read_response_template(shipped()["lfm2_2_5"])
    assert set(shipped()) - refused == {*SHIPPED, "gptoss"}


# Where we differ


def test_text_on_both_sides_of_a_call_is_kept() -> None:
    """The reference keeps the last text of a field alone."""
    declared, _ = DECLARED["lines"]
    reply = "One\n<call list_shelves></call>\nTwo"
    assert reference(declared, reply)[1] == "Two"
    assert ours(declared, reply)[1] == "One\n\nTwo"


def test_a_call_that_is_none_is_content() -> None:
    """The reference fails, with the whole reply."""
    declared, reply = DECLARED["harmony"]
    broken = reply.replace('"stars": 3}', '"stars": ')
    with pytest.raises(ValueError, match="JSON"):
        reference(declared, broken)
    assert ours(declared, broken)[2] == []
    assert '"stars": ' in ours(declared, broken)[1]


def test_text_outside_of_all_regions_is_content() -> None:
    """The reference drops it where no field takes it."""
    declared, _ = DECLARED["harmony"]
    assert reference(declared, "Just an answer")[1] == ""
    assert ours(declared, "Just an answer")[1] == "Just an answer"


def test_reasoning_that_the_prompt_opened_is_reasoning_before_its_end_is_seen() -> None:
    """The reference waits for the end before it says a word, and calls the text content where the end never comes."""
    declared = {
        "start_anchor": "<bot><think>\n",
        "fields": {"thinking": {"open_pattern": r"(?=[\s\S]*?</think>)", "close": "</think>"}, "content": {}},
    }
    assert reference(declared, "hm</think>Hi") == ("hm", "Hi", []) == ours(declared, "hm</think>Hi", start=OPENED)
    assert reference(declared, "hm") == ("", "hm", [])
    folded, parser = parse(read_response_template(declared), "hm", "length", start=OPENED)
    assert (folded.reasoning, parser.in_reasoning) == ("hm", True)
