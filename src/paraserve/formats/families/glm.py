"""Families that write a bare name and pairs of key and value tags: GLM, Hunyuan, Ling, IQuest, K2 Horizon, LongCat.

Sources: the chat templates of the checkpoints named beside each description; for IQuest-Q1 SGLang's parser and its
tests, for LongCat its model cards and published trajectories, for K2 Horizon vLLM's and SGLang's parsers of it and
recorded replies in engines that read its template.
"""

from dataclasses import replace

from paraserve.formats.families.styles import NAME_AND_ARGUMENTS, TIGHT, json_tag, pairs, respelled
from paraserve.formats.spec import Calls, Format, Parameters, Reasoning

_STOPS = ("<|endoftext|>", "<|user|>", "<|observation|>")


def _calls(calls: Calls) -> tuple[Calls, ...]:
    """The spelling; with a line break behind the name that is written as an escape; and with a first key that follows
    the name without its opening tag."""
    return calls, replace(calls, open=calls.open.rstrip() + "\\n"), replace(calls, glued=True)


GLM_45 = Format(  # GLM-4.5, GLM-4.6
    "glm45",
    reasoning=Reasoning("<think>", "</think>", close_after="\n"),
    calls=_calls(Calls("<tool_call>{name}\n", pairs("\n", "\n"), "</tool_call>", between="\n", before="\n")),
    lead="\n",
    stop_tokens=_STOPS,
)
GLM_47 = Format(  # GLM-4.7, GLM-5, 5.1, 5.2, 5.3
    "glm47", reasoning=TIGHT, calls=_calls(Calls("<tool_call>{name}", pairs(), "</tool_call>")), stop_tokens=_STOPS
)
LING_3 = Format(  # Ling-3.0-flash
    "ling3",
    reasoning=TIGHT,
    calls=_calls(Calls("<tool_call>{name}\n", pairs("\n"), "\n</tool_call>", between="\n", before="\n")),
    stop_tokens=("<|role_end|>",),
)
_HY3_CALLS = _calls(
    Calls(
        "<tool_call:opensource>{name}<tool_sep:opensource>\n",
        pairs("\n", "\n", suffix=":opensource"),
        "</tool_call:opensource>",
        "<tool_calls:opensource>\n",
        "\n</tool_calls:opensource>",
        between="\n",
    )
)
HUNYUAN_3 = Format(  # Hy3
    "hunyuan3",
    reasoning=Reasoning("<think:opensource>", "</think:opensource>"),
    calls=(*_HY3_CALLS, *(respelled(call, (":opensource", "")) for call in _HY3_CALLS)),
    stop_tokens=("<｜hy_eos:opensource｜>",),
)
IQUEST_Q1 = Format(
    "iquest_q1",
    reasoning=TIGHT,
    calls=_calls(Calls("<iquest_tool_call>{name}", pairs(call="iquest_tool_call"), "</iquest_tool_call>")),
    stop_tokens=("<|iquest_end|>",),
)

_IFM_OPEN, _IFM_VALUE = "<ifm|arg_key>{key}</ifm|arg_key>\n", "<ifm|arg_value>"
_IFM_CALLS = Calls(
    "<ifm|tool_call>{name}\n",
    Parameters(f"{_IFM_OPEN}{_IFM_VALUE}", "</ifm|arg_value>\n"),
    "</ifm|tool_call>\n",
    "<ifm|tool_calls>\n",
    "</ifm|tool_calls>",
    before="\n",
)
_IFM_TYPED = Parameters(f"{_IFM_OPEN}<ifm|arg_type>{{type}}</ifm|arg_type>\n{_IFM_VALUE}", "</ifm|arg_value>\n")
K2_HORIZON = Format(  # the template is asked for one of three spellings of calls, and thinks in one of three ways
    "k2_horizon",
    reasoning=Reasoning(
        "<ifm|think>",
        "</ifm|think>",
        open_after="\n",
        close_before="\n",
        close_after="\n",
        also=(("<ifm|think_fast>", "</ifm|think_fast>"), ("<ifm|think_faster>", "</ifm|think_faster>")),
    ),
    calls=(
        _IFM_CALLS,
        replace(_IFM_CALLS, arguments=_IFM_TYPED),
        replace(_IFM_CALLS, open="<ifm|tool_call>", arguments=NAME_AND_ARGUMENTS),
    ),
)

_LONGCAT_JSON = json_tag("longcat_tool_call", between="")
_LONGCAT_PAIRS = Calls(
    "<longcat_tool_call>{name}\n", pairs("\n", "\n", prefix="longcat_"), "</longcat_tool_call>", between="\n"
)
LONGCAT = Format("longcat", calls=(_LONGCAT_JSON, _LONGCAT_PAIRS), stop_tokens=("</longcat_s>",))  # LongCat-Flash-Chat
LONGCAT_2 = Format(  # LongCat-Flash-Lite, LongCat-Flash-Thinking-2601, LongCat-2.0
    "longcat2",
    reasoning=Reasoning("<longcat_think>", "</longcat_think>", open_after="\n", close_before="\n", close_after="\n"),
    calls=(_LONGCAT_PAIRS, _LONGCAT_JSON),
    stop_tokens=("</longcat_s>",),
)
