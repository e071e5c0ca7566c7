"""Families with a spelling of their own: MiniMax, Mistral, Llama, pythonic, Gemma, Step-3, harmony (gpt-oss)."""

from paraserve.formats.spec import (
    Calls,
    Channels,
    Elements,
    Format,
    JsonEnvelope,
    JsonObject,
    Keywords,
    Parameters,
    QuotedObject,
    Reasoning,
)

MINIMAX_M2 = Format(  # M2, M2.1, M2.5
    "minimax_m2",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(
        Calls(
            section_open="<minimax:tool_call>\n",
            open='<invoke name="{name}">\n',
            arguments=Parameters('<parameter name="{key}">', "</parameter>\n"),
            close="</invoke>\n",
            section_close="</minimax:tool_call>",
            before="\n",
        ),
    ),
    stop_tokens=("[e~[",),
)

_M3 = "]<]minimax[>["
MINIMAX_M3 = Format(
    "minimax_m3",
    reasoning=Reasoning("<mm:think>", "</mm:think>"),
    calls=(
        Calls(
            section_open=f"{_M3}<tool_call>\n",
            open=f'{_M3}<invoke name="{{name}}">',
            arguments=Elements(_M3),
            close=f"{_M3}</invoke>\n",
            section_close=f"{_M3}</tool_call>",
        ),
    ),
    stop_tokens=("[e~[",),
)

_MISTRAL_THINK = Reasoning("[THINK]", "[/THINK]")
_MISTRAL_LIST = Calls(  # v1 to v3; the tokenizers of v3 show a space after the marker
    section_open="[TOOL_CALLS] [",
    open="",
    arguments=JsonEnvelope(id_key="id"),
    between=", ",
    section_close="]",
)
_MISTRAL_ID = Calls(open="[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]", arguments=JsonObject())  # v11
_MISTRAL_ARGS = Calls(open="[TOOL_CALLS]{name}[ARGS]", arguments=JsonObject())  # v13

MISTRAL_V3 = Format("mistral_v3", calls=(_MISTRAL_LIST, _MISTRAL_ID, _MISTRAL_ARGS), ids="nine", stop_tokens=("</s>",))
MISTRAL_V11 = Format(
    "mistral_v11", calls=(_MISTRAL_ID, _MISTRAL_ARGS, _MISTRAL_LIST), ids="nine", stop_tokens=("</s>",)
)
MISTRAL_V13 = Format(  # Devstral, Ministral-3, Magistral
    "mistral_v13",
    reasoning=_MISTRAL_THINK,
    calls=(_MISTRAL_ARGS, _MISTRAL_ID, _MISTRAL_LIST),
    ids="nine",
    stop_tokens=("</s>",),
)

_LLAMA_JSON = JsonEnvelope(arguments_keys=("parameters", "arguments"))
_LLAMA_STOPS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
LLAMA_3 = Format(  # Llama 3.1, 3.2, 3.3
    "llama3_json",
    calls=(
        Calls(open="", arguments=_LLAMA_JSON, between="; ", bare=True),
        Calls(section_open="<|python_tag|>", open="", arguments=_LLAMA_JSON, between="; "),
        Calls(section_open="<|python_tag|>", open="{name}.call(", arguments=Keywords(), close=")", between="; "),
    ),
    stop_tokens=_LLAMA_STOPS,
)

_LIST = Calls(
    section_open="[", open="{name}(", arguments=Keywords(), close=")", between=", ", section_close="]", bare=True
)
PYTHONIC = Format(  # Llama 3.2 and 4, Gemma 3 with pythonic templates
    "pythonic",
    calls=(
        _LIST,
        Calls(
            section_open="<|python_start|>[",
            open="{name}(",
            arguments=Keywords(),
            close=")",
            between=", ",
            section_close="]<|python_end|>",
        ),
    ),
    stop_tokens=("<|eot|>", *_LLAMA_STOPS),
)

LFM_2 = Format(  # LFM2, LFM2.5
    "lfm2",
    reasoning=Reasoning("<think>", "</think>"),
    calls=(
        Calls(
            section_open="<|tool_call_start|>[",
            open="{name}(",
            arguments=Keywords(),
            close=")",
            between=", ",
            section_close="]<|tool_call_end|>",
        ),
    ),
    stop_tokens=("<|im_end|>",),
)

GEMMA_4 = Format(
    "gemma4",
    reasoning=Reasoning("<|channel>thought", "<channel|>", open_after="\n", close_before="\n"),
    calls=(Calls(open="<|tool_call>call:{name}", arguments=QuotedObject('<|"|>'), close="<tool_call|>"),),
    stop_tokens=("<turn|>", "<|tool_response>"),
)

STEP_3 = Format(
    "step3",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n"),
    calls=(
        Calls(
            section_open="<｜tool_calls_begin｜>\n",
            open='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">\n',
            arguments=Parameters('<steptml:parameter name="{key}">', "</steptml:parameter>\n"),
            close="</steptml:invoke><｜tool_call_end｜>\n",
            section_close="<｜tool_calls_end｜>",
        ),
    ),
    stop_tokens=("<|EOT|>",),
)

GPT_OSS = Format(
    "gpt_oss",
    reasoning=Reasoning("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    calls=(
        Calls(
            open="<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
            arguments=JsonObject(),
            close="<|call|>",
        ),
    ),
    channels=Channels(
        opens=("<|start|>", "<|channel|>"),
        message="<|message|>",
        closes=("<|end|>", "<|return|>", "<|call|>"),
        call=r"\bto=(?:functions\.)?(?P<name>[^\s<]+)",
        reasoning=r"<\|channel\|>\s*analysis\b",
        preamble="<|channel|>commentary<|message|>",
        continues="to=",
    ),
    content_open="<|channel|>final<|message|>",
    content_close="<|end|><|start|>assistant",
    stop_tokens=("<|return|>", "<|call|>"),
)

THINK = Format(  # any model that marks its reasoning in the usual way and has no known tool syntax
    "think", reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n")
)

FORMATS = (
    THINK,
    MINIMAX_M2,
    MINIMAX_M3,
    MISTRAL_V3,
    MISTRAL_V11,
    MISTRAL_V13,
    LLAMA_3,
    PYTHONIC,
    LFM_2,
    GEMMA_4,
    STEP_3,
    GPT_OSS,
)
