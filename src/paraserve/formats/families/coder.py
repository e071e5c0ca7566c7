"""Families that write ``function=``/``parameter=`` tags: Qwen3-Coder and later Qwens, Step, Nemotron, MiMo, Seed."""

from dataclasses import replace

from paraserve.formats.families.styles import LINED, SPACED, TIGHT, functions, json_list, json_tag
from paraserve.formats.spec import Calls, Format, Parameters, Reasoning

_STOPS = ("<|im_end|>", "<|endoftext|>")
_PARAMETERS = Parameters("<parameter={key}>\n", "\n</parameter>\n", style="python_scalars")


def _calls(
    *, arguments: Parameters = _PARAMETERS, tag: str = "tool_call", between: str = "", before: str = ""
) -> tuple[Calls, ...]:
    """The spelling, what is near it, and JSON in its place."""
    return (
        *functions(arguments=arguments, tag=tag, between=between, before=before),
        json_tag(tag),
        json_list(f"<{tag}>", f"</{tag}>"),
    )


_SPACED_CALLS = _calls(between="\n", before="\n\n")

QWEN_3_CODER = Format("qwen3_coder", calls=_SPACED_CALLS, stop_tokens=_STOPS)
QWEN_35 = Format("qwen35", reasoning=SPACED, calls=_SPACED_CALLS, stop_tokens=_STOPS)
QWEN_36 = Format(  # Qwen3.6, Qwen3.8
    "qwen36",
    reasoning=SPACED,
    calls=_calls(arguments=replace(_PARAMETERS, style="json"), between="\n", before="\n\n"),
    stop_tokens=_STOPS,
)
STEP_35 = Format("step3p5", reasoning=LINED, calls=_calls(), stop_tokens=("<|im_end|>",))  # Step-3.5-Flash, Step-5
NEMOTRON_3 = Format("nemotron3", reasoning=LINED, calls=_calls(between="\n", before="\n"), stop_tokens=("<|im_end|>",))
MIMO = Format(  # MiMo-V2.5; V2.6 leaves out the newlines between tags
    "mimo",
    reasoning=TIGHT,
    calls=_calls(arguments=Parameters("<parameter={key}>", "</parameter>\n", style="python_scalars")),
    stop_tokens=_STOPS,
)
SEED_OSS = Format(
    "seed_oss",
    reasoning=Reasoning("<seed:think>", "</seed:think>", close_after="\n"),
    calls=_calls(
        arguments=Parameters("<parameter={key}>", "</parameter>\n", style="python"),
        tag="seed:tool_call",
        between="\n",
        before="\n\n",
    ),
    stop_tokens=("<seed:eos>",),
)
