"""A description compiled for reading: which markers mean what in which state, and how each spelling of a call begins.

Everything here is immutable and made once for each format; a parser holds what changes. It never sees reply text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from paraserve.formats.reading.arguments import ArgumentReader, EnvelopeReader, ObjectReader
from paraserve.formats.reading.elements import ElementsReader
from paraserve.formats.reading.headers import Headers
from paraserve.formats.reading.literals import LOOSE_PYTHON, PYTHON, LiteralReader, bare_dialect
from paraserve.formats.reading.parameter_markup import ParameterMarkup, compile_parameters
from paraserve.formats.reading.parameters import ParametersReader
from paraserve.formats.reading.patterns import (
    Atom,
    Markers,
    Pattern,
    any_closer,
    compile_pattern,
    compile_sources,
    layout,
    literal,
    one_of,
)
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
)
from paraserve.formats.templates import Field, Piece, Space, Text, is_special, pieces, units

_ENVELOPE_ENTRY = (
    *(Text(","), Space(""), Text('"'), Field("key"), Text('"'), Space(""), Text(":")),
    *(Space(""), Text('"'), Field("id"), Text('"')),
)


class Mode(Enum):
    """What free text is at the moment."""

    HEAD = auto()
    """Nothing has been said: reasoning may open here."""
    REASONING = auto()
    CONTENT = auto()


@dataclass(frozen=True, slots=True)
class Turn:
    """What a marker does that ends one kind of free text: text goes on in a mode, less the separator behind it."""

    mode: Mode | None
    """None goes on as it is."""
    separator: str = ""
    stray: bool = False
    """It opens or closes nothing here."""
    aside: bool = False
    """Text goes on right behind it as if it were not there."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One spelling of calls, compiled. ``openings`` begin a first call, ``followings`` another one right after it."""

    calls: Calls
    index: int
    openings: tuple[tuple[str, Pattern], ...]
    """With the literal that announces each; empty for a bare one."""
    followings: tuple[Pattern, ...]
    closers: Markers
    """All closing markup of a call and its section, where it is expected: right after the arguments."""
    enders: Markers
    """What ends arguments that have not begun: the same, and what begins another call."""
    strong_closers: tuple[str, ...]
    """Those which are also known for closing markup after other text has come between."""
    last_closer: str
    stray: Pattern | None
    """A closing tag that closes nothing, between those of the call."""
    entry: Pattern | None
    """A string entry of an envelope behind its arguments (an id), which counts as closing markup."""
    markup: ParameterMarkup | Pattern | None

    def reader(self, schema: Mapping[str, Any], declared: Callable[[str], bool]) -> ArgumentReader:
        match self.calls.arguments:
            case JsonObject():
                return ObjectReader(self.enders)
            case JsonEnvelope() as envelope:
                return EnvelopeReader(envelope, strict=self.calls.bare or self.calls.announced != "")
            case Parameters():
                assert isinstance(self.markup, ParameterMarkup)
                return ParametersReader(self.markup, schema, declared)
            case Elements(tag=tag, item=item):
                assert isinstance(self.markup, Pattern)
                return ElementsReader(tag, item, self.markup, self.closers, schema)
            case Keywords(quote=quote, loose=loose):
                dialect = bare_dialect(quote) if quote else LOOSE_PYTHON if loose else PYTHON
                return LiteralReader(dialect, keywords=True, enders=self.closers if quote else None)
            case QuotedObject(quote=quote):
                return LiteralReader(bare_dialect(quote), enders=self.closers)


Probes = tuple[tuple[Spelling | None, Pattern], ...]
"""What a marker may begin: calls, or (without a spelling) a message with a header. Text that fits none is text."""


class Marks:
    """The markers of one state, and what each of them does there."""

    def __init__(
        self, meanings: Mapping[str, Turn | Probes], separators: Mapping[str, str], may_lack: str = ""
    ) -> None:
        self.meanings = meanings
        self.markers = Markers({text: separators.get(text, "") for text in meanings}, may_lack)


@dataclass(frozen=True, slots=True)
class Tables:
    """The compiled description."""

    spellings: tuple[Spelling, ...]
    marks: Mapping[Mode, Marks]
    after_call: Mapping[tuple[int, bool], Marks]
    """Of content that follows a call: by its spelling, and whether the call broke into open reasoning."""
    unannounced: Mapping[Mode, Probes]
    """What needs no marker where text has not begun: bare calls."""
    first: Probes
    """What needs none at the very start: the header whose opener the prompt has written."""
    headers: Headers | None


