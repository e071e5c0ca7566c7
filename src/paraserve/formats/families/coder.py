"""Families that write ``function=``/``parameter=`` tags: Qwen3-Coder and later Qwens, Step, Nemotron, MiMo, Seed."""

from dataclasses import replace

from paraserve.formats.spec import Calls, Format, Parameters, Reasoning

_STOPS = ("<|im_end|>", "<|endoftext|>")
_SPACED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n")
_CALLS = Calls(
    open="<tool_call>\n<function={name}>\n",
    arguments=Parameters("<parameter={key}>\n", "\n</parameter>\n", style="python_scalars"),
    close="</function>\n</tool_call>",
    between="\n",
    before="\n\n",
)
_JSON_SCALARS = replace(_CALLS, arguments=Parameters("<parameter={key}>\n", "\n</parameter>\n"))


QWEN_3_CODER = Format("qwen3_coder", calls=(_CALLS,), stop_tokens=_STOPS)
QWEN_35 = Format("qwen35", reasoning=_SPACED, calls=(_CALLS,), stop_tokens=_STOPS)
QWEN_36 = Format("qwen36", reasoning=_SPACED, calls=(_JSON_SCALARS,), stop_tokens=_STOPS)  # Qwen3.6, Qwen3.8

STEP_35 = Format(  # Step-3.5-Flash, Step-5
    "step3p5",
    reasoning=replace(_SPACED, close_after="\n"),
    calls=(replace(_CALLS, between="", before=""),),
    stop_tokens=("<|im_end|>",),
)

NEMOTRON_3 = Format(
    "nemotron3",
    reasoning=replace(_SPACED, close_after="\n"),
    calls=(replace(_CALLS, before="\n"),),
    stop_tokens=("<|im_end|>",),
)

MIMO = Format(  # MiMo-V2.5; V2.6 leaves out the newlines between tags
    "mimo",
    reasoning=Reasoning("<think>", "</think>"),
    calls=(
        replace(
            _CALLS,
            arguments=Parameters("<parameter={key}>", "</parameter>\n", style="python_scalars"),
            between="",
            before="",
        ),
    ),
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
)

SEED_OSS = Format(
    "seed_oss",
    reasoning=Reasoning("<seed:think>", "</seed:think>", close_after="\n"),
    calls=(
        replace(
            _CALLS,
            open="<seed:tool_call>\n<function={name}>\n",
            arguments=Parameters("<parameter={key}>", "</parameter>\n", style="python"),
            close="</function>\n</seed:tool_call>",
        ),
    ),
    stop_tokens=("<seed:eos>",),
)


def _with_bare_function(format: Format) -> Format:
    """Models leave out the outer opening tag now and then: that is understood as well."""
    (calls,) = format.calls
    return replace(format, calls=(calls, replace(calls, open="<function={name}>\n")))


FORMATS = tuple(
    _with_bare_function(format) for format in (QWEN_3_CODER, QWEN_35, QWEN_36, STEP_35, NEMOTRON_3, MIMO, SEED_OSS)
)
