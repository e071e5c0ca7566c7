"""The markup of arguments that are written as one element each, compiled for `parameters.ParametersReader`.

It says where a value ends: at its closing marker with markup behind it, and (where models leave that marker out or
write another one) at what can only follow a value. Three things can: the opener of an argument, the remaining closing
markup of the call with another call behind it, and the same at the end of the reply. It knows no schema: whether a key
is declared, and whether a name is, the reader asks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paraserve.formats.reading.patterns import (
    Atom,
    Markers,
    Pattern,
    any_closer,
    any_of,
    at_most,
    compile_pattern,
    compile_sources,
    layout,
    literal,
    one_of,
    source_of,
)
from paraserve.formats.spec import Parameters
from paraserve.formats.templates import Piece, Text, pieces

Sequences = Sequence[Sequence[Piece]]


@dataclass(frozen=True, slots=True)
class ParameterMarkup:
    opens: tuple[Pattern, ...]
    """The family's own opener, then what is read for it."""
    lead: str
    close: str
    end: Pattern
    """Where a value may end. What must be declared for it to be one stands in groups, ``key…`` and ``name…``."""
    quoting: Pattern
    """The opener of a call that the value tells of."""
    closed: Pattern
    """The end as the family writes it."""
    remaining: re.Pattern[str]
    """What is left at the end of a reply whose last value was not closed: the call's closing markup."""
    closers: tuple[str, ...]
    """What may stand in place of the closing marker."""
    on_lines: bool
    """Openers stand on lines of their own."""
    breaks: bool
    """Line breaks at the end of a text may belong to markup that follows."""
    trigger: re.Pattern[str]
    """A character without which no end begins."""
    enders: Markers
    meant: Callable[[str], str]
    """The key that is meant by what stands for it."""
    wraps: bool
    """All arguments may stand as one object under a key that is none."""
    python: bool
    """Whether the family writes Python's words."""


def compile_parameters(
    parameters: Parameters,
    closing: Sequence[str],
    enders: Sequence[str],
    headers: Sequences,
    quoting: Sequence[str],
    *,
    before_closing: str = "",
    may_lack: str = "",
) -> ParameterMarkup:
    """Args:
    closing: the closing markup of the call and of its section, in order.
    enders: all that ends the arguments where a parameter might begin.
    headers: how another call may begin, with the beginning of its arguments.
    before_closing: whitespace that the family writes before ``closing``.
    quoting: openers that a value holds only where it tells of calls.
    may_lack: the end of a marker without which it is the same one.
    """
    opens = parameters.open.rstrip()
    close = parameters.close.strip()
    trail = parameters.close[: len(parameters.close) - len(parameters.close.lstrip())]
    own_breaks = trail + parameters.close[len(parameters.close.rstrip()) :]
    breaks = own_breaks or before_closing
    openers = [pieces(text.rstrip(), may_lack) for text in (opens, *parameters.also_opens)]

    def others(atom: Atom) -> str:
        written = [source_of(pieces(text), atom) for text in parameters.also_closes]
        own = one_of(re.escape(text) for text in (close, *closing))
        return one_of([*written, f"(?!{own}){any_closer(atom)}"])

    def rest(atom: Atom) -> str:
        """The remaining closing markup, from any piece of it on."""
        texts = [source_of(pieces(text, may_lack), atom) for text in closing]
        return one_of(
            text + "".join(f"(?:{layout}{other})?" for other in texts[i + 1 :]) for i, text in enumerate(texts)
        )

    def unclosed(atom: Atom) -> str:
        return f"{at_most(breaks, atom)}(?:{others(atom)}{layout})?"

    def ends(atom: Atom) -> str:
        return one_of(source_of(pieces(text, may_lack), atom) for text in enders)

    def closed(atom: Atom) -> str:
        return f"{closer(atom)}(?={layout}(?:{ends(atom)}|{source_of(openers[0], atom)}))"

    def closer(atom: Atom) -> str:
        return at_most(trail, atom) + source_of(pieces(close, may_lack), atom)

    def end(atom: Atom) -> str:
        keys = [source_of(opener, atom, f"key{i}") for i, opener in enumerate(openers) if isinstance(opener[0], Text)]
        also = [source_of(opener, atom, f"key{i}") for i, opener in enumerate(openers[1:], len(openers))]
        names = [source_of(header, atom, f"name{i}") for i, header in enumerate(headers)]
        calls = f"{rest(atom)}{layout}{one_of(names)}" if names and closing else "(?!)"
        return f"{closed(atom)}|{closer(atom)}(?={layout}{one_of(also)})|{unclosed(atom)}(?={one_of(keys)}|{calls})"

    return ParameterMarkup(
        opens=tuple(compile_pattern(opener) for opener in openers),
        lead=parameters.open[len(opens) :],
        close=close,
        end=compile_sources(end),
        quoting=compile_sources(lambda atom: one_of(literal(text, atom) for text in quoting)),
        closed=compile_sources(closed),
        remaining=re.compile(unclosed(str) + rest(str) + layout) if closing else re.compile(r"(?!)"),
        closers=parameters.also_closes,
        on_lines="\n" in own_breaks,
        breaks=bool(breaks),
        trigger=any_of({close[0], opens[0], *(text[0] for text in (*closing, *quoting))}),
        enders=Markers(enders, may_lack),
        meant=parameters.meant,
        wraps=parameters.wraps,
        python=parameters.style != "json",
    )
