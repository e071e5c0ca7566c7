"""Families that write JSON calls between tags: Qwen2.5, Qwen3, Hermes, SmolLM, MiniMax-M1, InternLM, ERNIE.

Sources: the chat templates; for ERNIE-4.5-Thinking vLLM's parsers of it and their tests.
"""

from paraserve.formats.families.styles import (
    LINED,
    NAME_AND_ARGUMENTS,
    PARAMETERS_FIRST,
    SPACED,
    json_list,
    json_tag,
    other_calls,
)
from paraserve.formats.spec import Calls, Format

_STOPS = ("<|im_end|>", "<|endoftext|>")
_CALLS = (json_tag("tool_call"), *other_calls())

HERMES = Format("hermes", calls=_CALLS, stop_tokens=_STOPS)  # Hermes-2/3, Qwen2.5, Qwen3-Instruct-2507, MiMo-VL
QWEN_3 = Format("qwen3", reasoning=SPACED, calls=_CALLS, stop_tokens=_STOPS)  # Qwen3, Qwen3-Thinking-2507, QwQ
SMOLLM_3 = Format("smollm3", reasoning=LINED, calls=_CALLS, stop_tokens=("<|im_end|>",))
SMOLLM_2 = Format(  # 1.7B; the smaller ones have no tool syntax
    "smollm2", calls=(json_list("<tool_call>", "</tool_call>"),), stop_tokens=("<|im_end|>",)
)
MINIMAX_M1 = Format(
    "minimax_m1",
    reasoning=SPACED,
    calls=(Calls("", NAME_AND_ARGUMENTS, "\n", "<tool_calls>\n", "</tool_calls>", before="\n"),),
    stop_tokens=("<end_of_sentence>",),
)
INTERN_S1 = Format(  # Intern-S1, InternLM2 and 2.5 (which write no space between the markers)
    "interns1",
    reasoning=SPACED,
    calls=(Calls("<|action_start|> <|plugin|>\n", PARAMETERS_FIRST, "<|action_end|>"),),
    stop_tokens=("<|im_end|>", "</s>"),
)
ERNIE_45 = Format(  # ERNIE-4.5-Thinking
    "ernie45", reasoning=SPACED, calls=_CALLS, content_open="<response>\n", content_close="\n</response>\n"
)
