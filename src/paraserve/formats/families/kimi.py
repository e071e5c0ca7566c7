"""Kimi K2 (a section of JSON calls, ids that count over the conversation) and K3 (typed channels)."""

from paraserve.formats.families.styles import TIGHT, respelled
from paraserve.formats.spec import Calls, Format, JsonObject, Parameters, Reasoning

_K2_CALLS = Calls(
    "<|tool_call_begin|>{id}<|tool_call_argument_begin|>",
    JsonObject(),
    "<|tool_call_end|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
)
KIMI_K2 = Format(  # K2-Instruct, K2-Thinking, K2.5, K2.6
    "kimi_k2",
    reasoning=TIGHT,
    calls=(_K2_CALLS, respelled(_K2_CALLS, ("tool_calls_section", "tool_call_section"))),
    ids="counted",
    stop_tokens=("<|im_end|>", "[EOS]"),
)

KIMI_K3 = Format(
    "kimi_k3",
    reasoning=Reasoning("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    calls=(
        Calls(
            '<|open|>call tool="{name}" index="{index}"<|sep|>',
            Parameters(
                '<|open|>argument key="{key}" type="{type}"<|sep|>',
                "<|close|>argument<|sep|>",
                entities=(("&", "&amp;"), ('"', "&quot;")),
            ),
            "<|close|>call<|sep|>",
            "<|open|>tools<|sep|>",
            "<|close|>tools<|sep|>",
            first_index=1,
        ),
    ),
    content_open="<|open|>response<|sep|>",
    content_close="<|close|>response<|sep|>",
    content_required=True,
    may_lack="<|sep|>",
    end="<|close|>message<|sep|>",
    stop_tokens=("<|end_of_msg|>",),
)
