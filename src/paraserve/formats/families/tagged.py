"""Families that write each call in tags of their own: MiniMax, Step-3, Dots, GigaChat, PLaMo, Gemma.

Sources: the chat templates named beside each description where one is public, else the parsers that SGLang 0.5.23 and
vLLM 0.33 ship for the family; for Dots a public port of its template, for PLaMo the maintainers' parsers, for
GigaChat 3.1 those of vLLM and SGLang alone.
"""

from dataclasses import replace

from paraserve.formats.families.styles import LINED, NAME_AND_ARGUMENTS, SPACED, invokes, json_tag
from paraserve.formats.spec import Calls, Elements, Format, JsonObject, Keywords, Parameters, QuotedObject, Reasoning

MINIMAX_M2 = Format(  # M2, M2.1, M2.5
    "minimax_m2", reasoning=SPACED, calls=(invokes("minimax:tool_call", before="\n"),), stop_tokens=("[e~[",)
)

_M3 = "]<]minimax[>["
MINIMAX_M3 = Format(
    "minimax_m3",
    reasoning=Reasoning("<mm:think>", "</mm:think>"),
    calls=(
        Calls(
            f'{_M3}<invoke name="{{name}}">',
            Elements(_M3),
            f"{_M3}</invoke>\n",
            f"{_M3}<tool_call>\n",
            f"{_M3}</tool_call>",
        ),
    ),
    stop_tokens=("[e~[",),
)
STEP_3 = Format(
    "step3",
    reasoning=LINED,
    calls=(
        Calls(
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">\n',
            Parameters('<steptml:parameter name="{key}">', "</steptml:parameter>\n"),
            "</steptml:invoke><｜tool_call_end｜>\n",
            "<｜tool_calls_begin｜>\n",
            "<｜tool_calls_end｜>",
        ),
    ),
    stop_tokens=("<|EOT|>",),
)

_DOTS = Calls(
    '<dots_function_call>\n<invoke name="{name}">\n',
    Parameters('<parameter name="{key}">\n', "\n</parameter>\n"),
    "</invoke>\n</dots_function_call>",
    between="\n",
    before="\n",
)
DOTS = Format(  # Dots-3; one block holds one call, and more are understood
    "dots",
    reasoning=SPACED,
    calls=(_DOTS, replace(_DOTS, open='<invoke name="{name}">\n'), json_tag("dots_function_call")),
    stop_tokens=("<|endofassistant|>",),
)
_GIGACHAT_CALL = Calls("function call<|role_sep|>\n", NAME_AND_ARGUMENTS, between="<|message_sep|>\n\n")
_GIGACHAT_MARKED = Calls("<|function_call|>", NAME_AND_ARGUMENTS)
GIGACHAT_3 = Format(  # GigaChat3; a call is a message of its own behind the answer, which may be empty
    "gigachat3",
    calls=(_GIGACHAT_CALL, _GIGACHAT_MARKED),
    content_close="<|message_sep|>\n\n",
    content_required=True,
    stop_tokens=("</s>",),
)
GIGACHAT_31 = Format(  # GigaChat3.1
    "gigachat31",
    calls=(_GIGACHAT_MARKED, replace(_GIGACHAT_CALL, close="<|message_sep|>\n\n", between="")),
    stop_tokens=("</s>",),
)
GIGACHAT_35 = Format(
    "gigachat35",
    reasoning=SPACED,
    calls=(invokes("｜GCML｜tool_calls", "｜GCML｜", typed=True),),
    stop_tokens=("<|message_sep|>", "</s>"),
)

_PLAMO = "<|plamo:{}:plamo|>".format
_PLAMO_NAME = f"{_PLAMO('begin_tool_request')}{_PLAMO('begin_tool_name')}{{name}}{_PLAMO('end_tool_name')}"
_PLAMO_CALLS = Calls(
    f"{_PLAMO_NAME}{_PLAMO('begin_tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>",
    JsonObject(),
    _PLAMO("end_tool_arguments") + _PLAMO("end_tool_request"),
    _PLAMO("begin_tool_requests"),
    _PLAMO("end_tool_requests"),
)
PLAMO_3 = Format(
    "plamo3",
    reasoning=Reasoning(_PLAMO("begin_think"), _PLAMO("end_think")),
    calls=(
        _PLAMO_CALLS,
        replace(_PLAMO_CALLS, open=f"{_PLAMO_NAME}{_PLAMO('begin_tool_arguments')}<|plamo:msg|>"),
    ),
    stop_tokens=("<|plamo:tag|>",),
)
_GEMMA_CALLS = Calls("<|tool_call>call:{name}", QuotedObject('<|"|>'), "<tool_call|>")
_GEMMA_OTHERS = (  # the name alone or in a namespace, parentheses, no braces where there are no arguments
    replace(_GEMMA_CALLS, open="<|tool_call>{name}"),
    Calls("<|tool_call>{name}(", Keywords('<|"|>'), ")<tool_call|>"),
    Calls("<|tool_call>{name}", Keywords('<|"|>'), "<tool_call|>"),
)
GEMMA_4 = Format(
    "gemma4",
    reasoning=Reasoning("<|channel>thought", "<channel|>", open_after="\n", close_before="\n"),
    calls=(_GEMMA_CALLS, *_GEMMA_OTHERS),
    stop_tokens=("<turn|>", "<|tool_response>"),
)
FUNCTION_GEMMA = Format(
    "functiongemma",
    calls=(Calls("<start_function_call>call:{name}", QuotedObject("<escape>"), "<end_function_call>"),),
    stop_tokens=("<end_of_turn>", "<start_function_response>"),
)
