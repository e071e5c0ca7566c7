"""Families that write their calls as a list in one block: Granite, Phi, Jamba, xLAM, Command, OLMo, Apertus.

Sources: the chat templates named beside each description where one is public, else the parsers that SGLang 0.5.23 and
vLLM 0.33 ship for the family.
"""

from paraserve.formats.spec import Calls, Format, JsonEnvelope, JsonObject, Keywords, Reasoning

_ENVELOPE = JsonEnvelope()


def _list(opening: str, closing: str = "", *, arguments: JsonEnvelope = _ENVELOPE, bare: bool = False) -> Calls:
    return Calls(
        section_open=opening + "[",
        open="",
        arguments=arguments,
        between=", ",
        section_close="]" + closing,
        bare=bare,
    )


GRANITE = Format(  # Granite 3.0 to 3.3; 3.1 and later write the tag with ordinary characters
    "granite", calls=(_list("<|tool_call|>"), _list("<tool_call>")), stop_tokens=("<|end_of_text|>",)
)
GRANITE_FC = Format(  # granite-20b-functioncalling
    "granite_20b_fc", calls=(Calls(open="<function_call> ", arguments=_ENVELOPE),), stop_tokens=("<|endoftext|>",)
)
PHI_4_MINI = Format("phi4_mini", calls=(_list("functools"),), stop_tokens=("<|end|>", "<|endoftext|>"))
JAMBA = Format("jamba", calls=(_list("<tool_calls>", "</tool_calls>"),))
XLAM = Format(  # xLAM-2 on Llama and on Qwen
    "xlam",
    calls=(
        _list("", bare=True),
        _list("<tool_call>", "</tool_call>"),
        _list("[TOOL_CALLS]"),
    ),
    stop_tokens=("<|im_end|>", "<|eot_id|>"),
)
HUNYUAN_A13B = Format(
    "hunyuan_a13b",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n"),
    calls=(_list("<tool_calls>", "</tool_calls>"),),
    content_open="<answer>\n",
    content_close="\n</answer>",
    stop_tokens=("<|eos|>",),
)


def _command(name: str, content: str) -> Format:
    envelope = JsonEnvelope(name_keys=("tool_name", "name"), arguments_keys=("parameters", "arguments"))
    return Format(
        name,
        reasoning=Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
        calls=(
            Calls(
                section_open="<|START_ACTION|>[\n    ",
                open="",
                arguments=envelope,
                between=",\n    ",
                section_close="\n]<|END_ACTION|>",
            ),
        ),
        content_open=f"<|START_{content}|>",
        content_close=f"<|END_{content}|>",
        stop_tokens=("<|END_OF_TURN_TOKEN|>",),
    )


COMMAND_3 = _command("cohere_command3", "RESPONSE")  # Command R7B, Command A
COMMAND_4 = _command("cohere_command4", "TEXT")  # Command A+

APERTUS = Format(
    "apertus",
    reasoning=Reasoning("<|inner_prefix|>", "<|inner_suffix|>"),
    calls=(
        Calls(
            section_open="<|tools_prefix|>[",
            open='{"{name}": ',
            arguments=JsonObject(),
            close="}",
            between=", ",
            section_close="]<|tools_suffix|>",
        ),
    ),
    stop_tokens=("<|assistant_end|>",),
)

OLMO_3 = Format(  # OLMo-3-Instruct and -Think
    "olmo3",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(
        Calls(
            section_open="<function_calls>\n",
            open="{name}(",
            arguments=Keywords(),
            close=")",
            between="\n",
            section_close="\n</function_calls>",
        ),
    ),
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
)

FORMATS = (
    GRANITE,
    GRANITE_FC,
    PHI_4_MINI,
    JAMBA,
    XLAM,
    HUNYUAN_A13B,
    COMMAND_3,
    COMMAND_4,
    APERTUS,
    OLMO_3,
)
