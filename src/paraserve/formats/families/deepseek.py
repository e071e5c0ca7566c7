"""DeepSeek: fenced JSON calls (R1, V3), bare JSON calls (V3.1), typed DSML parameters (V3.2, V4)."""

from dataclasses import replace

from paraserve.formats.families.styles import SPACED, TIGHT, invokes, respelled
from paraserve.formats.spec import Calls, Format, JsonObject

_STOPS = ("<｜end▁of▁sentence｜>",)
_BLOCKS = ("function_calls", "tool_calls")
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
)


def _dsml(block: str, space: str = "") -> tuple[Calls, ...]:
    """The spelling; then what models write in its place: the block of another version, calls without arguments in one
    tag, arguments as JSON, and the marks' pipes in ASCII."""
    mark = "｜DSML｜" + space
    calls = [invokes(mark + name, mark, typed=True, before="\n\n") for name in dict.fromkeys((block, *_BLOCKS))]
    calls += [
        replace(call, open=f'<{mark}invoke name="{{name}}"/>\n', arguments=JsonObject(), close="") for call in calls
    ]
    calls += [replace(call, arguments=JsonObject(braced=True)) for call in calls[: len(calls) // 2]]
    return (*calls, *(respelled(call, ("｜", "|")) for call in calls))


R1 = Format("deepseek_r1", reasoning=SPACED, calls=(_FENCED,), stop_tokens=_STOPS)  # R1, R1-0528, distills
V3 = Format("deepseek_v3", calls=(_FENCED,), stop_tokens=_STOPS)  # V3, V3-0324
V31 = Format("deepseek_v31", reasoning=TIGHT, calls=(_BARE,), stop_tokens=_STOPS)  # V3.1, Terminus, V3.2-Exp
V32 = Format("deepseek_v32", reasoning=TIGHT, calls=_dsml("function_calls"), stop_tokens=_STOPS)
V4 = Format("deepseek_v4", reasoning=TIGHT, calls=_dsml("tool_calls"), stop_tokens=_STOPS)
V41 = Format("deepseek_v41", reasoning=TIGHT, calls=_dsml("calls", " "), stop_tokens=_STOPS)
