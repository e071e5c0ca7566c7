"""What a description writes, the parser reads back, however the text is cut.

Values hold anything that a family can carry: any unicode, quotes, line breaks, and the text of its own markers.
`PARASERVE_FORMAT_EXAMPLES` sets how many replies are tried for each family (for longer runs by hand).
"""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from paraserve.formats.reading.tables import compile_format
from paraserve.formats.spec import Elements, Format, Parameters, QuotedObject
from paraserve.formats.templates import is_special, pieces
from paraserve.formats.types import ReplyStart, ToolSpec
from tests.formats.formats_kit import TOOLS, WITH_CALLS, each, parse, random_split
from tests.formats.render import Call, render

EXAMPLES = int(os.environ.get("PARASERVE_FORMAT_EXAMPLES", "40"))
NESTED = ToolSpec(
    "nest",
    {
        "type": "object",
        "properties": {
            "item_list": {"type": "array", "items": {"$ref": "#/$defs/row"}},
            "deep": {"$ref": "#/$defs/row"},
        },
        "$defs": {
            "row": {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}},
        },
    },
)


def texts(format: Format) -> st.SearchStrategy[str]:
    """Text with the family's markers, and pieces of them, strewn in."""
    markers = sorted(format.marker_texts) or ["<x>"]
    beginnings = [marker[: max(1, len(marker) // 2)] for marker in markers]
    odd = [
        "\n",
        "\n\n",
        " ",
        '"',
        "'",
        "\\",
        "{",
        "}",
        "[",
        "]",
        "<",
        ">",
        "&amp;",
        "null",
        "1.0",
        "True",
        "\\n",
        "\r\n",
        "]]>",
    ]
    piece = st.one_of(
        st.sampled_from(markers + beginnings + odd),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.sampled_from(["plain words ", "日本語", "🌤️", "é́", "a < b && c"]),
    )
    return st.lists(piece, max_size=8).map("".join)


def json_objects(format: Format) -> st.SearchStrategy[dict[str, Any]]:
    scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    leaves = st.one_of(scalars, argument_strings(format))
    keys = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
    values = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
    )
    return st.dictionaries(keys, values, max_size=3)


def argument_strings(format: Format) -> st.SearchStrategy[str]:
    return texts(format).filter(lambda value: can_carry(format, value))


def can_carry(format: Format, value: str) -> bool:
    """Whether the family's syntax can hold the string (nothing is escaped in some)."""
    spelling = compile_format(format, calls=True).spellings[0]
    match format.calls[0].arguments:
        case Parameters(close=close):
            end = spelling.markup.end  # type: ignore[union-attr]
            closing = close[: len(close) - len(close.lstrip())] + close.strip()
            after = value + closing + pieces(format.calls[0].close)[-1].text  # type: ignore[union-attr]
            first = end.whole.search(after)
            return first is not None and first.start() == len(value)
        case Elements(tag=mark) | QuotedObject(quote=mark):
            return mark not in value and not any(value.endswith(mark[:n]) for n in range(1, len(mark)))
        case _:
            return True


@st.composite
def calls(draw: st.DrawFn, format: Format) -> Call:
    strings = argument_strings(format)
    labels = strings.filter(lambda text: text.strip() not in ("null", "None"))
    numbers = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
    elements = isinstance(format.calls[0].arguments, Elements)
    optional: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "save_note": {"title": strings, "body": strings, "stars": st.integers()},
        "list_shelves": {},
        "v2.set-rate": {"rate": numbers, "exact": st.booleans(), "label": labels if elements else labels | st.none()},
    }
    rows = st.fixed_dictionaries({"text": strings, "count": st.integers()})
    if elements:
        optional["nest"] = {"item_list": st.lists(rows, min_size=1, max_size=3), "deep": rows}
    else:
        optional["save_note"]["opts"] = json_objects(format)
    name = draw(st.sampled_from(sorted(optional)))
    arguments = draw(st.fixed_dictionaries({}, optional=optional[name]))
    keys = draw(st.permutations(sorted(arguments)))
    id_ = draw(st.from_regex(r"[A-Za-z0-9]{9}", fullmatch=True)) if format.ids == "nine" else ""
    return Call(name, {key: arguments[key] for key in keys}, id_)


def prose(format: Format, *, forbidden: list[str]) -> st.SearchStrategy[str]:
    """Text that is not only whitespace (that is layout) and holds none of the markers that would end it."""
    return texts(format).filter(lambda text: bool(text.strip(" \t\r\n")) and not any(m in text for m in forbidden))


@each(WITH_CALLS)
def test_what_is_written_is_read_back(format: Format) -> None:
    channels = format.channels
    frames = [*format.frame_markers, *((*channels.opens, *channels.closes) if channels else ())]
    frames += [text for text in format.marker_texts if is_special(text)]
    closing = [format.reasoning.close] if format.reasoning else []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    @given(data=st.data(), seed=st.integers(0, 2**32))
    def run(data: st.DataObject, seed: int) -> None:
        start = data.draw(st.sampled_from(ReplyStart))
        reasoning = None
        if format.reasoning and start is not ReplyStart.CONTENT:
            reasoning = data.draw(prose(format, forbidden=[*closing, *frames]))
            assume(not reasoning.lstrip().startswith((format.reasoning.open, format.reasoning.close)))
        content = "" if format.calls[0].bare else data.draw(st.just("") | prose(format, forbidden=frames))
        if start is ReplyStart.HEADER and reasoning is None:
            assume(not content.lstrip().startswith("to="))
        made = data.draw(st.lists(calls(format), max_size=3))
        text = render(format, reasoning=reasoning, content=content, calls=made, start=start)
        folded, parser = parse(format, random_split(text, seed), tools=(*TOOLS, NESTED), start=start)
        assert folded.reasoning == (reasoning or "")
        assert folded.content == content
        got = [(name, json.dumps(value, sort_keys=True)) for name, value in folded.plain_calls]
        assert got == [(call.name, json.dumps(dict(call.arguments), sort_keys=True)) for call in made]
        assert parser.completed_calls == len(made)

    run()
