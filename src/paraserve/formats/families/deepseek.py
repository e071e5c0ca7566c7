"""DeepSeek: fenced JSON calls (R1, V3), bare JSON calls (V3.1), typed DSML parameters (V3.2, V4)."""

from dataclasses import replace

from paraserve.formats.spec import Calls, Format, JsonObject, Parameters, Reasoning

_STOPS = ("<｜end▁of▁sentence｜>",)
_FENCED = Calls(
    section_open="<｜tool▁calls▁begin｜>",
    open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
    arguments=JsonObject(),
    close="\n```<｜tool▁call▁end｜>",
    between="\n",
    section_close="<｜tool▁calls▁end｜>",
    also_closes=("```", "<｜tool▁call▁end｜>"),
)
_BARE = replace(
    _FENCED, open="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", close="<｜tool▁call▁end｜>", between="", also_closes=()
)


def _dsml(block: str, space: str = "") -> Calls:
    mark = "｜DSML｜" + space
    return Calls(
        section_open=f"<{mark}{block}>\n",
        open=f'<{mark}invoke name="{{name}}">\n',
        arguments=Parameters(f'<{mark}parameter name="{{key}}" string="{{string}}">', f"</{mark}parameter>\n"),
        close=f"</{mark}invoke>\n",
        section_close=f"</{mark}{block}>",
        before="\n\n",
    )


_TIGHT = Reasoning("<think>", "</think>")

R1 = Format(  # R1, R1-0528, distills
    "deepseek_r1",
    reasoning=Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n"),
    calls=(_FENCED,),
    stop_tokens=_STOPS,
)
V3 = Format("deepseek_v3", calls=(_FENCED,), stop_tokens=_STOPS)  # V3, V3-0324
V31 = Format("deepseek_v31", reasoning=_TIGHT, calls=(_BARE,), stop_tokens=_STOPS)  # V3.1, Terminus, V3.2-Exp
V32 = Format("deepseek_v32", reasoning=_TIGHT, calls=(_dsml("function_calls"),), stop_tokens=_STOPS)
V4 = Format("deepseek_v4", reasoning=_TIGHT, calls=(_dsml("tool_calls"),), stop_tokens=_STOPS)
V41 = Format("deepseek_v41", reasoning=_TIGHT, calls=(_dsml("calls", " "),), stop_tokens=_STOPS)

FORMATS = (R1, V3, V31, V32, V4, V41)
