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

from paraserve.formats.arguments import ArgumentReader, EnvelopeReader, ObjectReader, ValueReader
from paraserve.formats.literals import PYTHON, bare_dialect
from paraserve.formats.parameters import ElementsReader, ParameterMarkup, ParametersReader
from paraserve.formats.patterns import Marker, Markers, Pattern, compile_end, compile_pattern
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


class Meaning(Enum):
    """What a marker does."""

    CALL = auto()
    HEADER = auto()
    OPEN_REASONING = auto()
    CLOSE_REASONING = auto()
    FRAME = auto()
    CLOSER = auto()


@dataclass(frozen=True, slots=True)
class Spelling:
    """One spelling of calls, compiled. ``openings`` begin a first call, ``followings`` another one right after it."""

    calls: Calls
    index: int
    openings: tuple[tuple[str, Pattern], ...]
    """With the literal that announces each; empty for a bare one."""
    followings: tuple[Pattern, ...]
    closer_texts: tuple[str, ...]
    """All closing markup of a call and its section, where it is expected: right after the arguments."""
    closers: Markers
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
                return ValueReader(PYTHON, keywords=True)
            case QuotedObject(quote=quote):
                return ValueReader(bare_dialect(quote))


@dataclass(frozen=True, slots=True)
class Tables:
    """The compiled description."""

    spellings: tuple[Spelling, ...]
    openers: Mapping[str, tuple[tuple[Spelling, Pattern], ...]]
    """By announcing literal; bare spellings under the empty string."""
    meanings: Mapping[Mode, Mapping[str, Meaning]]
    markers: Mapping[Mode, Markers]
    header: Pattern | None
    first_header: Pattern | None
    """A header whose opener the prompt has written."""
    call_header: re.Pattern[str] | None
    reasoning_header: re.Pattern[str] | None
    after_call: Mapping[tuple[int, bool], Markers]
    """Markers of content that follows a call: by its spelling, and whether the call broke into open reasoning."""
    frame_ends: Mapping[str, str]
    """The separators behind the markers around content."""


@lru_cache(maxsize=256)
def compile_format(format: Format, *, calls: bool) -> Tables:
    """The tables of a format; without ``calls`` their markup is text."""
    spellings = tuple(_spelling(s, i) for i, s in enumerate(format.calls)) if calls and not format.channels else ()
    if calls and format.channels:
        spellings = (_channel_spelling(format.calls[0], format.channels),)
    openers: dict[str, tuple[tuple[Spelling, Pattern], ...]] = {}
    before: dict[str, str] = {}
    for spelling in spellings:
        for literal, pattern in spelling.openings:
            openers[literal] = (*openers.get(literal, ()), (spelling, pattern))
            before.setdefault(literal, spelling.calls.before)
    before.pop("", None)
    meanings = _meanings(format, tuple(before))
    block = format.reasoning
    frames = (format.content_open, format.content_close)
    separators = {text.strip(): text[: len(text) - len(text.lstrip())] for text in frames} | before
    separators |= {block.close: block.close_before} if block else {}
    frame_ends = {text.strip(): text[len(text.rstrip()) :] for text in frames}
    markers = {mode: _markers(meanings[mode], separators) for mode in Mode}
    after_call = {
        (spelling.index, in_reasoning): _markers(
            meanings[Mode.CONTENT]
            | dict.fromkeys(spelling.strong_closers, Meaning.CLOSER)
            | ({block.close: Meaning.CLOSER} if block and in_reasoning and not format.channels else {}),
            separators,
        )
        for spelling in spellings
        for in_reasoning in (False, True)
    }
    channels = format.channels
    return Tables(
        spellings,
        openers,
        meanings,
        markers,
        _header(channels, channels.opens) if channels else None,
        _header(channels, (channels.continues,)) if channels and channels.continues else None,
        re.compile(channels.call) if channels else None,
        re.compile(channels.reasoning) if channels else None,
        after_call,
        frame_ends,
    )


def _meanings(format: Format, openers: Sequence[str]) -> dict[Mode, dict[str, Meaning]]:
    if format.channels:
        shared = dict.fromkeys(format.channels.opens, Meaning.HEADER)
        shared |= dict.fromkeys(format.channels.closes, Meaning.FRAME)
        return dict.fromkeys(Mode, shared)
    calls = dict.fromkeys(openers, Meaning.CALL)
    content = calls | dict.fromkeys(format.frame_markers, Meaning.FRAME)
    block = format.reasoning
    if block is None:
        return dict.fromkeys(Mode, content)
    closing = {block.close: Meaning.CLOSE_REASONING}
    return {
        Mode.HEAD: content | {block.open: Meaning.OPEN_REASONING} | closing,
        Mode.REASONING: calls | closing,
        Mode.CONTENT: content,
    }


def _markers(meanings: Mapping[str, Meaning], separators: Mapping[str, str]) -> Markers:
    return Markers(Marker(text, separators.get(text, "")) for text in meanings)


def _header(channels: Channels, opens: Sequence[str]) -> Pattern:
    """From an opener to the message marker, whatever stands between."""
    begin = "|".join(map(re.escape, opens))
    parts = "|".join({re.escape(text[:length]) for text in opens for length in range(len(text))})
    message = re.escape(channels.message)
    inner = f"(?:(?!{message}).){{0,{_MAX_HEADER}}}"
    body = f"(?P<header>(?:{begin}){inner}){message}"
    part = f"(?:(?:{begin}){inner}|(?:{parts}))\\Z"
    return Pattern(re.compile(body, re.DOTALL), re.compile(part, re.DOTALL))


def _channel_spelling(calls: Calls, channels: Channels) -> Spelling:
    closers = Markers(Marker(text) for text in channels.closes)
    return Spelling(calls, 0, (), (), channels.closes, closers, (), channels.closes[-1], None, None)


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
    expected = _indivisible(closers)
    return Spelling(
        calls,
        index,
        tuple(openings),
        tuple(followings),
        expected,
        Markers(Marker(text) for text in expected),
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
            opening = (Text(f"{tag}<"), Field("key"), Text(">"))
            return (*ends, (Text(f"{tag}<"),)), compile_pattern(opening)
        case Parameters(open=opens, close=closes):
            lead = opens[len(opens.rstrip()) :]
            trail = closes[: len(closes) - len(closes.lstrip())]
            parameter = pieces(opens.rstrip())
            close = closes.strip()
            openers = (
                *_texts(calls.section_open)[:1],
                *_texts(calls.open)[:1],
            )  # where the closing markup was forgotten
            enders = tuple(dict.fromkeys((*closers, *openers)))
            end, part, window = compile_end(trail, close, (*((Text(text),) for text in enders), parameter))
            compiled = ParameterMarkup(
                compile_pattern(parameter), lead, close, end, part, window, Markers(Marker(text) for text in enders)
            )
            return (*ends, parameter), compiled


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
