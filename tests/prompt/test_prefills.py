"""Going on with an assistant's message: every real template that reasons, in every mode, with every kind of prefill."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from paraserve.formats.events import ContentDelta, ReasoningDelta
from paraserve.formats.output import parser_for
from paraserve.formats.registry import detect
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart
from paraserve.prompt.capabilities import probe_template
from paraserve.prompt.chat import ChatPrompt, PreparedPrompt
from paraserve.prompt.state import StartMarkers
from paraserve.prompt.template import ChatTemplate
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer
from tests.prompt.requests import asked

USER = {"role": "user", "content": "What is it?"}
MODES = {"default": {}, "on": {"enable_thinking": True}, "off": {"enable_thinking": False}}


@dataclass(frozen=True)
class Model:
    format: Format
    prompt: ChatPrompt
    opening: str
    closing: str

    def prepare(self, content: object, kwargs: dict[str, object], **fields: object) -> PreparedPrompt:
        messages = [USER, {"role": "assistant", "content": content, **fields}]
        return self.prompt.prepare(asked(messages, template_kwargs=kwargs, continue_final_message=True))

    def reply(self, prepared: PreparedPrompt, text: str) -> tuple[str, str]:
        """Reasoning and content that the client gets for what the model writes."""
        parser = parser_for(self.format)(self.format, start=prepared.start, prefill=prepared.prefill)
        events = [*parser.feed(text), *parser.finish("stop")]
        reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        return reasoning, "".join(event.text for event in events if isinstance(event, ContentDelta))

    def tail(self, prepared: PreparedPrompt) -> str:
        return prepared.text[prepared.text.rindex("What is it?") :]


@pytest.fixture(scope="module")
def models(shared_assets: Path) -> dict[str, Model]:
    made = {}
    for path in sorted((shared_assets / "templates").glob("*.jinja")):
        source = path.read_text()
        format = detect(source)
        if format is None or format.reasoning is None or format.reasoning.open.strip() not in source_of(path):
            continue
        opening, closing = format.reasoning.open.strip(), format.reasoning.close.strip()
        checkpoint = Checkpoint(path, ByteTokenizer(), {"default": source}, {"bos_token": "<s>"})
        prompt = ChatPrompt(checkpoint, markers=StartMarkers.of(format))
        made[path.stem] = Model(format, prompt, opening, closing)
    assert len(made) > 35
    return made


def source_of(path: Path) -> str:
    """The template's text, with the one family's marker spelled out that it builds with a suffix."""
    return path.read_text() + "<think:opensource> <|open|>think<|sep|>"


def cases(models):
    return [(f"{name} {mode}", model, kwargs) for name, model in models.items() for mode, kwargs in MODES.items()]


def check(models, prefill, judge):
    faults = []
    for label, model, kwargs in cases(models):
        text = prefill.replace("<think>", model.opening).replace("</think>", model.closing)
        prepared = model.prepare(text, kwargs)
        fault = judge(model, prepared, model.tail(prepared))
        if fault:
            faults.append((label, fault, model.tail(prepared)))
    assert faults == []


@pytest.mark.parametrize("prefill", ["<think>half", "<think>", "<think>\nhalf", "\n<think>half "])
def test_an_open_thought_goes_on_inside_reasoning_in_every_mode(models, prefill):
    def judge(model, prepared, tail):
        half = prefill.partition("<think>")[2]
        if prepared.start is not ReplyStart.REASONING or not prepared.thinks:
            return prepared.start
        if not tail.endswith(half) or tail.count(model.opening) != 1 or model.closing in tail:
            return "prompt"
        reply = model.reply(prepared, f"way{model.closing}ok")
        return reply if reply != ("way", "ok") and model.format.channels is None else None

    check(models, prefill, judge)


@pytest.mark.parametrize(
    "prefill", ["<think>a plan</think>", "<think>a plan</think>So", "<think>\na plan\n</think>\n\nSo "]
)
def test_a_closed_thought_stays_in_the_prompt_once_and_goes_on_as_content(models, prefill):
    def judge(model, prepared, tail):
        rest = prefill.partition("</think>")[2]
        if prepared.start is not ReplyStart.CONTENT or prepared.thinks:
            return prepared.start
        if tail.count(model.opening) != 1 or tail.count(model.closing) != 1 or tail.count("a plan") != 1:
            return "prompt"
        inner, _, behind = tail.partition(model.opening)[2].partition(model.closing)
        if inner.strip() != "a plan" or not behind.endswith(rest):
            return "order"
        if behind.removesuffix(rest).strip() not in ("", model.format.content_open, "<|channel|>final<|message|>"):
            return "between"
        reply = model.reply(prepared, " The answer")
        return reply if reply not in (("", " The answer"), ("", "The answer")) else None

    check(models, prefill, judge)


@pytest.mark.parametrize("prefill", ["plain", "  plain\n", "plain </think> text"])
def test_plain_text_ends_the_prompt_and_goes_on_as_content(models, prefill):
    def judge(model, prepared, tail):
        wanted = prefill.replace("</think>", model.closing)
        if model.format.channels and "</think>" in prefill:
            return None  # there the closing marker begins another message
        if prepared.start is not ReplyStart.CONTENT or not tail.endswith(wanted):
            return "prompt"
        reply = model.reply(prepared, " and more")
        return reply if reply != ("", " and more") else None

    check(models, prefill, judge)


@pytest.mark.parametrize("prefill", ["<think></think>So", "<think>\n\n</think>\n\nSo"])
def test_an_empty_thought_is_there_once_and_turns_nothing_on(models, prefill):
    def judge(model, prepared, tail):
        if prepared.start is not ReplyStart.CONTENT or not tail.endswith("So"):
            return "prompt"
        changed = [name for name in prepared.normalizations if not name.endswith("_not_used")]
        if tail.count(model.opening) > 1 or tail.count(model.closing) > 1 or changed:
            return "doubled"
        return None

    check(models, prefill, judge)


def test_a_thought_that_is_spelled_as_the_template_does_is_not_spaced_twice(models):
    faults = []
    for label, model, kwargs in cases(models):
        given = model.prepare("So ", kwargs, reasoning_content="a plan")
        header = model.prompt.prepare(asked([USER], template_kwargs=kwargs)).text
        at = given.text.rindex(model.opening, 0, given.text.rindex("a plan"))
        if given.text[:at].rstrip() != header.rstrip().removesuffix(model.opening).rstrip():
            continue  # a template that thinks in another place than where the model begins
        spelled = given.text[at:]
        same = model.prepare(spelled, kwargs)
        if (same.text, same.start) != (given.text, given.start):
            faults.append((label, spelled, model.tail(same)))
    assert faults == []


@pytest.mark.parametrize("content", [None, "So"])
def test_reasoning_in_its_own_field_is_never_lost(models, content):
    faults = []
    for label, model, kwargs in cases(models):
        prepared = model.prepare(content, kwargs, reasoning_content="a plan")
        tail = model.tail(prepared)
        wanted = ReplyStart.REASONING if content is None else ReplyStart.CONTENT
        if prepared.start is not wanted or tail.count("a plan") != 1 or not tail.endswith(content or "a plan"):
            faults.append((label, prepared.start, tail))
    assert faults == []


def test_the_prompt_of_a_thought_is_the_one_of_thinking_turned_on(models):
    for name in (
        "glm-4.5",
        "glm-4.7",
        "qwen3",
        "qwen3.5",
        "kimi-k2.5",
        "deepseek-v3.1",
        "gemma4",
        "smollm3",
        "hunyuan-hy3",
    ):
        model = models[name]
        on = model.prepare(f"{model.opening}half", {"enable_thinking": True})
        off = model.prepare(f"{model.opening}half", {"enable_thinking": False})
        assert off.text == on.text, name
        assert name == "hunyuan-hy3" or "thinking_on_for_prefill" in off.normalizations, name


def test_blanks_in_front_of_answers_are_found_in_the_templates_that_write_them(shared_assets):
    """Behind the generation prompt, and nothing but blanks: two of Mistral's."""
    found = {}
    for path in sorted((shared_assets / "templates").glob("*.jinja")):
        tokens = {"bos_token": "<s>", "eos_token": "</s>"}
        lead = probe_template(ChatTemplate.compile(path.read_text()), tokens).content_lead
        if lead:
            found[path.stem] = lead
    assert found == {"mistral-7b-v0.3": " ", "mistral.vllm-parallel": " "}
