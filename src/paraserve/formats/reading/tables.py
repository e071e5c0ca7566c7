"""A description compiled for reading: which markers mean what in which state, and how each spelling of a call begins.

Everything here is immutable and made once for each format; a parser holds what changes. It never sees reply text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any

from paraserve.formats.reading.arguments import ArgumentReader, EnvelopeReader, ObjectReader
from paraserve.formats.reading.literals import PYTHON, LiteralReader, bare_dialect
from paraserve.formats.reading.parameters import ElementsReader, ParameterMarkup, ParametersReader
from paraserve.formats.reading.patterns import (
    Atom,
    Markers,
    Pattern,
    any_of,
    compile_end,
    compile_pattern,
    compile_sources,
    literal,
)
from paraserve.formats.spec import (
    Calls,
    Channels,
    Elements,
    Field,
    Format,
    JsonEnvelope,
    JsonObject,
    Keywords,
    Parameters,
    Piece,
    QuotedObject,
    Space,
    Text,
    pieces,
)

_MAX_HEADER = 1024
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

    mode: Mode
    separator: str = ""


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
    strong_closers: tuple[str, ...]
    """Those which are also known for closing markup after other text has come between."""
    last_closer: str
    entry: Pattern | None
    """A string entry of an envelope behind its arguments (an id), which counts as closing markup."""
    markup: ParameterMarkup | Pattern | None

    def reader(self, schema: Mapping[str, Any]) -> ArgumentReader:
        match self.calls.arguments:
            case JsonObject():
                return ObjectReader(self.closers)
            case JsonEnvelope() as envelope:
                return EnvelopeReader(envelope, strict=self.calls.bare)
            case Parameters():
                assert isinstance(self.markup, ParameterMarkup)
                return ParametersReader(self.markup, schema)
            case Elements(tag=tag, item=item):
                assert isinstance(self.markup, Pattern)
                return ElementsReader(tag, item, self.markup, self.closers, schema)
            case Keywords():
                return LiteralReader(PYTHON, keywords=True)
            case QuotedObject(quote=quote):
                return LiteralReader(bare_dialect(quote))


Probes = tuple[tuple[Spelling | None, Pattern], ...]
"""What a marker may begin: calls, or (without a spelling) a message with a header. Text that fits none is text."""


class Marks:
    """The markers of one state, and what each of them does there."""

    def __init__(self, meanings: Mapping[str, Turn | Probes], separators: Mapping[str, str]) -> None:
        self.meanings = meanings
        self.markers = Markers({text: separators.get(text, "") for text in meanings})


class Headers:
    """`Channels`, compiled."""

    def __init__(self, channels: Channels) -> None:
        self.pattern = _header(channels, channels.opens)
        self.first = _header(channels, (channels.continues,)) if channels.continues else None
        """A header whose opener the prompt has written."""
        self._call = re.compile(channels.call)
        self._reasoning = re.compile(channels.reasoning)

    def called(self, header: str) -> str | None:
        """The name of the tool, where the message is a call."""
        match = self._call.search(header)
        return match["name"] if match else None

    def mode(self, header: str) -> Mode:
        """What the message is, where it is no call."""
        return Mode.REASONING if self._reasoning.search(header) else Mode.CONTENT


@dataclass(frozen=True, slots=True)
class Tables:
    """The compiled description."""

    spellings: tuple[Spelling, ...]
    marks: Mapping[Mode, Marks]
    after_call: Mapping[tuple[int, bool], Marks]
    """Of content that follows a call: by its spelling, and whether the call broke into open reasoning."""
    unannounced: Mapping[Mode, Probes]
    """What needs no marker where text has not begun: bare calls, and the header whose opener the prompt has written."""
    headers: Headers | None


@lru_cache(maxsize=256)
def compile_format(format: Format, *, calls: bool) -> Tables:
    """The tables of a format; without ``calls`` their markup is text."""
    channels, block = format.channels, format.reasoning
    headers = Headers(channels) if channels else None
    spellings: tuple[Spelling, ...] = ()
    if calls and channels:
        spellings = (_channel_spelling(format.calls[0], channels),)
    elif calls:
        spellings = tuple(_spelling(spelling, index) for index, spelling in enumerate(format.calls))
    openers: dict[str, Probes] = {}
    before: dict[str, str] = {}
    for spelling in spellings:
        for announces, pattern in spelling.openings:
            openers[announces] = (*openers.get(announces, ()), (spelling, pattern))
            before.setdefault(announces, spelling.calls.before)
    bare = openers.pop("", ())
    meanings = _meanings(format, openers, headers)
    frames = (format.content_open, format.content_close)
    separators = {text.strip(): text[: len(text) - len(text.lstrip())] for text in frames} | before
    separators |= {block.close: block.close_before} if block else {}
    closes_reasoning = {block.close: Turn(Mode.CONTENT, block.close_after)} if block and not channels else {}
    after_call = {
        (spelling.index, broke_reasoning): Marks(
            dict.fromkeys(spelling.strong_closers, Turn(Mode.CONTENT))
            | (closes_reasoning if broke_reasoning else {})
            | meanings[Mode.CONTENT],
            separators,
        )
        for spelling in spellings
        for broke_reasoning in (False, True)
    }
    first = ((None, headers.first),) if headers and headers.first else ()
    return Tables(
        spellings,
        marks={mode: Marks(meanings[mode], separators) for mode in Mode},
        after_call=after_call,
        unannounced={Mode.HEAD: (*bare, *first), Mode.CONTENT: bare, Mode.REASONING: ()},
        headers=headers,
    )


def _meanings(
    format: Format, openers: Mapping[str, Probes], headers: Headers | None
) -> dict[Mode, dict[str, Turn | Probes]]:
    shared: dict[str, Turn | Probes] = {}
    if format.channels and headers:
        shared |= dict.fromkeys(format.channels.opens, ((None, headers.pattern),))
        shared |= dict.fromkeys(format.channels.closes, Turn(Mode.CONTENT))
        return dict.fromkeys(Mode, shared)
    frames = [text for text in (format.content_open, format.content_close, format.end) if text]
    shared |= openers
    content = shared | {text.strip(): Turn(Mode.CONTENT, text[len(text.rstrip()) :]) for text in frames}
    block = format.reasoning
    if block is None:
        return dict.fromkeys(Mode, content)
    opening = {block.open: Turn(Mode.REASONING, block.open_after)}
    closing = {block.close: Turn(Mode.CONTENT, block.close_after)}
    return {Mode.HEAD: content | opening | closing, Mode.REASONING: shared | closing, Mode.CONTENT: content}


def _header(channels: Channels, opens: Sequence[str]) -> Pattern:
    """From an opener to the message marker, whatever stands between."""
    inner = f"(?:(?!{re.escape(channels.message)}).){{0,{_MAX_HEADER}}}"

    def source(atom: Atom) -> str:
        begin = "|".join(literal(text, atom) for text in opens)
        return f"(?P<header>(?:{begin}){inner}){literal(channels.message, atom)}"

    return compile_sources(source)


def _channel_spelling(calls: Calls, channels: Channels) -> Spelling:
    return Spelling(calls, 0, (), (), Markers(channels.closes), (), channels.closes[-1], None, None)


def _spelling(calls: Calls, index: int) -> Spelling:
    closing = _texts(calls.close)
    section = _texts(calls.section_close)
    envelope = isinstance(calls.arguments, JsonEnvelope)
    closers = (*closing, *section, *calls.also_closes, *(("}",) if envelope else ()))
    opening = pieces(calls.open)
    ahead, markup = _ahead(calls, tuple(dict.fromkeys(closers)))
    openings = [(_announces(s), compile_pattern(s, ahead)) for s in _entries(calls)]
    followings: list[Pattern] = []
    if not _announces(opening):
        separator = tuple(p for p in pieces(calls.between) if isinstance(p, Text))
        followings = [compile_pattern((*separator, Space(""), *opening), ahead), compile_pattern(opening, ahead)]
    return Spelling(
        calls,
        index,
        tuple(openings),
        tuple(followings),
        Markers(_indivisible(closers)),
        tuple(text for text in dict.fromkeys(closers) if _is_strong(text)),
        (section or closing or ("",))[-1],
        compile_pattern(_ENVELOPE_ENTRY) if envelope else None,
        markup,
    )


def _entries(calls: Calls) -> Iterator[tuple[Piece, ...]]:
    """How a first call may begin: with its section, or (where it announces itself) without."""
    opening = pieces(calls.open)
    if calls.section_open:
        yield (*pieces(calls.section_open), Space(""), *opening)
    if not calls.section_open or (_announces(opening) and _announces(pieces(calls.section_open))):
        yield opening


def _ahead(
    calls: Calls, closers: Sequence[str]
) -> tuple[tuple[tuple[Piece, ...], ...], ParameterMarkup | Pattern | None]:
    """What must follow a call's header for it to be one, and the compiled markup of its arguments."""
    ends = tuple((Text(text),) for text in closers)
    match calls.arguments:
        case JsonObject():
            return (), None
        case JsonEnvelope() | QuotedObject():
            return ((Text("{"),),), None
        case Keywords():
            return ((Field("name"), Text("=")), (Text(")"),)), None
        case Elements(tag=tag):
            opening = compile_pattern((Text(f"{tag}<"), Field("key"), Text(">")))
            return (*ends, (Text(f"{tag}<"),)), opening
        case Parameters(open=opens, close=closes):
            lead = opens[len(opens.rstrip()) :]
            trail = closes[: len(closes) - len(closes.lstrip())]
            parameter = pieces(opens.rstrip())
            close = closes.strip()
            forgotten = (*_texts(calls.section_open)[:1], *_texts(calls.open)[:1])  # the closing markup
            enders = tuple(dict.fromkeys((*closers, *forgotten)))
            end = compile_end(trail, close, (*((Text(text),) for text in enders), parameter))
            opening = compile_pattern(parameter)
            markup = ParameterMarkup(opening, lead, close, end, any_of({*trail, close[0]}), Markers(enders))
            return (*ends, parameter), markup


def _indivisible(closers: Sequence[str]) -> tuple[str, ...]:
    """Without those that are two others in a row: a reader of single characters sees the first of the two before it can
    know that the second follows."""
    return tuple(
        text
        for text in dict.fromkeys(closers)
        if not any(text != first and text.startswith(first) and text[len(first) :] in closers for first in closers)
    )


def _texts(template: str) -> tuple[str, ...]:
    return tuple(piece.text for piece in pieces(template) if isinstance(piece, Text))


def _announces(sequence: Sequence[Piece]) -> str:
    """The literal that announces a call; empty when the sequence begins with something that prose may hold."""
    first = sequence[0] if sequence else None
    return first.text if isinstance(first, Text) and _is_strong(first.text) else ""


def _is_strong(text: str) -> bool:
    return any(char.isalpha() for char in text)
