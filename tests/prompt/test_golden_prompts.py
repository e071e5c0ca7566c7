"""Awkward conversations through us = perfect ones through plain Jinja, for real templates, by text and by ids."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paraserve.prompt.chat import ChatPrompt
from paraserve.prompt.state import StartMarkers
from paraserve.tokenizers.checkpoint import Checkpoint, load_checkpoint
from tests.prompt.byte_tokenizer import ByteTokenizer
from tests.prompt.matrix_cases import ARGUMENTS, TOOLS, call, parts
from tests.prompt.reference_jinja import render
from tests.prompt.requests import asked

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Profile:
    """What each template's author wrote it for, read from the template by hand."""

    tokenizer: str | None = None
    arguments: str = "object"
    several_systems: bool = True
    reasoning: str = "reasoning_content"
    one_call: bool = False
    images: bool = False
    closes_reasoning: str = ""


PROFILES = {
    "glm-4.5": Profile("glm-4.5"),
    "glm-4.7": Profile("glm-4.5"),
    "kimi-k2-instruct": Profile("kimi-k2", images=True),
    "kimi-k2-thinking": Profile("kimi-k2", images=True),
    "kimi-k2.5": Profile("kimi-k2", images=True),
    "kimi-k2.6": Profile("kimi-k2", images=True),
    "qwen3": Profile("qwen3"),
    "qwen3.5": Profile(None, several_systems=False, images=True),
    "deepseek-v3.1": Profile("deepseek-v3.1", arguments="string"),
    "llama-3.1": Profile("llama-3.1", one_call=True),
    "gpt-oss": Profile(None, several_systems=False, reasoning="thinking", one_call=True),
}
DUMPED = json.dumps(ARGUMENTS, ensure_ascii=False)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, *calls: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **fields}


def result(content: Any, call_id: str = "callid001") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def perfect_call(profile: Profile, name: str = "get_weather", number: str = "callid001") -> dict[str, Any]:
    return call(name, DUMPED if profile.arguments == "string" else ARGUMENTS, number)


def wire_call(name: str = "get_weather", number: str = "callid001") -> dict[str, Any]:
    return call(name, DUMPED, number)


def tool_string(profile: Profile) -> tuple[Messages, Messages]:
    turns = [user("weather?"), assistant(""), result("12 C")]
    return [turns[0], assistant("", wire_call()), turns[2]], [turns[0], assistant("", perfect_call(profile)), turns[2]]


def tool_list(profile: Profile) -> tuple[Messages, Messages]:
    awkward, perfect = tool_string(profile)
    return [*awkward[:2], result(parts("12 C", ", rain"))], [*perfect[:2], result("12 C, rain")]


def null_content(profile: Profile) -> tuple[Messages, Messages]:
    awkward, perfect = tool_string(profile)
    awkward[1] = {**awkward[1], "content": None, "refusal": None, "reasoning_content": None, "name": None}
    return awkward, perfect


def missing_content(profile: Profile) -> tuple[Messages, Messages]:
    awkward, perfect = tool_string(profile)
    del awkward[1]["content"]
    return awkward, perfect


def parallel(profile: Profile) -> tuple[Messages, Messages]:
    results = [result("12 C"), result("a page", "callid002")]
    second = ("search_docs", "callid002")
    awkward = [user("both"), assistant("", wire_call(), wire_call(*second)), *results]
    calls = perfect_call(profile), perfect_call(profile, *second)
    if profile.one_call:
        return awkward, [user("both"), assistant("", calls[0]), results[0], assistant("", calls[1]), results[1]]
    return awkward, [user("both"), assistant("", *calls), *results]


def developer(profile: Profile) -> tuple[Messages, Messages]:
    # gpt-oss names the role, and renders system and developer alike.
    return [{"role": "developer", "content": "Reply only PLUM"}, user("Peru?")], [
        system("Reply only PLUM"),
        user("Peru?"),
    ]


def reasoning(profile: Profile) -> tuple[Messages, Messages]:
    awkward, perfect = tool_string(profile)
    awkward[1]["reasoning"] = "It asks for weather."
    perfect[1][profile.reasoning] = "It asks for weather."
    return awkward, perfect


def unicode(profile: Profile) -> tuple[Messages, Messages]:
    text = "北京 🌤️ naïve\u2028line <b>&amp; \"q\" '\\n' עברית"
    return [system(parts(text)), user(parts(text, "!"))], [system(text), user(text + "!")]


def empty(profile: Profile) -> tuple[Messages, Messages]:
    return [system(""), user([]), assistant(None), user("")], [system(""), user(""), assistant(""), user("")]


def refused(profile: Profile) -> tuple[Messages, Messages]:
    turns = [{**assistant(None), "refusal": "Not that."}, {**assistant("Yes."), "refusal": None}]
    return [user("a"), turns[0], user("b"), turns[1], user("c")], [
        user("a"),
        assistant("Not that."),
        user("b"),
        assistant("Yes."),
        user("c"),
    ]


def several_systems(profile: Profile) -> tuple[Messages, Messages]:
    turns = [user("hi"), assistant("hello")]
    awkward = [system("A"), system("B"), *turns, system("C"), user("go")]
    perfect = awkward if profile.several_systems else [system("A\n\nB\n\nC"), *turns, user("go")]
    return awkward, perfect


