"""Names find formats, and templates are told apart."""

from pathlib import Path

import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.registry import UnknownFormatError, detect, format_names, get_format
from paraserve.formats.spec import PLAIN, Format, compose

EXPECTED = {
    "deepseek-r1-0528": "deepseek_r1",
    "deepseek-r1-0528.sglang-tools": "deepseek_r1",
    "deepseek-r1-distill": "deepseek_r1",
    "deepseek-r1": "deepseek_r1",
    "deepseek-r1.tools-rev": "deepseek_r1",
    "deepseek-v3-0324": "deepseek_v3",
    "deepseek-v3-0324.sglang-tools": "deepseek_v3",
    "deepseek-v3.1": "deepseek_v31",
    "deepseek-v3.1.llamacpp": "deepseek_v31",
    "deepseek-v3.1.sglang-tools": "deepseek_v31",
    "deepseek-v3.2-exp": "deepseek_v31",
    "deepseek-v3.2": "deepseek_v32",
    "deepseek-v3": "deepseek_v3",
    "deepseek-v4-flash-0731": "deepseek_v4",
    "deepseek-v4": "deepseek_v4",
    "devstral-2507": "mistral_v13",
    "gemma3": None,
    "gemma3.vllm-pythonic": "pythonic",
    "gemma4": "gemma4",
    "glm-4-9b-0414.vllm": "glm45",
    "glm-4.5": "glm45",
    "glm-4.6": "glm45",
    "glm-4.7": "glm47",
    "glm-5.3-flash": "glm47",
    "glm-5.3-flash.nothink-patch": "glm47",
    "gpt-oss": "gpt_oss",
    "hermes-2-pro": "hermes",
    "hermes-3": "hermes",
    "hermes.vllm": "hermes",
    "hunyuan-hy3": "hunyuan3",
    "kimi-k2-instruct": "kimi_k2",
    "kimi-k2-instruct.llamacpp": "kimi_k2",
    "kimi-k2-instruct.old": "kimi_k2",
    "kimi-k2-thinking": "kimi_k2",
    "kimi-k2-thinking.llamacpp": "kimi_k2",
    "kimi-k2.5": "kimi_k2",
    "kimi-k2.6": "kimi_k2",
    "kimi-k3": "kimi_k3",
    "lfm2.5": "lfm2",
    "ling-3.0-flash": "ling3",
    "llama-3.1": "llama3_json",
    "llama-3.1.vllm-json": "llama3_json",
    "llama-3.2": "llama3_json",
    "llama-3.2.vllm-pythonic": "pythonic",
    "llama-3.3": "llama3_json",
    "llama-4.vllm-pythonic": "pythonic",
    "mimo-v2.5": "mimo",
    "mimo-vl": "hermes",
    "minimax-m1": "minimax_m1",
    "minimax-m2": "minimax_m2",
    "minimax-m2.llamacpp": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "ministral-3-reasoning-2512": "mistral_v13",
    "mistral-7b-v0.3": "mistral_v3",
    "mistral-nemo-2407": "mistral_v3",
    "mistral-small-3.2-2506": "mistral_v11",
    "mistral.vllm-parallel": "mistral_v3",
    "nemotron-3-nano": "nemotron3",
    "qwen2.5": "hermes",
    "qwen3-coder": "qwen3_coder",
    "qwen3-coder.orig": "qwen3_coder",
    "qwen3-instruct-2507": "hermes",
    "qwen3-thinking-2507": "qwen3",
    "qwen3.5-nothink": "qwen35",
    "qwen3.5": "qwen35",
    "qwen3.6": "qwen36",
    "qwen3.8": "qwen36",
    "qwen3.hf-2025": "qwen3",
    "qwen3": "qwen3",
    "qwq-32b": "qwen3",
    "seed-oss": "seed_oss",
    "smollm2": None,
    "smollm3": "smollm3",
    "step-3.5-flash": "step3p5",
}


def test_every_format_is_found_by_its_own_name() -> None:
    for format in FORMATS:
        assert get_format(format.name) is format


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("glm45", "glm45"),
        ("glm47", "glm47"),
        ("kimi_k2", "kimi_k2"),
        ("qwen25", "hermes"),
        ("qwen3_coder", "qwen3_coder"),
        ("deepseekv31", "deepseek_v31"),
        ("hermes", "hermes"),
        ("pythonic", "pythonic"),
        ("mistral", "mistral_v13"),
        ("llama3", "llama3_json"),
        ("gpt-oss", "gpt_oss"),
        ("minimax-m2", "minimax_m2"),
        ("granite-20b-fc", "granite_20b_fc"),
        ("granite4", "hermes"),
        ("apertus2509", "apertus"),
        ("internlm", "interns1"),
        ("phi4_mini_json", "phi4_mini"),
        ("hy_v3", "hunyuan3"),
        ("step5", "step3p5"),
        ("poolside_v1", "glm45"),
        ("GLM45", "glm45"),
    ],
)
def test_parser_names_of_other_servers_are_aliases(alias: str, name: str) -> None:
    assert get_format(alias).name == name


def test_every_alias_leads_to_a_format() -> None:
    for part in ("both", "tools", "reasoning"):
        for name in format_names(part):  # type: ignore[arg-type]
            assert get_format(name, part) in FORMATS  # type: ignore[arg-type]


