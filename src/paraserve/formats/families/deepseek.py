"""DeepSeek: fenced JSON calls (R1, V3), bare JSON calls (V3.1), typed DSML parameters (V3.2, V4)."""

from dataclasses import replace

from paraserve.formats.families.styles import SPACED, TIGHT, invokes
from paraserve.formats.spec import Calls, Format, JsonObject

_STOPS = ("<｜end▁of▁sentence｜>",)
_END = "<｜tool▁call▁end｜>"
_BARE = Calls(
    "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
    JsonObject(),
    _END,
    section_open="<｜tool▁calls▁begin｜>",
    section_close="<｜tool▁calls▁end｜>",
)
_FENCED = replace(
    _BARE,
    open="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
    close=f"\n```{_END}",
    between="\n",
    also_closes=("```", _END),
)


def _dsml(block: str, space: str = "") -> Calls:
    mark = "｜DSML｜" + space
    return invokes(mark + block, mark, typed=True, before="\n\n")


R1 = Format("deepseek_r1", reasoning=SPACED, calls=(_FENCED,), stop_tokens=_STOPS)  # R1, R1-0528, distills
V3 = Format("deepseek_v3", calls=(_FENCED,), stop_tokens=_STOPS)  # V3, V3-0324
V31 = Format("deepseek_v31", reasoning=TIGHT, calls=(_BARE,), stop_tokens=_STOPS)  # V3.1, Terminus, V3.2-Exp
V32 = Format("deepseek_v32", reasoning=TIGHT, calls=(_dsml("function_calls"),), stop_tokens=_STOPS)
V4 = Format("deepseek_v4", reasoning=TIGHT, calls=(_dsml("tool_calls"),), stop_tokens=_STOPS)
V41 = Format("deepseek_v41", reasoning=TIGHT, calls=(_dsml("calls", " "),), stop_tokens=_STOPS)