def leading_developer_after_system(profile: Profile) -> tuple[Messages, Messages]:
    return [system("A"), {"role": "developer", "content": "B"}, user("C")], [system("A\n\nB"), user("C")]


def thirty_turns(profile: Profile) -> tuple[Messages, Messages]:
    awkward: Messages = [system(parts("You help."))]
    perfect: Messages = [system("You help.")]
    for turn in range(30):
        number = f"callid{turn:03}"
        wire, exact = wire_call(number=number), perfect_call(profile, number=number)
        awkward += [user(parts(f"question {turn}")), assistant(None, wire), result(parts(f"r{turn}"), number)]
        perfect += [user(f"question {turn}"), assistant("", exact), result(f"r{turn}", number)]
        awkward.append(assistant(parts(f"answer {turn}"), reasoning_content=f"thought {turn}"))
        perfect.append(assistant(f"answer {turn}", **{profile.reasoning: f"thought {turn}"}))
    return [*awkward, user("done?")], [*perfect, user("done?")]


CONVERSATIONS: list[Callable[[Profile], tuple[Messages, Messages]]] = [
    tool_string,
    tool_list,
    null_content,
    missing_content,
    parallel,
    developer,
    reasoning,
    unicode,
    empty,
    refused,
    several_systems,
    leading_developer_after_system,
    thirty_turns,
]


@pytest.fixture(scope="module")
def real_tokenizers(shared_assets: Path) -> dict[str, Any]:
    """The real ones, loaded once."""
    directory = shared_assets / "tokenizers"
    loaded: dict[str, Any] = {
        name: load_checkpoint(directory / name).tokenizer for name in ("glm-4.5", "qwen3", "deepseek-v3.1", "llama-3.1")
    }
    return loaded | {"kimi-k2": load_checkpoint(directory / "kimi-k2").tokenizer}


@pytest.fixture(scope="module")
def golden(shared_assets: Path, real_tokenizers: dict[str, Any]) -> Callable[[str], tuple[str, ChatPrompt]]:
    """A real template's text and its `ChatPrompt`."""
    made: dict[str, tuple[str, ChatPrompt]] = {}

    def get(name: str) -> tuple[str, ChatPrompt]:
        if name not in made:
            source = (shared_assets / "templates" / f"{name}.jinja").read_text()
            tokenizer = real_tokenizers.get(PROFILES[name].tokenizer or "", ByteTokenizer())
            checkpoint = Checkpoint(
                Path(name),
                tokenizer,
                {"default": source},
                {"bos_token": "<s>", "eos_token": "</s>"},
            )
            markers = (("<think>", "</think>"),)
            made[name] = source, ChatPrompt(checkpoint, markers=StartMarkers(markers), media=frozenset({"image"}))
        return made[name]

    return get


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda build: build.__name__)
@pytest.mark.parametrize("name", PROFILES)
def test_awkward_messages_render_as_perfect_ones(name, conversation, golden):
    source, prompt = golden(name)
    awkward, perfect = conversation(PROFILES[name])
    tools = TOOLS if any("tool_calls" in message for message in perfect) else None
    expected = render(source, perfect, tools)
    prepared = prompt.prepare(asked(awkward, tools))
    assert prepared.text == expected
    for message in perfect:
        content = message["content"]
        if message["role"] in ("user", "tool") and content:
            assert content.strip() in expected or json.dumps(content, ensure_ascii=False) in expected


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.tokenizer])
def test_token_ids_are_those_of_the_reference_tokenizer(name, golden, shared_assets):
    """The count is the model's own, because the ids are."""
    source, prompt = golden(name)
    awkward, perfect = thirty_turns(PROFILES[name])
    expected = render(source, perfect, TOOLS)
    prepared = prompt.prepare(asked(awkward, TOOLS))
    directory = shared_assets / "tokenizers" / str(PROFILES[name].tokenizer)
    if (directory / "tokenizer.json").is_file():
        import tokenizers as reference

        ids = (
            reference.Tokenizer.from_file(str(directory / "tokenizer.json"))
            .encode(expected, add_special_tokens=False)
            .ids
        )
        assert prepared.token_ids == ids
    else:
        assert prompt._checkpoint.tokenizer.decode(prepared.token_ids) == expected


@pytest.mark.parametrize("name", [name for name, profile in PROFILES.items() if profile.images])
def test_images_reach_the_template_and_the_engine(name, golden):
    source, prompt = golden(name)
    url = {"url": "data:image/png;base64,AAAA", "detail": "high"}
    messages = [user([{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": url}])]
    prepared = prompt.prepare(asked(messages))
    assert prepared.text == render(source, messages)
    assert [(item.kind, item.url) for item in prepared.media] == [("image", url["url"])]
    assert prepared.normalizations == ()


@pytest.mark.parametrize("name", PROFILES)
def test_a_plain_prefill_ends_the_prompt_with_the_clients_own_text(name, golden):
    source, prompt = golden(name)
    messages = [user("Count."), assistant("One, two, ")]
    prepared = prompt.prepare(asked(messages, continue_final_message=True))
    whole = render(source, messages, add_generation_prompt=False)
    shown = whole[: whole.rindex("One, two,")]
    assert prepared.text == shown + "One, two, "
    assert prepared.start.value == "content"
