"""Families that write each call in tags of their own: InternLM, LongCat, ERNIE, Dots, GigaChat, PLaMo, FunctionGemma.

Sources: the chat templates named beside each description where one is public, else the parsers that SGLang 0.5.23 and
vLLM 0.33 ship for the family.
"""

from paraserve.formats.spec import Calls, Format, JsonEnvelope, JsonObject, Parameters, QuotedObject, Reasoning

_SPACED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n")

INTERN_S1 = Format(  # Intern-S1, InternLM2 and 2.5 (which write no space between the markers)
    "interns1",
    reasoning=_SPACED,
    calls=(
        Calls(
            open="<|action_start|> <|plugin|>\n",
            arguments=JsonEnvelope(arguments_keys=("parameters", "arguments")),
            close="<|action_end|>",
        ),
    ),
    stop_tokens=("<|im_end|>", "</s>"),
)

LONGCAT = Format(  # LongCat-Flash
    "longcat",
    calls=(
        Calls(
            open="<longcat_tool_call>\n",
            arguments=JsonEnvelope(),
            close="\n</longcat_tool_call>",
            between="\n",
            before="\n",
        ),
    ),
)

ERNIE_45 = Format(  # ERNIE-4.5-Thinking
    "ernie45",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(Calls(open="<tool_call>\n", arguments=JsonEnvelope(), close="\n</tool_call>", between="\n", before="\n"),),
    content_open="<response>\n",
    content_close="\n</response>\n",
)

DOTS = Format(
    "dots",
    reasoning=_SPACED,
    calls=(
        Calls(
            section_open="<dots_function_call>\n",
            open='<invoke name="{name}">\n',
            arguments=Parameters('<parameter name="{key}">', "</parameter>\n"),
            close="</invoke>\n",
            section_close="</dots_function_call>",
        ),
    ),
)

GIGACHAT_35 = Format(
    "gigachat35",
    reasoning=_SPACED,
    calls=(
        Calls(
            section_open="<｜GCML｜tool_calls>\n",
            open='<｜GCML｜invoke name="{name}">\n',
            arguments=Parameters('<｜GCML｜parameter name="{key}" string="{string}">', "</｜GCML｜parameter>\n"),
            close="</｜GCML｜invoke>\n",
            section_close="</｜GCML｜tool_calls>",
        ),
    ),
    stop_tokens=("<|message_sep|>", "</s>"),
)

IQUEST_Q1 = Format(
    "iquest_q1",
    reasoning=_SPACED,
    calls=(
        Calls(
            open="<iquest_tool_call>{name}",
            arguments=Parameters("<arg_key>{key}</arg_key><arg_value>", "</arg_value>"),
            close="</iquest_tool_call>",
        ),
    ),
)

_PLAMO = "<|plamo:{}:plamo|>".format
PLAMO_3 = Format(
    "plamo3",
    reasoning=Reasoning(_PLAMO("begin_think"), _PLAMO("end_think")),
    calls=(
        Calls(
            section_open=_PLAMO("begin_tool_requests"),
            open=(
                f"{_PLAMO('begin_tool_request')}{_PLAMO('begin_tool_name')}{{name}}{_PLAMO('end_tool_name')}"
                f"{_PLAMO('begin_tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>"
            ),
            arguments=JsonObject(),
            close=_PLAMO("end_tool_arguments") + _PLAMO("end_tool_request"),
            section_close=_PLAMO("end_tool_requests"),
        ),
    ),
    stop_tokens=("<|plamo:tag|>",),
)

FUNCTION_GEMMA = Format(
    "functiongemma",
    calls=(
        Calls(
            open="<start_function_call>call:{name}",
            arguments=QuotedObject("<escape>"),
            close="<end_function_call>",
        ),
    ),
    stop_tokens=("<end_of_turn>", "<start_function_response>"),
)

KIMI_VL = Format("kimi_vl", reasoning=Reasoning("◁think▷", "◁/think▷"))  # Kimi-VL-Thinking

FORMATS = (
    INTERN_S1,
    LONGCAT,
    ERNIE_45,
    DOTS,
    GIGACHAT_35,
    IQUEST_Q1,
    PLAMO_3,
    FUNCTION_GEMMA,
    KIMI_VL,
)