def test_unknown_name_is_refused_with_the_choices() -> None:
    with pytest.raises(UnknownFormatError, match=r"unknown output format 'gml45'.*glm45.*kimi_k2"):
        get_format("gml45")


def choose(*, reasoning: str | None = None, tools: str | None = None) -> Format:
    return compose(
        get_format(reasoning, "reasoning") if reasoning else PLAIN, get_format(tools, "tools") if tools else PLAIN
    )


def test_reasoning_and_tools_are_chosen_apart() -> None:
    format = choose(reasoning="qwen3", tools="qwen25")
    assert format.reasoning == get_format("qwen3").reasoning
    assert format.calls == get_format("hermes").calls
    assert choose(tools="kimi_k2").reasoning is None
    assert choose(reasoning="deepseek-v3").reasoning == get_format("deepseek_v31").reasoning
    assert choose(reasoning="deepseek-v3").calls == ()
    assert choose(reasoning="glm45", tools="glm45") == get_format("glm45")
    assert choose() == get_format("plain")


def test_formats_that_frame_the_whole_reply_cannot_be_combined() -> None:
    with pytest.raises(ValueError, match="cannot be combined"):
        choose(reasoning="gpt-oss", tools="hermes")
    with pytest.raises(ValueError, match="cannot be combined"):
        choose(reasoning="qwen3", tools="kimi_k3")


@pytest.mark.parametrize("template", EXPECTED)
def test_template_is_recognised(shared_assets: Path, template: str) -> None:
    text = (shared_assets / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
    found = detect(text)
    assert (found.name if found else None) == EXPECTED[template]


@pytest.mark.parametrize(
    ("fragment", "name"),
    [
        ("<|START_ACTION|>[{{ call }}]<|END_ACTION|><|START_RESPONSE|>", "cohere_command3"),
        ("<|START_ACTION|>[{{ call }}]<|END_ACTION|><|START_TEXT|>", "cohere_command4"),
        ("{{ '<|tools_prefix|>[' }}", "apertus"),
        ("{{ '<|action_start|><|plugin|>' }}", "interns1"),
        ("<longcat_tool_call>{{ call | tojson }}</longcat_tool_call>", "longcat"),
        ("<dots_function_call><invoke name=", "dots"),
        ("{{ '<｜GCML｜tool_calls>' }}", "gigachat35"),
        ("<iquest_tool_call>{{ name }}<arg_key>", "iquest_q1"),
        ("<|plamo:begin_tool_request:plamo|>", "plamo3"),
        ("<start_function_call>call:{{ name }}", "functiongemma"),
        ("<|start_of_role|>assistant<|end_of_role|><|tool_call|>", "granite"),
        ("<|start_of_role|>assistant<|end_of_role|><tool_call>{{ call }}", "hermes"),
        ("<|function_call_library|> <function_call> {{ call }}", "granite_20b_fc"),
        ("functools[{{ calls }}]", "phi4_mini"),
        ("{{ '<tool_calls>[' }} <|extra_0|>", "hunyuan_a13b"),
        ('[{"name": "tool_call_name", "arguments": {}}]', "xlam"),
        ("<functions>{{ tools }}</functions> <function_calls>{{ call }}</function_calls>", "olmo3"),
    ],
)
def test_markers_of_a_template_tell_the_family(fragment: str, name: str) -> None:
    found = detect("{% for message in messages %}" + fragment + "{% endfor %}")
    assert found is not None
    assert found.name == name


def test_every_template_of_the_assets_has_an_expectation(shared_assets: Path) -> None:
    assert {path.stem for path in (shared_assets / "templates").glob("*.jinja")} == set(EXPECTED)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ m.content }}<tool_call>{{ c.name }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>", "glm45"),
        ("<tool_call>{{ c.name }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>", "glm47"),
        ("<|tool_calls_section_begin|>{% for c in calls %}", "kimi_k2"),
        ("<think>{{ r }}</think><tool_call>{{ c | tojson }}</tool_call>", "qwen3"),
        ("<tool_call>{{ c | tojson }}</tool_call>", "hermes"),
        ("{{ bos }}{{ r }}</think>{{ m.content }}", "think"),
    ],
)
def test_essentials_of_a_template_are_enough(template: str, name: str) -> None:
    found = detect(template)
    assert found is not None
    assert found.name == name


def test_unknown_template_is_not_guessed_at() -> None:
    assert (
        detect("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", ["<tool_call>", "<think>"]) is None
    )


@pytest.mark.parametrize(
    ("tokens", "name"),
    [
        (["<think>", "</think>", "｜DSML｜", "<｜tool▁calls▁begin｜>"], "deepseek_v4"),
        (["<think>", "</think>", "<｜tool▁calls▁begin｜>"], "deepseek_v32"),
        (["[TOOL_CALLS]", "[ARGS]", "[THINK]"], "mistral_v13"),
        (["<|im_end|>"], None),
    ],
)
def test_without_a_template_the_added_tokens_decide(tokens: list[str], name: str | None) -> None:
    found = detect(None, tokens)
    assert (found.name if found else None) == name
