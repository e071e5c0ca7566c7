"""Families that write their calls as a list in one block: Granite, Phi, Jamba, xLAM, Command, OLMo, Llama 4, LFM.

Sources: the chat templates named beside each description where one is public, else the parsers that SGLang 0.5.23 and
vLLM 0.33 ship for the family; for Jamba vLLM's tests of its parser.
"""

from paraserve.formats.families.styles import LINED, NAME_AND_ARGUMENTS, SPACED, TIGHT, json_list, python_list
from paraserve.formats.spec import Calls, Format, JsonEnvelope, JsonObject, Keywords, Reasoning

GRANITE = Format(  # Granite 3.0 to 3.3; 3.1 and later write the tag with ordinary characters
    "granite", calls=(json_list("<|tool_call|>"), json_list("<tool_call>")), stop_tokens=("<|end_of_text|>",)
)
GRANITE_FC = Format(  # granite-20b-functioncalling
    "granite_20b_fc", calls=(Calls("<function_call> ", NAME_AND_ARGUMENTS),), stop_tokens=("<|endoftext|>",)
)
PHI_4_MINI = Format("phi4_mini", calls=(json_list("functools"),), stop_tokens=("<|end|>", "<|endoftext|>"))
JAMBA = Format("jamba", calls=(json_list("<tool_calls>", "</tool_calls>", lines=True),))  # Jamba 1.5
XLAM = Format(  # xLAM-2 on Llama and on Qwen
    "xlam",
    calls=(json_list(""), json_list("<tool_call>", "</tool_call>"), json_list("[TOOL_CALLS]")),
    stop_tokens=("<|im_end|>", "<|eot_id|>"),
)
HUNYUAN_A13B = Format(
    "hunyuan_a13b",
    reasoning=LINED,
    calls=(json_list("<tool_calls>", "</tool_calls>"),),
    content_open="<answer>\n",
    content_close="\n</answer>",
    stop_tokens=("<|eos|>",),
)


def _command(name: str, content: str) -> Format:
    envelope = JsonEnvelope(name_keys=("tool_name", "name"), arguments_keys=("parameters", "arguments"))
    return Format(
        name,
        reasoning=Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=(json_list("<|START_ACTION|>", "<|END_ACTION|>", envelope=envelope, lines=True),),
        content_open=f"<|START_{content}|>",
        content_close=f"<|END_{content}|>",
        asides=("<co>", "</co: {sources}>"),
        stop_tokens=("<|END_OF_TURN_TOKEN|>",),
    )


COMMAND_3 = _command("cohere_command3", "RESPONSE")  # Command R7B, Command A
COMMAND_4 = _command("cohere_command4", "TEXT")  # Command A+

APERTUS = Format(
    "apertus",
    reasoning=Reasoning("<|inner_prefix|>", "<|inner_suffix|>"),
    calls=(Calls('{"{name}": ', JsonObject(), "}", "<|tools_prefix|>[", "]<|tools_suffix|>", between=", "),),
    stop_tokens=("<|assistant_end|>",),
)
OLMO_3 = Format(  # OLMo-3-Instruct and -Think
    "olmo3",
    reasoning=SPACED,
    calls=(Calls("{name}(", Keywords(), ")", "<function_calls>\n", "\n</function_calls>", between="\n"),),
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
)
PYTHONIC = Format(  # Llama 3.2 and 4, Gemma 3 with pythonic templates
    "pythonic",
    calls=(python_list(), python_list("<|python_start|>", "<|python_end|>")),
    stop_tokens=("<|eot|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
)
LFM_2 = Format(  # LFM2, LFM2.5
    "lfm2",
    reasoning=TIGHT,
    calls=(
        python_list("<|tool_call_start|>", "<|tool_call_end|>", repeats=True),
        json_list("<|tool_call_start|>", "<|tool_call_end|>"),
        Calls("<|tool_call_start|>", NAME_AND_ARGUMENTS, "<|tool_call_end|>"),
        python_list(),
    ),
    stop_tokens=("<|im_end|>",),
)
