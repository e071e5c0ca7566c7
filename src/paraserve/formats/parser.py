"""The machine: text of a reply in, events out. One machine for all families; a family is a table (`spec.py`).

It is sans-I/O: no sockets, no tokens, no clock. It reads *text only*: how a marker was cut into tokens cannot change
what a reply means, so ``feed`` takes no token ids.

Theory
------
A reply is **free text** with **markup** in it, and everything follows from two questions at each point: *what is free
text here* (the mode: head, reasoning or content), and *where are we* (the place)::

    LEAD ──text──▶ TEXT ──opener──▶ PROBE ──header──▶ CALL ──arguments end──▶ LEAD …
      ▲             │                 │
      └───marker────┘                 └──cannot be──▶ the opener is text; go on right behind it

*Lead* is the place behind a marker (and at the start), where nothing but whitespace has come. What may stand only
there is tried only there, anchored: the opener of reasoning, its echo, a call that no marker announces, the closing
markup of the call before. Whitespace waits: in front of a marker it was layout and is dropped, in front of text it
belongs to the text (less the separator that the description declares).

*Text* searches for the markers that mean something in this mode, and passes on everything else at once. It holds back
only the end of the text that may still become a marker or the separator before one.

*Probe* is the rule for mere mention: an opener is a call only when a whole call header follows, with what a call needs
behind it. Headers are bounded, so a probe is. When it fails, the opener is text and the machine goes on behind it.
A family whose name stands inside a JSON object has a header without a name; it is a call as soon as the object
has given name and arguments, and until then its text is kept for the case that it is none.

*Call* gives the text to a reader of arguments (`arguments.py`), which says where they end. One of three things happens
to what it takes: it becomes the call's events, or (an undeclared tool) it stays the raw text that it is, or (a second
call where parallel ones are not allowed) it is dropped. The extent of a call is found in the same way in all three,
so that no argument text is ever searched for markup.

Two invariants. *Chunk invariance*: every decision is a function of the text before it alone; where more text could
change a decision, the machine waits (`Pattern` and `Markers` answer "not yet"). *Linear*: what waits is bounded, or
lies in lists that are joined once; no character is searched again except within a window as long as the longest
marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Literal

from msgspec.structs import replace

from paraserve.formats.arguments import ArgumentReader, EnvelopeReader
from paraserve.formats.events import (
    ContentDelta,
    FormatEvent,
    ReasoningDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from paraserve.formats.literals import space_end
from paraserve.formats.names import call_id, id_maker, resolve_id, undeclared_name
from paraserve.formats.patterns import Pattern
from paraserve.formats.spec import Format, JsonEnvelope
from paraserve.formats.tables import Meaning, Mode, Spelling, compile_format
from paraserve.formats.types import FinishReason, ReplyStart, ToolSpec

Undeclared = Literal["content", "call"]
"""What becomes of a call to a tool that was not declared: its raw text is content, or it is a call like any other."""


class _Place(Enum):
    LEAD = auto()
    TEXT = auto()
    PROBE = auto()
    CALL = auto()


class _Fate(Enum):
    """What becomes of the text that a reader of arguments takes."""

    UNKNOWN = auto()
    CALL = auto()
    TEXT = auto()
    DROPPED = auto()


class OutputParser:
    """Reads one reply.

    Args:
        format: the family's description.
        tools: the declared tools; their schemas give untyped values their type.
        start: where the prompt left the model.
        prefill: assistant text that the prompt already holds. It sets the state and gives no events; a call that it
            leaves open is reported whole.
        parse_tool_calls: False makes call markup plain text.
        parallel_tool_calls: False drops every call after the first complete one.
        call_index_offset: calls in the conversation before this reply (for ids that count them).
        new_id: makes ids for families that have none of their own; by default ``call_`` and 24 hex digits, or nine
            alphanumerics where the family wants them.
        undeclared: see `Undeclared`.
    """

    def __init__(
        self,
        format: Format,
        *,
        tools: Sequence[ToolSpec] = (),
        start: ReplyStart = ReplyStart.HEADER,
        prefill: str = "",
        parse_tool_calls: bool = True,
        parallel_tool_calls: bool = True,
        call_index_offset: int = 0,
        new_id: Callable[[], str] | None = None,
        undeclared: Undeclared = "content",
    ) -> None:
        self._format = format
        self._tools = {tool.name: tool.parameters for tool in tools}
        self._parallel = parallel_tool_calls
        self._undeclared = undeclared
        self._offset = call_index_offset
        self._new_id = new_id or id_maker(format.ids)
        self._parse_calls = parse_tool_calls and (bool(tools) or undeclared == "call")
        self._tables = compile_format(format, calls=self._parse_calls)
        self.completed_calls = 0
        self.broken_calls = 0
        self._calls = 0

        self._mode = Mode.CONTENT
        self._text = ""
        self._position = 0
        self._events: list[FormatEvent] = []
        # Lead
        self._spaces: list[str] = []
        self._separator = ""
        self._fresh = True
        self._said = False
        self._echo = start is ReplyStart.REASONING
        self._follow: Spelling | None = None
        self._follow_fate = _Fate.CALL
        # Probe
        self._probes: tuple[tuple[Spelling | None, Pattern], ...] = ()
        self._opener_end = 0
        self._separator_length = 0
        # Call
        self._reader: ArgumentReader | None = None
        self._spelling: Spelling | None = None
        self._fate = _Fate.UNKNOWN
        self._index = 0
        self._ended = False
        self._raw: list[str] = []
        self._broke_reasoning = False

        self._pending: tuple[Spelling, bool] | None = None
        self._prefilled = 0
        self._enter(
            _START[start] if format.reasoning or format.channels else Mode.CONTENT, self._start_separator(start)
        )
        self._fresh = True
        if prefill:
            self._take_prefill(prefill)
        self._arm()

    @property
    def in_reasoning(self) -> bool:
        """Whether the text fed so far ends inside reasoning. A marker that is not whole has not ended it yet."""
        return self._mode is Mode.REASONING

    @property
    def open_call(self) -> bool:
        """Whether a call was begun and is not complete. It stays so when the reply ends within it."""
        return self._calls > self.completed_calls

    def feed(self, text: str) -> list[FormatEvent]:
        """The events of more text."""
        if self._plain is not None and not self._plain(text):
            return [self._delta(text)] if text else []
        self._text += text
        while _STEPS[self._place](self):
            pass
        self._text = self._text[self._position :]
        self._position = 0
        self._arm()
        events, self._events = self._events, []
        return events

    def finish(self, reason: FinishReason) -> list[FormatEvent]:
        """The events of the end: what was held back is given out. Nothing may be fed after it."""
        rest = self._text[self._position :]
        if self._reader is not None:
            self._finish_call(self._reader, rest, ended=reason == "stop")
        elif not self._in_header():
            if self._place is _Place.PROBE and len(rest) > self._opener_end:
                self.broken_calls += 1
            if rest or self._fresh:  # else it is layout between a marker and the end
                self._release_spaces()
            self._say(rest)
        events, self._events = self._events, []
        return events

    # Lead: behind a marker, or at the start

    def _at_lead(self) -> bool:
        after = space_end(self._text, self._position)
        if after > self._position:
            self._spaces.append(self._text[self._position : after])
            self._position = after
        if after == len(self._text):
            return False
        waiting = False
        for attempt in (self._closer_here, self._unannounced_here, self._first_header_here, self._marker_here):
            outcome = attempt()
            if outcome:
                return True
            waiting = waiting or outcome is None
        if waiting:
            return False
        self._release_spaces()
        self._go_on_in_text()
        return True

    def _closer_here(self) -> bool | None:
        """Closing markup of the call that has just ended. (These four say yes, no, or None for not yet.)"""
        if self._follow is None:
            return False
        hit = self._follow.closers.at(self._text, self._position)
        entry = self._follow.entry
        match = entry.match(self._text, self._position) if entry and hit is None else None
        if hit is None and match is None:
            waiting = self._follow.closers.may_begin(self._text, self._position)
            waiting = waiting or (entry is not None and entry.may_match(self._text, self._position))
            return None if waiting else False
        end = hit[2] if hit else match.end() if match else 0
        if self._follow_fate is _Fate.TEXT:
            self._release_spaces()
            self._say(self._text[self._position : end])
        self._spaces.clear()
        self._position = end
        if hit and hit[1] == self._follow.last_closer:
            self._follow = None
            self._set_mode(self._mode)
        return True

    def _unannounced_here(self) -> bool | None:
        """A call without a marker: the next one of a list, or a bare one where content starts."""
        candidates: tuple[tuple[Spelling, Pattern], ...] = ()
        if self._follow is not None:
            candidates = tuple((self._follow, pattern) for pattern in self._follow.followings)
        elif self._mode is not Mode.REASONING and not self._said:
            candidates = self._tables.openers.get("", ())
        waiting: bool | None = False
        for spelling, pattern in candidates:
            if match := pattern.match(self._text, self._position):
                self._begin_call(spelling, match.groupdict(), match.end())
                return True
            if pattern.may_match(self._text, self._position):
                waiting = None
        return waiting

    def _first_header_here(self) -> bool | None:
        header = self._tables.first_header
        if header is None or self._mode is not Mode.HEAD:
            return False
        if match := header.match(self._text, self._position):
            self._route(match)
            return True
        return None if header.may_match(self._text, self._position) else False

    def _marker_here(self) -> bool | None:
        head = self._mode is Mode.HEAD or (self._echo and self._fresh)
        markers = self._tables.markers[Mode.HEAD] if head else self._markers
        if hit := markers.at(self._text, self._position):
            self._act(*hit, Mode.HEAD if head else self._mode)
            return True
        return None if markers.may_begin(self._text, self._position) else False

    # Text: searched for markers

    def _in_text(self) -> bool:
        hit = self._markers.search(self._text, self._position)
        stop = hit[0] if hit else self._markers.held_from(self._text, self._position)
        self._say(self._text[self._position : stop])
        self._position = stop
        if hit:
            self._act(*hit, self._mode)
        return hit is not None

    def _act(self, start: int, literal: str, end: int, mode: Mode) -> None:
        """Do what the marker means."""
        block = self._format.reasoning
        match self._tables.meanings[mode].get(literal, Meaning.CLOSER):
            case Meaning.CALL:
                self._probe(start, literal, end, self._tables.openers[literal])
            case Meaning.HEADER:
                assert self._tables.header is not None
                self._probe(start, literal, end, ((None, self._tables.header),))
            case Meaning.OPEN_REASONING:
                self._pass_marker(end)
                self._enter(Mode.REASONING, block.open_after if block else "")
            case Meaning.CLOSE_REASONING:
                self._pass_marker(end)
                self._enter(Mode.CONTENT, block.close_after if block else "")
            case Meaning.FRAME:
                self._pass_marker(end)
                self._enter(Mode.CONTENT)
            case Meaning.CLOSER:
                if self._pending is not None and literal == self._pending[0].last_closer:
                    self._pending = None
                self._pass_marker(end)
                self._enter(Mode.CONTENT)

    def _pass_marker(self, end: int) -> None:
        self._position = end
        self._spaces.clear()
        self._prefilled = 0

    # Probe: is this opener a call?

    def _probe(self, start: int, literal: str, end: int, probes: tuple[tuple[Spelling | None, Pattern], ...]) -> None:
        self._position = start
        self._opener_end = end - start
        self._separator_length = end - start - len(literal)
        self._probes = probes
        self._place = _Place.PROBE

    def _in_probe(self) -> bool:
        waiting = False
        header = self._position + self._separator_length
        for spelling, pattern in self._probes:
            if match := pattern.match(self._text, header):
                if spelling is None:
                    self._route(match)
                else:
                    self._begin_call(spelling, match.groupdict(), match.end())
                return True
            waiting = waiting or pattern.may_match(self._text, header)
        if not waiting:
            self._refuse(self._position + self._opener_end)
        return not waiting

    def _in_header(self) -> bool:
        """Whether a message header has begun: what it holds is markup, though its end may never come."""
        return self._place is _Place.PROBE and self._probes[0][0] is None

    def _refuse(self, opener_end: int) -> None:
        """The opener was mere mention: it is text, and so is whatever follows until the next marker."""
        self._release_spaces()
        self._say(self._text[self._position : opener_end])
        self._position = opener_end
        self._go_on_in_text()

    def _route(self, match: re.Match[str]) -> None:
        """A message header: say what its body is."""
        header = match["header"]
        assert self._tables.call_header is not None
        assert self._tables.reasoning_header is not None
        if call := self._tables.call_header.search(header):
            if self._parse_calls:
                self._begin_call(self._tables.spellings[0], {"name": call["name"]}, match.end())
            else:
                self._refuse(match.end())
            return
        self._pass_marker(match.end())
        self._enter(Mode.REASONING if self._tables.reasoning_header.search(header) else Mode.CONTENT)

    # Call: the text belongs to a reader of arguments

    def _begin_call(self, spelling: Spelling, fields: dict[str, str | None], end: int) -> None:
        """A call's header stands in the text from the position to ``end``."""
        header = self._text[self._position : end]
        self._position = end
        self._place = _Place.CALL
        self._spelling = spelling
        self._ended = False
        self._follow = None
        written_id = (fields.get("id") or "").strip()
        written = fields.get("name") or written_id
        if not isinstance(spelling.calls.arguments, JsonEnvelope):
            name = self._resolve(written)
            self._reader = spelling.reader(self._tools.get(name or "", {}))
            self._decide(name, written_id, header)
        else:
            self._reader = spelling.reader({})
            self._fate = _Fate.UNKNOWN
            self._raw = [header]

    def _decide(self, name: str | None, written_id: str, raw: str) -> None:
        """The header is read: is this a call, is it one too many, or is it text?"""
        if name is None:
            self._fate = _Fate.TEXT
            self.broken_calls += 1
            self._release_spaces()
            self._say(raw)
            return
        self._spaces.clear()
        self._prefilled = 0
        self._fresh = False
        self._broke_reasoning = self._mode is Mode.REASONING
        self._mode = Mode.CONTENT
        if not self._parallel and self.completed_calls:
            self._fate = _Fate.DROPPED
            return
        self._fate = _Fate.CALL
        self._index = self._calls
        self._calls += 1
        id_ = call_id(self._format.ids, name, self._offset + self._index, written_id, self._new_id)
        self._events.append(ToolCallStart(self._index, id_, name))

    def _resolve(self, written: str) -> str | None:
        if self._format.ids == "kimi":
            name = resolve_id(written, self._tools)
            return (undeclared_name(written) or None) if name is None and self._undeclared == "call" else name
        name = written.strip()
        return name if name in self._tools or (self._undeclared == "call" and name) else None

    def _in_call(self) -> bool:
        reader = self._reader
        assert reader is not None
        end = reader.read(self._text, self._position)
        taken = self._text[self._position : end]
        self._position = end
        if self._fate is _Fate.UNKNOWN:
            self._raw.append(taken)
            if not self._know_envelope(reader):
                return self._reader is None
            taken = ""
        self._deliver(reader, taken)
        if reader.closed or reader.broken:
            self._end_call(reader)
            return True
        return False

    def _know_envelope(self, reader: ArgumentReader) -> bool:
        """Decide about a call whose name stands in its object, as soon as that can be done."""
        assert isinstance(reader, EnvelopeReader)
        if reader.started:
            self._decide(self._resolve(reader.name or ""), "", "".join(self._raw))
            self._raw = []
            return True
        if reader.broken:
            if reader.name is not None:
                self.broken_calls += 1
            opener_end = len(self._raw[0])
            self._text = "".join(self._raw) + self._text[self._position :]
            self._position, self._reader = 0, None
            self._refuse(opener_end)
        return False

    def _deliver(self, reader: ArgumentReader, taken: str) -> None:
        if self._fate is _Fate.TEXT:
            self._say(taken)
        elif self._fate is _Fate.CALL:
            if arguments := "".join(reader.out):
                self._events.append(ToolCallDelta(self._index, arguments))
            if reader.whole and not self._ended:
                self._ended = True
                self.completed_calls += 1
                self._events.append(ToolCallEnd(self._index))
        reader.out.clear()

    def _end_call(self, reader: ArgumentReader) -> None:
        if reader.broken and self._fate is _Fate.CALL:
            self.broken_calls += 1
            self._say(reader.rest)
        spelling, self._reader = self._spelling, None
        assert spelling is not None
        if self._fate is not _Fate.TEXT:
            self._pending = (spelling, self._broke_reasoning)
        self._enter(self._mode)
        self._follow, self._follow_fate = spelling, self._fate

    def _finish_call(self, reader: ArgumentReader, rest: str, *, ended: bool) -> None:
        reader.finish(self._text, self._position, ended=ended)
        if self._fate is _Fate.UNKNOWN:
            self.broken_calls += 1
            self._release_spaces()
            self._say("".join(self._raw) + rest)
            return
        self._deliver(reader, rest)
        if self._fate is _Fate.CALL and not self._ended:
            self.broken_calls += 1
            self._say(reader.rest)

    # What is common to all places

    def _enter(self, mode: Mode, separator: str = "") -> None:
        """Go to the lead of a mode."""
        self._place = _Place.LEAD
        self._separator = separator
        self._fresh = False
        self._follow = None
        self._set_mode(mode)

    def _set_mode(self, mode: Mode) -> None:
        self._mode = mode
        if self._pending is not None and mode is Mode.CONTENT:
            self._markers = self._tables.after_call[self._pending[0].index, self._pending[1]]
        else:
            self._markers = self._tables.markers[mode]

    def _go_on_in_text(self) -> None:
        self._place = _Place.TEXT
        self._fresh = False
        self._follow = None
        self._set_mode(Mode.CONTENT if self._mode is Mode.HEAD else self._mode)

    def _release_spaces(self) -> None:
        """Whitespace that has turned out to belong to text, less the separator."""
        if not self._spaces:
            return
        spaces = "".join(self._spaces)
        self._spaces.clear()
        dropped = _common_length(spaces, self._separator)
        self._separator = ""
        self._prefilled = max(0, self._prefilled - dropped)
        self._say(spaces[dropped:])

    def _say(self, text: str) -> None:
        if self._prefilled:
            known = min(self._prefilled, len(text))
            self._prefilled -= known
            text = text[known:]
        if not text:
            return
        self._fresh = False
        if self._mode is Mode.REASONING:
            self._events.append(ReasoningDelta(text))
        else:
            self._said = True
            self._events.append(ContentDelta(text))

    def _arm(self) -> None:
        """Prepare the short way for text in which nothing can begin."""
        free = self._place is _Place.TEXT and not self._text and not self._events
        self._plain = self._markers.trigger.search if free else None
        self._delta = ReasoningDelta if self._mode is Mode.REASONING else ContentDelta

    def _start_separator(self, start: ReplyStart) -> str:
        return "" if start is ReplyStart.REASONING else self._format.lead

    def _take_prefill(self, prefill: str) -> None:
        """Run text that the prompt holds already. Only a call that it leaves open is news to the client."""
        self._plain = None
        events = self.feed(prefill)
        self._prefilled = len(self._text) + sum(map(len, self._spaces))
        if self._fate is _Fate.UNKNOWN and self._reader is not None:
            self._prefilled += sum(map(len, self._raw))
        is_open = self._reader is not None and self._fate is _Fate.CALL
        self._offset += self._calls - is_open
        self._calls, self._index = int(is_open), 0
        self.completed_calls = self.broken_calls = 0
        if is_open:
            self._prefilled = 0
            start = max(i for i, event in enumerate(events) if isinstance(event, ToolCallStart))
            self._events = [replace(event, index=0) for event in events[start:]]


def _common_length(text: str, separator: str) -> int:
    """How many characters both begin with."""
    return next(
        (i for i, (a, b) in enumerate(zip(text, separator, strict=False)) if a != b), min(len(text), len(separator))
    )


_START = {
    ReplyStart.HEADER: Mode.HEAD,
    ReplyStart.REASONING: Mode.REASONING,
    ReplyStart.CONTENT: Mode.CONTENT,
}
_STEPS: dict[_Place, Callable[[OutputParser], bool]] = {
    _Place.LEAD: OutputParser._at_lead,
    _Place.TEXT: OutputParser._in_text,
    _Place.PROBE: OutputParser._in_probe,
    _Place.CALL: OutputParser._in_call,
}
