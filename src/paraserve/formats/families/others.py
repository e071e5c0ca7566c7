"""Families with a spelling of their own: Mistral, Llama's JSON, and those that write typed messages (gpt-oss, Muse
Glimmer, Inkling); and models without known calls.

Sources: the chat templates; for Inkling vLLM's and SGLang's parsers of it and their tests.
"""

from dataclasses import replace

from paraserve.formats.families.styles import PARAMETERS_FIRST, SPACED, json_list
from paraserve.formats.spec import Calls, Channels, Format, JsonEnvelope, JsonObject, Keywords, Parameters, Reasoning

# v1 to v3; the tokenizers of v3 show a space after the marker
_MISTRAL_LIST = json_list("[TOOL_CALLS] ", envelope=JsonEnvelope(id_key="id"))
_MISTRAL_ID = Calls("[TOOL_CALLS]{name}[CALL_ID]{id}[ARGS]", JsonObject())  # v11
_MISTRAL_ARGS = Calls("[TOOL_CALLS]{name}[ARGS]", JsonObject())  # v13

MISTRAL_V3 = Format("mistral_v3", calls=(_MISTRAL_LIST, _MISTRAL_ID, _MISTRAL_ARGS), ids="nine", stop_tokens=("</s>",))
MISTRAL_V11 = Format(
    "mistral_v11", calls=(_MISTRAL_ID, _MISTRAL_ARGS, _MISTRAL_LIST), ids="nine", stop_tokens=("</s>",)
)
MISTRAL_V13 = Format(  # Devstral, Ministral-3, Magistral
    "mistral_v13",
    reasoning=Reasoning("[THINK]", "[/THINK]"),
    calls=(_MISTRAL_ARGS, _MISTRAL_ID, _MISTRAL_LIST),
    ids="nine",
    stop_tokens=("</s>",),
)

LLAMA_3 = Format(  # Llama 3.1, 3.2, 3.3
    "llama3_json",
    calls=(
        Calls("", PARAMETERS_FIRST, between="; ", bare=True),
        Calls("", PARAMETERS_FIRST, section_open="<|python_tag|>", between="; "),
        Calls("{name}.call(", Keywords(), ")", section_open="<|python_tag|>", between="; "),
    ),
    stop_tokens=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
)
GPT_OSS = Format(
    "gpt_oss",
    reasoning=Reasoning("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    calls=(Calls("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", JsonObject(), "<|call|>"),),
    channels=Channels(
        opens=("<|start|>", "<|channel|>"),
        messages=("<|message|>",),
        closes=("<|end|>", "<|return|>", "<|call|>"),
        call=r"\bto=(?!(?:assistant|user|all)\b)(?:functions\.)?(?P<name>[^\s<]+)",
        reasoning=r"<\|channel\|>\s*analysis\b",
        preamble="<|channel|>commentary<|message|>",
        glued="json",
        continues="to=",
    ),
    content_open="<|channel|>final<|message|>",
    content_close="<|end|><|start|>assistant",
    stop_tokens=("<|return|>", "<|call|>"),
)
_ATEM = Calls(
    '<atem:function_calls>\n<atem:invoke name="{name}">\n',
    Parameters('<atem:parameter name="{key}">', "</atem:parameter>\n"),
    "</atem:invoke>\n</atem:function_calls>",
)
_NEXT = "<|eom|><|start|>assistant"
MUSE_GLIMMER = Format(
    "muse_glimmer",
    reasoning=Reasoning(" to=self<|message|>", _NEXT),
    calls=(
        replace(_ATEM, open=f" to={{name}}<|message|>{_ATEM.open}", between=_NEXT),
        _ATEM,
        replace(_ATEM, open='<atem:invoke name="{name}">\n'),  # more of them in one block
    ),
    channels=Channels(
        opens=("<|start|>",),
        messages=("<|message|>",),
        closes=("<|eom|>", "<|eot|>"),
        call="",
        reasoning=r"\bto=self\b",
        preamble=" to=user<|message|>",
        continues="to=",
    ),
    content_open=" to=user<|message|>",
    content_close=_NEXT,
    stop_tokens=("<|eot|>",),
)

_KINDS = ("<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>")
_TURN = "<|end_message|><|message_model|>"
INKLING = Format(
    "inkling",
    reasoning=Reasoning("<|content_thinking|>", _TURN),
    calls=(
        Calls(
            "{name}<|content_invoke_tool_json|>",
            JsonEnvelope(arguments_keys=("args",)),
            "<|end_message|>",
            between="<|message_model|>",
        ),
    ),
    channels=Channels(
        opens=("<|message_model|>", *_KINDS),
        messages=_KINDS,
        closes=("<|end_message|>", "<|content_model_end_sampling|>"),
        call=r"(?P<name>[^<>|]*)<\|content_invoke_tool_json\|>",
        reasoning=r"<\|content_thinking\|>",
        preamble="<|content_text|>",
        continues="{name}",
    ),
    content_open="<|content_text|>",
    content_close=_TURN,
    stop_tokens=("<|content_model_end_sampling|>",),
)
KIMI_VL = Format("kimi_vl", reasoning=Reasoning("◁think▷", "◁/think▷"))  # Kimi-VL-Thinking
THINK = Format("think", reasoning=SPACED)  # any model that marks its reasoning in the usual way
