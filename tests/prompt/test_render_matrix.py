"""Every awkward conversation through every real template: nothing leaks, nothing is lost, nothing but a clean 400."""

from pathlib import Path

import jinja2
import pytest

from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.errors import PromptError
from tests.prompt.matrix_cases import CASES, TOOLS, judge, parts
from tests.prompt.real_templates import real_prompts
from tests.prompt.reference_jinja import Raised, render
from tests.prompt.requests import asked


def drops_text(source: str, takes: TemplateCapabilities) -> bool:
    """The template drops the text beside tool calls from messages that are already perfect for it."""
    if takes.call_text in ("dropped", "split_last"):
        return True
    try:
        return "CONTENT_SENT" not in render(source, CASES["args_dict"][0](), TOOLS)
    except (jinja2.TemplateError, Raised, TypeError):
        return False


@pytest.fixture(scope="module")
def prompts(shared_assets: Path) -> dict[Path, ChatPrompt]:
    return real_prompts(shared_assets)


@pytest.mark.parametrize("case", CASES)
def test_no_template_leaks_a_repr_or_loses_a_message(case, prompts):
    build, wanted = CASES[case]
    faults = []
    for path, prompt in prompts.items():
        takes = prompt.capabilities["default"]
        try:
            text = prompt.prepare(asked(build(), TOOLS)).text
        except PromptError as error:
            if not error.param.startswith("messages"):
                faults.append((path.stem, error.message))
            continue
        verdict = judge(text, wanted, drops_text_beside_calls=drops_text(path.read_text(), takes))
        if verdict != "ok":
            faults.append((path.stem, verdict))
    assert faults == []


def test_only_templates_without_tools_or_with_a_broken_sandbox_refuse(prompts):
    """The refusals of the matrix are known by name: a new one is a regression."""
    refused = set()
    for path, prompt in prompts.items():
        for build, _ in CASES.values():
            try:
                prompt.prepare(asked(build(), TOOLS))
            except PromptError:
                refused.add(path.stem)
    assert refused == {
        "gemma3",
        "glm-4-9b-0414.vllm",
        "kimi-k2-instruct.llamacpp",
        "kimi-k2-thinking.llamacpp",
        "smollm2",
        "smollm3",
    }


def test_text_beside_the_last_tool_call_is_never_lost(prompts):
    build, _ = CASES["args_dict"]
    messages = build()[:4]
    for path, prompt in prompts.items():
        if prompt.capabilities["default"].calls:
            assert "CONTENT_SENT" in prompt.prepare(asked(messages, TOOLS)).text, path.stem


def test_what_a_template_takes_goes_through_untouched(prompts):
    """Perfect messages, in the form that each template was written for, render byte for byte as in plain Jinja."""
    build, _ = CASES["args_dict"]
    for path, prompt in prompts.items():
        source = path.read_text()
        takes = prompt.capabilities["default"]
        messages = build()
        if not takes.calls:
            messages = [message for message in messages if message["role"] != "tool" and "tool_calls" not in message]
            messages = [messages[0], messages[1], messages[-2], messages[-1]]
        elif "object" not in takes.arguments:
            messages[2]["tool_calls"][0]["function"]["arguments"] = '{"city": "x"}'
        if takes.calls and takes.call_text != "shown":
            messages[2]["content"] = "" if "empty" in takes.call_contents else None
        if not takes.system:
            del messages[0]
        tools = TOOLS if takes.calls else None
        prepared = prompt.prepare(asked(messages, tools))
        assert prepared.text == render(source, messages, tools), path.stem
        assert set(prepared.normalizations) <= {"tools_not_in_prompt"}, path.stem


def test_templates_that_take_a_list_in_a_user_message_write_its_texts_with_nothing_between(prompts):
    """Why `joined_parts` joins so."""
    takers = [prompt for prompt in prompts.values() if "user" in prompt.capabilities["default"].lists]
    assert len(takers) == 33
    for prompt in takers:
        text = prompt.prepare(asked([{"role": "user", "content": parts("first", "second")}])).text
        assert "firstsecond" in text
