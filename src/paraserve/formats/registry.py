"""Names of formats, and which format a checkpoint writes.

The one place (beside the descriptions) that knows models' names. Detection reads only the chat template and the
tokenizer's added tokens, never a path or a model id: what the template spells is what the model was trained to write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paraserve.formats.families import FORMATS
from paraserve.formats.spec import Format

_BY_NAME = {format.name: format for format in FORMATS}

# Names that SGLang and vLLM give their tool-call parsers, where they are not the format's own.
_TOOL_PARSERS = {
    "apertus2509": "apertus",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v41",
    "glm": "glm45",
    "glm4": "glm45",
    "glm4_moe": "glm45",
    "granite4": "hermes",
    "harmony": "gpt_oss",
    "hunyuan": "hunyuan3",
    "hy_v3": "hunyuan3",
    "internlm": "interns1",
    "k2_v3": "k2_horizon",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "minimax": "minimax_m1",
    "mistral": "mistral_v13",
    "muse": "muse_glimmer",
    "nanbeige": "qwen3_coder",
    "nemotron_3": "nemotron3",
    "openai": "gpt_oss",
    "phi4_mini_json": "phi4_mini",
    "poolside_v1": "glm45",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3": "hermes",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    "spark25": "glm47",
    "step5": "step3p5",
    "trinity": "hermes",
}
# Names that they give their reasoning parsers.
_REASONING_PARSERS = {
    "apertus2509": "apertus",
    "deepseek_v3": "deepseek_v31",
    "granite_thinking_parser": "nemotron3",
    "holo2": "qwen3",
    "hunyuan": "hunyuan3",
    "hy_v3": "hunyuan3",
    "kimi": "kimi_vl",
    "minimax": "minimax_m2",
    "mistral": "mistral_v13",
    "muse": "muse_glimmer",
    "nanbeige": "qwen3",
    "nemotron_3": "nemotron3",
    "nemotron_v3": "nemotron3",
    "openai_gptoss": "gpt_oss",
    "poolside_v1": "glm45",
    "qwen3_thinking": "qwen3",
    "step5": "step3p5",
}

FormatPart = Literal["both", "tools", "reasoning"]

_OWN = {name: name for name in _BY_NAME}
_ALIASES: Mapping[FormatPart, Sequence[Mapping[str, str]]] = {
    "tools": (_TOOL_PARSERS,),
    "reasoning": (_REASONING_PARSERS,),
    "both": (_TOOL_PARSERS, _REASONING_PARSERS),
}


class UnknownFormatError(ValueError):
    """The message names the choices; it is safe to show to an operator."""


def get_format(name: str, part: FormatPart = "both") -> Format:
    """A format by its name or by an alias; ``-`` and ``_`` are the same in a name.

    Where the two kinds of parsers of other servers use one name for different families, ``part`` says which one is
    meant; ``both`` prefers a format's own name, then the tool parser's.

    Raises:
        UnknownFormatError: listing what there is.
    """
    key = name.strip().lower().replace("-", "_")
    for table in (_OWN, *_ALIASES[part]) if part == "both" else (*_ALIASES[part], _OWN):
        if key in table:
            return _BY_NAME[table[key]]
    raise UnknownFormatError(f"unknown output format {name!r}; choose one of: {', '.join(format_names())}")


def format_names(part: FormatPart = "both") -> tuple[str, ...]:
    """All names and aliases, sorted."""
    return tuple(sorted(set(_OWN).union(*_ALIASES[part])))


@dataclass(frozen=True, slots=True)
class _Sign:
    """A format is written where all of ``has`` (regular expressions) and none of ``lacks`` is found."""

    format: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()


# The first sign that fits decides: what is special stands before what is common.
_TEMPLATE_SIGNS = (
    _Sign("gpt_oss", (r"<\|channel\|>", r"<\|message\|>")),
    _Sign("kimi_k3", (r"<\|open\|>", r"<\|sep\|>")),
    _Sign("kimi_k2", (r"<\|tool_calls_section_begin\|>",)),
    _Sign("hunyuan3", (r"<arg_key(:opensource|\{\})>", r"tool_sep")),
    _Sign("muse_glimmer", (r"<atem:function_calls>",)),
    _Sign("inkling", (r"<\|content_invoke_tool_json\|>",)),
    _Sign("k2_horizon", (r"<ifm\|tool_calls>",)),
    _Sign("minimax_m3", (r"\]<\]minimax\[>\[",)),
    _Sign("minimax_m2", (r"<minimax:tool_call>",)),
    _Sign("minimax_m1", (r"<beginning_of_sentence>", r"<tool_calls>")),
    _Sign("deepseek_v32", (r"｜DSML｜", r"function_calls")),
    _Sign("deepseek_v41", (r"｜DSML｜", r"(DSML｜|['\"<]) calls>")),
    _Sign("deepseek_v4", (r"｜DSML｜",)),
    _Sign("deepseek_r1", (r"<｜tool▁calls▁begin｜>", r"```json", r"</think>")),
    _Sign("deepseek_v3", (r"<｜tool▁calls▁begin｜>", r"```json")),
    _Sign("deepseek_v31", (r"<｜tool▁calls▁begin｜>",)),
    _Sign("step3", (r"<｜tool_calls_begin｜>",)),
    _Sign("cohere_command4", (r"<\|START_ACTION\|>", r"<\|START_TEXT\|>")),
    _Sign("cohere_command3", (r"<\|START_ACTION\|>",)),
    _Sign("apertus", (r"<\|tools_prefix\|>",)),
    _Sign("interns1", (r"<\|action_start\|>",)),
    _Sign("longcat2", (r"<longcat_tool_call>", r"longcat_arg_key")),
    _Sign("longcat", (r"<longcat_tool_call>",)),
    _Sign("dots", (r"<dots_function_call>",)),
    _Sign("gigachat35", (r"<｜GCML｜",)),
    _Sign("gigachat31", (r"<\|role_sep\|>", r"<\|function_call\|>")),
    _Sign("gigachat3", (r"<\|role_sep\|>", r"function call")),
    _Sign("iquest_q1", (r"<iquest_tool_call>|<\|iquest_assistant\|>",)),
    _Sign("plamo3", (r"<\|plamo:begin_tool_request:plamo\|>",)),
    _Sign("functiongemma", (r"<start_function_call>",)),
    _Sign("granite", (r"<\|start_of_role\|>", r"<\|tool_call\|>")),
    _Sign("granite_20b_fc", (r"<\|function_call_library\|>", r"<function_call> ")),
    _Sign("phi4_mini", (r"functools\[",)),
    _Sign("hunyuan_a13b", (r"<tool_calls>\[", r"<\|extra_0\|>")),
    _Sign("xlam", (r"\[\{\\?\"name\\?\": \\?\"tool_call_name",)),
    _Sign("olmo3", (r"<function_calls>", r"</functions>")),
    _Sign("gemma4", (r"<\|tool_call>call:",)),
    _Sign("seed_oss", (r"<seed:tool_call>",)),
    _Sign("lfm2", (r"<\|tool_call_start\|>",)),
    _Sign("mistral_v11", (r"\[TOOL_CALLS\]", r"\[CALL_ID\]")),
    _Sign("mistral_v13", (r"\[TOOL_CALLS\]", r"\[ARGS\]")),
    _Sign("mistral_v3", (r"\[TOOL_CALLS\]",)),
    _Sign("ling3", (r"<arg_key>", r"<role>ASSISTANT</role>")),
    _Sign("glm47", (r"</arg_key><arg_value>",)),
    _Sign("glm45", (r"<arg_key>", r"<tool_call>")),
    _Sign("qwen3_coder", (r"<function=", r"<parameter="), (r"</think>",)),
    _Sign("mimo", (r"<function=", r"<parameter=' [+~] \w+ [+~] '>' ?\}\}")),
    _Sign("nemotron3", (r"<function=", r"\"\\n</think>\\n\" ~")),
    _Sign("step3p5", (r"<function=", r"'\\n</think>\\n' \+")),
    _Sign("qwen36", (r"<function=", r"string if \w+ is string else \w+ \| tojson")),
    _Sign("qwen35", (r"<function=",)),
    _Sign("qwen3", (r"<tool_call>", r"</think>")),
    _Sign("hermes", (r"<tool_call>",)),
    _Sign("pythonic", (r"\[func_name1\(",)),
    _Sign("llama3_json", (r"\"name\": function name, \"parameters\"",)),
    _Sign("llama3_json", (r"<\|python_tag\|>",)),
    _Sign("smollm3", (r"</think>", r"reasoning_mode", r"SmolLM")),
    _Sign("think", (r"</think>",)),
)

# For checkpoints without a template (their prompts are written by code): the added tokens that only they have.
_TOKEN_SIGNS = (
    ("gpt_oss", ("<|channel|>", "<|message|>", "<|call|>")),
    ("kimi_k2", ("<|tool_calls_section_begin|>",)),
    ("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    ("minimax_m3", ("]<]minimax[>[",)),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("deepseek_v4", ("｜DSML｜",)),
    ("deepseek_v32", ("<｜tool▁calls▁begin｜>", "<think>")),
    ("deepseek_v3", ("<｜tool▁calls▁begin｜>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("gemma4", ("<|tool_call>", '<|"|>')),
    ("mistral_v11", ("[TOOL_CALLS]", "[CALL_ID]")),
    ("mistral_v13", ("[TOOL_CALLS]", "[ARGS]")),
    ("mistral_v3", ("[TOOL_CALLS]",)),
    ("glm47", ("<tool_call>", "<arg_key>")),
    ("qwen3", ("<tool_call>", "<think>")),
    ("hermes", ("<tool_call>",)),
    ("llama3_json", ("<|python_tag|>", "<|eom_id|>")),
    ("think", ("<think>", "</think>")),
)


def detect(chat_template: str | None, added_tokens: Collection[str] = ()) -> Format | None:
    """The format that a checkpoint of a known family writes; None when nothing speaks for any.

    A template has the say; the tokens are asked only where there is none, since a vocabulary often holds markers that
    a checkpoint was never trained to write.
    """
    if chat_template:
        for sign in _TEMPLATE_SIGNS:
            found = all(re.search(pattern, chat_template) for pattern in sign.has)
            if found and not any(re.search(pattern, chat_template) for pattern in sign.lacks):
                return _BY_NAME[sign.format]
        return None
    tokens = set(added_tokens)
    return next((_BY_NAME[name] for name, needed in _TOKEN_SIGNS if tokens.issuperset(needed)), None)