@lru_cache(maxsize=256)
def compile_format(format: Format, *, calls: bool) -> Tables:
    """The tables of a format; without ``calls`` their markup is text."""
    channels, block = format.channels, format.reasoning
    headers = Headers(channels) if channels else None
    spellings: tuple[Spelling, ...] = ()
    if calls and channels and channels.call:
        spellings = (_channel_spelling(format.calls[0], channels),)
    elif calls:
        spellings = tuple(_spelling(spelling, index, format) for index, spelling in enumerate(format.read_calls))
    openers: dict[str, Probes] = {}
    before: dict[str, str] = {}
    for spelling in spellings:
        for announces, pattern in spelling.openings:
            openers[announces] = (*openers.get(announces, ()), (spelling, pattern))
            before.setdefault(announces, spelling.calls.before)
    bare = openers.pop("", ())
    meanings = _meanings(format, openers, headers, [spelling.calls for spelling in spellings])
    frames = (format.content_open, format.content_close)
    separators = {text.strip(): text[: len(text) - len(text.lstrip())] for text in frames} | before
    closes = dict.fromkeys(block.closes, block.close_before) if block else {}
    separators |= closes
    unclosed = {text: before for text, before in separators.items() if text not in closes}
    closes_reasoning = dict.fromkeys(closes, Turn(Mode.CONTENT, block.close_after)) if block and not channels else {}
    after_call = {
        (spelling.index, broke_reasoning): Marks(
            dict.fromkeys(spelling.strong_closers, Turn(Mode.CONTENT))
            | (closes_reasoning if broke_reasoning else {})
            | meanings[Mode.CONTENT],
            separators,
            format.may_lack,
        )
        for spelling in spellings
        for broke_reasoning in (False, True)
    }
    return Tables(
        spellings,
        marks={
            mode: Marks(meanings[mode], unclosed if mode is Mode.CONTENT else separators, format.may_lack)
            for mode in Mode
        },
        after_call=after_call,
        unannounced={Mode.HEAD: bare, Mode.CONTENT: bare, Mode.REASONING: ()},
        first=((None, headers.first),) if headers and headers.first else (),
        headers=headers,
    )


def _meanings(
    format: Format, openers: Mapping[str, Probes], headers: Headers | None, read: Sequence[Calls]
) -> dict[Mode, dict[str, Turn | Probes]]:
    shared: dict[str, Turn | Probes] = {}
    if format.channels and headers:
        shared |= dict.fromkeys(format.channels.opens, ((None, headers.pattern),))
        shared |= dict.fromkeys(format.channels.closes, Turn(Mode.CONTENT))
        shared |= openers
        return dict.fromkeys(Mode, shared)
    frames = [text for text in (format.content_open, format.content_close, format.end) if text]
    shared |= openers
    shared |= dict.fromkeys(format.asides, Turn(None, aside=True))
    content = shared | {text.strip(): Turn(Mode.CONTENT, text[len(text.rstrip()) :]) for text in frames}
    block = format.reasoning
    strays = {text for calls in read for text in (*units(calls.close), *units(calls.section_close))}
    strays = {text for text in strays if is_special(text) and text not in content}
    dropped: dict[str, Turn | Probes] = dict.fromkeys(strays, Turn(None, stray=True))
    if block is None:
        return dict.fromkeys(Mode, dropped | content)
    opening = dict.fromkeys(block.opens, Turn(Mode.REASONING, block.open_after))
    closing = dict.fromkeys(block.closes, Turn(Mode.CONTENT, block.close_after))
    head = dropped | content | opening | closing
    told = {calls.announced for calls in read}  # a thought may tell of calls
    again = {text: replace(turn, separator="", stray=True) for text, turn in opening.items() if is_special(text)}
    late = {marker: replace(turn, stray=True) for marker, turn in (opening | closing).items() if is_special(marker)}
    return {
        Mode.HEAD: head,
        Mode.REASONING: dropped
        | {text: means for text, means in content.items() if text not in told}
        | again
        | closing,
        Mode.CONTENT: dropped | content | late,
    }


def _channel_spelling(calls: Calls, channels: Channels) -> Spelling:
    envelope = isinstance(calls.arguments, JsonEnvelope)
    closers = Markers((*channels.closes, "}") if envelope else channels.closes)
    enders = Markers((*channels.closes, *channels.opens))
    entry = compile_pattern(_ENVELOPE_ENTRY) if envelope else None
    return Spelling(calls, 0, (), (), closers, enders, (), channels.closes[-1], None, entry, None)


def _spelling(calls: Calls, index: int, format: Format) -> Spelling:
    closing = units(calls.close)
    section = units(calls.section_close)
    envelope = isinstance(calls.arguments, JsonEnvelope)
    closers = (*closing, *section, *calls.also_closes, *(("}",) if envelope else ()))
    lacks = format.may_lack
    opening = pieces(calls.open, lacks)
    ahead = _ahead(calls, lacks)
    openings = [
        (calls.announced or _announces(entry), compile_pattern(pieces(entry, lacks), ahead))
        for entry in _entries(calls)
    ]
    followings: list[Pattern] = []
    if envelope:
        opening = pieces(calls.open) if not _announces(calls.open) else ()  # more of them in one block
    if envelope or not _announces(calls.open):
        separator = tuple(p for p in pieces(calls.between) if isinstance(p, Text)) or (Text(","),) * envelope
        followings = [compile_pattern((*separator, Space(""), *opening), ahead), compile_pattern(opening, ahead)]
    return Spelling(
        calls,
        index,
        tuple(openings),
        tuple(followings),
        Markers(_indivisible(closers), lacks),
        Markers(_indivisible((*closers, *units(calls.section_open)[:1], *units(calls.open)[:1])), lacks),
        tuple(text for text in dict.fromkeys(closers) if _is_strong(text)),
        (section or closing or ("",))[-1],
        _stray(closers, format),
        compile_pattern(_ENVELOPE_ENTRY) if envelope else None,
        _markup(calls, format),
    )


