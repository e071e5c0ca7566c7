"""Families that write JSON calls between ``tool_call`` tags: Qwen2.5, Qwen3, Hermes, SmolLM, MiniMax-M1."""

from paraserve.formats.spec import Calls, Format, JsonEnvelope, Reasoning

_STOPS = ("<|im_end|>", "<|endoftext|>")
_ENVELOPE = JsonEnvelope()
_CALLS = Calls(open="<tool_call>\n", arguments=_ENVELOPE, close="\n</tool_call>", between="\n", before="\n")

HERMES = Format("hermes", calls=(_CALLS,), stop_tokens=_STOPS)  # Hermes-2/3, Qwen2.5, Qwen3-Instruct-2507, MiMo-VL

QWEN_3 = Format(  # Qwen3, Qwen3-Thinking-2507, QwQ
    "qwen3",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(_CALLS,),
    stop_tokens=_STOPS,
)

SMOLLM_3 = Format(
    "smollm3",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n"),
    calls=(_CALLS,),
    stop_tokens=("<|im_end|>",),
)

SMOLLM_2 = Format(  # 1.7B; the smaller ones have no tool syntax
    "smollm2",
    calls=(
        Calls(section_open="<tool_call>[", open="", arguments=_ENVELOPE, between=", ", section_close="]</tool_call>"),
    ),
    stop_tokens=("<|im_end|>",),
)

MINIMAX_M1 = Format(
    "minimax_m1",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(
        Calls(
            section_open="<tool_calls>\n",
            open="",
            arguments=_ENVELOPE,
            close="\n",
            section_close="</tool_calls>",
            before="\n",
        ),
    ),
    stop_tokens=("<end_of_sentence>",),
)

FORMATS = (HERMES, QWEN_3, SMOLLM_3, SMOLLM_2, MINIMAX_M1)
