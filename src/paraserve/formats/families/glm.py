"""Families that write a bare name and ``arg_key``/``arg_value`` pairs: GLM, Hunyuan, Ling.

Sources: the chat templates of the checkpoints named beside each description.
"""

from paraserve.formats.spec import Calls, Format, Parameters, Reasoning

_STOPS = ("<|endoftext|>", "<|user|>", "<|observation|>")

GLM_45 = Format(  # GLM-4.5, GLM-4.6
    "glm45",
    reasoning=Reasoning("<think>", "</think>", close_after="\n"),
    calls=(
        Calls(
            open="<tool_call>{name}\n",
            arguments=Parameters("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n"),
            close="</tool_call>",
            between="\n",
            before="\n",
        ),
    ),
    lead="\n",
    stop_tokens=_STOPS,
)

GLM_47 = Format(  # GLM-4.7, GLM-5, 5.1, 5.2, 5.3
    "glm47",
    reasoning=Reasoning("<think>", "</think>"),
    calls=(
        Calls(
            open="<tool_call>{name}",
            arguments=Parameters("<arg_key>{key}</arg_key><arg_value>", "</arg_value>"),
            close="</tool_call>",
        ),
    ),
    stop_tokens=_STOPS,
)

LING_3 = Format(  # Ling-3.0-flash
    "ling3",
    reasoning=Reasoning("<think>", "</think>"),
    calls=(
        Calls(
            open="<tool_call>{name}\n",
            arguments=Parameters("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>"),
            close="\n</tool_call>",
            between="\n",
            before="\n",
        ),
    ),
    stop_tokens=("<|role_end|>",),
)

HUNYUAN_3 = Format(  # Hy3
    "hunyuan3",
    reasoning=Reasoning("<think:opensource>", "</think:opensource>"),
    calls=(
        Calls(
            section_open="<tool_calls:opensource>\n",
            open="<tool_call:opensource>{name}<tool_sep:opensource>\n",
            arguments=Parameters(
                "<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
                "</arg_value:opensource>\n",
            ),
            close="</tool_call:opensource>",
            between="\n",
            section_close="\n</tool_calls:opensource>",
        ),
    ),
    stop_tokens=("<｜hy_eos:opensource｜>",),
)

FORMATS = (GLM_45, GLM_47, LING_3, HUNYUAN_3)