def _stray(closers: Sequence[str], format: Format) -> Pattern | None:
    tags = [text for text in closers if text.startswith("</")]
    known = (*tags, *format.frame_markers, *((format.reasoning.close,) if format.reasoning else ()))

    def source(atom: Atom) -> str:
        ahead = one_of(literal(text, atom) for text in tags)
        return f"(?!{one_of(map(re.escape, known))}){any_closer(atom)}(?={layout}{ahead})"

    return compile_sources(source) if tags else None


def _entries(calls: Calls) -> Iterator[str]:
    """How a first call may begin: with its section, or (where it announces itself) without."""
    if calls.section_open:
        yield calls.section_open + calls.open
    if not calls.section_open or (_announces(calls.open) and _announces(calls.section_open)):
        yield calls.open


def _ahead(calls: Calls, may_lack: str) -> tuple[tuple[Piece, ...], ...]:
    """What must follow a call's header for it to be one."""
    ends = tuple(pieces(text, may_lack) for text in dict.fromkeys(_closing(calls)))
    match calls.arguments:
        case JsonObject(braced=False):
            return ()
        case JsonObject() | JsonEnvelope() | QuotedObject():
            return ((Text("{"),),)
        case Keywords(quote=quote) if quote:
            keyed = calls.close.startswith(")")  # what goes before is a name for sure
            gaps = ((),) if keyed else ((Text(" "),), (Text("\n"),))
            return (*ends, *((*gap, Field("name"), Text(mark)) for gap in gaps for mark in ":="))
        case Keywords():
            return (Field("name"), Text("=")), (Text(")"),)
        case Elements(tag=tag):
            return (*ends, (Text(f"{tag}<"),))
        case Parameters(open=opens, also_opens=others):
            openers = [pieces(text.rstrip(), may_lack) for text in (opens, *others)]
            named_first = [opener for opener in openers if isinstance(opener[0], Field)]
            if calls.glued:
                return tuple(named_first)
            return (*ends, *(opener for opener in openers if opener not in named_first))


def _closing(calls: Calls) -> tuple[str, ...]:
    return (*units(calls.close), *units(calls.section_close), *calls.also_closes)


def _markup(calls: Calls, format: Format) -> ParameterMarkup | Pattern | None:
    """The compiled markup of arguments that are written as one element each."""
    match calls.arguments:
        case Elements(tag=tag):
            return compile_pattern((Text(f"{tag}<"), Field("key"), Text(">")))
        case Parameters() as parameters:
            alike = [
                other for other in format.read_calls if isinstance(other.arguments, Parameters) and not other.glued
            ]
            forgotten = (*units(calls.section_open)[:1], *units(calls.open)[:1])  # the closing markup
            quoting = dict.fromkeys(
                text for other in alike for text in (*units(other.section_open)[:1], *units(other.open)[:1])
            )
            headers = [
                (*pieces(entry, format.may_lack), Space(""), *begin)
                for other in alike
                for entry in _entries(other)
                for begin in _ahead(other, format.may_lack)
            ]
            messages = [(Text(text),) for text in (format.channels.closes if format.channels else ())]
            return compile_parameters(
                parameters,
                closing=(*units(calls.close), *units(calls.section_close), *units(format.end)),
                enders=tuple(dict.fromkeys((*_closing(calls), *forgotten))),
                headers=[*headers, *messages],
                quoting=_indivisible(tuple(quoting)),
                before_closing=calls.close[: len(calls.close) - len(calls.close.lstrip())],
                may_lack=format.may_lack,
            )
        case _:
            return None


def _indivisible(closers: Sequence[str]) -> tuple[str, ...]:
    """Without those that are two others in a row: a reader of single characters sees the first of the two before it can
    know that the second follows."""
    return tuple(
        text
        for text in dict.fromkeys(closers)
        if not any(text != first and text.startswith(first) and text[len(first) :] in closers for first in closers)
    )


def _announces(template: str) -> str:
    """The literal that announces a call; empty where the template begins with something that prose may hold."""
    first = units(template)[:1]
    return first[0] if first and template.startswith(first) and _is_strong(first[0]) else ""


def _is_strong(text: str) -> bool:
    return any(char.isalpha() for char in text)
