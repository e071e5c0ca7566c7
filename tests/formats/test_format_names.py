"""Every parser name of SGLang 0.5.23 and vLLM 0.32 is a name here, or the docs say why it is not."""

from pathlib import Path

import pytest

from paraserve.formats.registry import FormatPart, UnknownFormatError, get_format

DOCS = Path(__file__).parents[2] / "docs" / "formats.md"
SGLANG_TOOLS = """
    apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots glm glm45
    glm47 gpt-oss k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 mistral muse poolside_v1 pythonic
    qwen qwen25 qwen3_coder spark25 step3 step3p5 minimax-m2 minimax-m3 nanbeige trinity interns1 hermes
    hunyuan gigachat3 gigachat35 gemma4 inkling iquest_q1 response_template
"""
SGLANG_REASONING = """
    apertus2509 beam deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 dots glm45 ling3 hunyuan gpt-oss
    k2_horizon kimi kimi_k2 kimi_k3 mimo muse poolside_v1 qwen3 qwen3-thinking minimax minimax-append-think
    minimax-m3 nanbeige step3 step3p5 mistral nemotron_3 granite_thinking_parser interns1 gemma4 gigachat35
    inkling iquest_q1 cohere_command4 response_template
"""
VLLM_TOOLS = """
    dots deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 cohere_command3 cohere_command4
    ernie45 glm45 glm47 ling3 granite-20b-fc granite granite4 hermes hf poolside_v1 hunyuan_a13b hy_v3 hy_v4
    internlm jamba lfm2 kimi_k2 kimi_k3 k2_horizon llama3_json llama4_json llama4_pythonic longcat mimo
    minimax_m2 minimax_m3 minicpm5 mistral olmo3 plamo3 muse_glimmer openai phi4_mini_json pythonic
    qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 inkling xlam gigachat3 functiongemma gemma4
    apertus
"""
VLLM_REASONING = """
    deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 poolside_v1 cohere_command3 cohere_command4 ernie45
    gemma4 glm45 glm47 ling3 openai_gptoss granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4
    kimi_k2 kimi_k3 k2_horizon mimo minicpmv minimax_m2 minimax_m2_append_think minimax_m3 mistral nemotron_v3
    olmo3 plamo3 muse_glimmer qwen3 seed_oss step3 step3p5 inkling
"""
NAMES: list[tuple[FormatPart, str]] = [
    *(("tools", name) for name in sorted({*SGLANG_TOOLS.split(), *VLLM_TOOLS.split()})),
    *(("reasoning", name) for name in sorted({*SGLANG_REASONING.split(), *VLLM_REASONING.split()})),
]


@pytest.mark.parametrize(("part", "name"), NAMES)
def test_a_parser_name_is_served_or_refused_with_a_reason(part: FormatPart, name: str) -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text[text.index("that are not supported, and why") : text.index("## Response templates")]
    refused = f"`{name}`" in table
    try:
        format = get_format(name, part)
    except UnknownFormatError:
        assert refused
    else:
        has_part = format.calls if part == "tools" else format.reasoning
        assert has_part or f"`{name}` (reasoning)" in table, format.name
