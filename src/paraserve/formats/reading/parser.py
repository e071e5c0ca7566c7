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

Beside it stand `freetext.py` (what is said, and whitespace that waits), `calls.py` (which call counts, and its id),
`call_text.py` (what becomes of a call's text), `after_call.py` (its closing markup) and `tables.py` (the description,
compiled: patterns, and what each marker means in each mode).

Two invariants. *Chunk invariance*: every decision is a function of the text before it alone; where more text could
change a decision, the machine waits (`Pattern` and `Markers` answer "not yet"). *Linear*: what waits is bounded, or
lies in lists that are joined once; no character is searched again except within a window as long as the longest
marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta
from paraserve.formats.reading.after_call import AfterCall
from paraserve.formats.reading.arguments import EnvelopeReader
from paraserve.formats.reading.call_text import CallText
from paraserve.formats.reading.calls import OpenCall, Outcome
from paraserve.formats.reading.freetext import FreeText
from paraserve.formats.reading.literals import space_end
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.reading.tables import Marks, Mode, Probes, Spelling, Turn, compile_format
from paraserve.formats.spec import JsonEnvelope
from paraserve.formats.templates import begins_specially
from paraserve.formats.types import ReplyStart, TextEnd


class _Place(Enum):
    LEAD = auto()
    TEXT = auto()
    PROBE = auto()
    CALL = auto()


class OutputParser(ReplyParser):
    """Reads a reply in the format that a description gives."""

    def _begin(self, start: ReplyStart) -> None:
        format = self._format
        self._tables = compile_format(format, calls=self._parse_calls)
        self._free = FreeText(self._window)
        self._after = AfterCall(self._window, self._free, self._ledger)
        self._calls = CallText(self._window, self._free, self._ledger)
        # Lead: what may stand only here
        self._echo = start is ReplyStart.REASONING
        # Probe: what may match, and where the opener's parts end, counted from the position
        self._probes: Probes = ()
        self._opener_end = 0
        self._separator_length = 0
        # Call
        self._call: OpenCall | None = None
        self._pending: Spelling | None = None
        self._cut_in_header = False
        # The short way: what finds a character that needs a look, and what makes an event of text without one
        self._look: Callable[[str], object | None] = len
        self._delta: Callable[[str], FormatEvent | None] = ContentDelta

        has_reasoning = format.reasoning is not None or format.channels is not None
        separator = "" if start is ReplyStart.REASONING else format.lead
        self._enter(_START[start] if has_reasoning else Mode.CONTENT, separator)
        self._free.fresh = True
        self._arm()

    @property
    def in_reasoning(self) -> bool:
        return self._free.mode is Mode.REASONING

    @property
    def open_call(self) -> bool:
        # A call whose opener is whole counts as begun when the reply was cut before its header could say what it is.
        # One whose arguments broke is over, and hides no other.
        call = self._call
        return self._cut_in_header or (call is not None and call.outcome is Outcome.CALL and not call.ended)

    def plain(self, text: str) -> FormatEvent | None:
        return self._delta(text) if text and not self._look(text) else None

    def feed(self, text: str) -> list[FormatEvent]:
        if text and not self._look(text) and (event := self._delta(text)) is not None:
            return [event]  # as `plain` says, without a call
        self._window.text += text
        while _STEPS[self._place](self):
            pass
        self._window.trim()
        events, self._free.events = self._free.events, []
        self._arm()
        return events

    def finish(self, reason: TextEnd) -> list[FormatEvent]:
        rest = self._window.rest
        self._cut_in_header = reason != "stop" and self._ledger.admits_more and self._may_become_a_call(rest)
        if self._cut_in_header and self._ledger.completed:
            self._ledger.broken += 1  # the calls are the answer, and half a header beside them is none
        elif reason != "stop" and self._call is None and begins_specially(rest, self._format.marker_texts):
            pass
        elif self._call is not None:
            self._calls.finish(self._call, ended=reason == "stop")
        elif not self._in_header():
            if self._place is _Place.PROBE and len(rest) > self._opener_end:
                self._ledger.broken += 1
            if rest or self._free.fresh:  # else it is layout between a marker and the end
                self._free.release()
            self._free.say_to(len(self._window.text))
        events, self._free.events = self._free.events, []
        return events

    def _may_become_a_call(self, rest: str) -> bool:
        match self._place:
            case _Place.CALL:
                return self._call is not None and self._call.outcome is Outcome.UNKNOWN
            case _Place.PROBE:
                return self._parse_calls
            case _Place.LEAD:
                return bool(rest) and self._unannounced_here() is None
            case _Place.TEXT:
                return False

    # Lead: behind a marker, or at the start

    def _at_lead(self) -> bool:
        window = self._window
        after = space_end(*window.here)
        if after > window.position:
            self._free.hold_to(after)
        if after == len(window.text):
            return False
        if (repeated := self._after.repeat_here()) is not False:
            return bool(repeated)
        waiting = False
        for attempt in (self._closer_here, self._unannounced_here, self._marker_here):
            outcome = attempt()
            if outcome:
                return True
            waiting = waiting or outcome is None
        if waiting:
            return False
        self._free.release()
        self._go_on_in_text()
        return True

    def _closer_here(self) -> bool | None:
        outcome = self._after.closer_here()
        if outcome and self._after.call is None:
            self._close_pending()
        return outcome

    def _unannounced_here(self) -> bool | None:
        """A call without a marker: the next one of a list, or a bare one where content starts."""
        probes: Probes = ()
        if self._after.call is not None:
            spelling = self._after.call.spelling
            probes = tuple((spelling, pattern) for pattern in spelling.followings)
        elif not self._free.said:
            probes = self._tables.unannounced[self._free.mode]
        if self._free.fresh:
            probes = (*probes, *self._tables.first)
        return self._attempt(probes, self._window.position)

    def _marker_here(self) -> bool | None:
        head = self._free.mode is Mode.HEAD or (self._echo and self._free.fresh)
        marks = self._tables.marks[Mode.HEAD] if head else self._marks
        if hit := marks.markers.at(*self._window.here):
            self._act(*hit, marks)
            return True
        return None if marks.markers.may_begin(*self._window.here) else False

    # Text: searched for markers

    def _in_text(self) -> bool:
        hit, stop = self._marks.markers.find(self._window.text, self._window.position)
        self._free.say_to(stop)
        if hit:
            self._act(*hit, self._marks)
        return hit is not None

    def _act(self, start: int, literal: str, end: int, marks: Marks) -> None:
        """Do what the marker means."""
        meaning = marks.meanings[literal]
        if not isinstance(meaning, Turn):
            self._window.position = start
            self._opener_end = end - start
            self._separator_length = space_end(self._window.text, start) - start
            self._probes = meaning
            self._place = _Place.PROBE
            return
        if meaning.aside:
            self._free.release()
            self._free.skip_to(end)
            self._go_on_in_text()
            return
        self._ledger.strays += meaning.stray
        ends_reasoning = self._format.reasoning is not None and literal in self._format.reasoning.closes
        if ends_reasoning:
            self._calls.broke_reasoning = False
        if ends_reasoning or (self._pending is not None and literal == self._pending.last_closer):
            self._close_pending()
        self._free.skip_to(end)
        self._enter(meaning.mode or self._free.mode, meaning.separator)

    def _close_pending(self) -> None:
        """All closing markup of the last call has come, so that it is no markup any more from here on."""
        if not self._calls.broke_reasoning:
            self._pending = None
        self._set_mode(self._free.mode)

    # Probe: is this opener a call?

    def _in_probe(self) -> bool:
        outcome = self._attempt(self._probes, self._window.position + self._separator_length)
        if outcome is False:
            self._refuse(self._window.position + self._opener_end)
        return outcome is not None

    def _attempt(self, probes: Probes, position: int) -> bool | None:
        """Begin what stands at the position. (This too says yes, no, or None for not yet.)"""
        waiting = False
        for spelling, pattern in probes:
            if match := pattern.match(self._window.text, position):
                if spelling is None:
                    self._route(match)
                elif not spelling.calls.glued:
                    self._begin_call(spelling, match.groupdict(), match.end())
                elif name := self._ledger.longest(self._window.text, match.start("name")):
                    self._begin_call(spelling, {"name": name}, match.start("name") + len(name))
                else:
                    continue
                return True
            waiting = waiting or pattern.may_match(self._window.text, position)
        return None if waiting else False

    def _in_header(self) -> bool:
        """Whether a message header has begun: what it holds is markup, though its end may never come."""
        return self._place is _Place.PROBE and self._probes[0][0] is None

    def _refuse(self, opener_end: int) -> None:
        """The opener was mere mention: it is text, and so is whatever follows until the next marker."""
        self._free.release()
        self._free.say_to(opener_end)
        self._go_on_in_text()

    def _route(self, match: re.Match[str]) -> None:
        """A message header: say what its body is."""
        headers = self._tables.headers
        assert headers is not None
        name = headers.called(match["header"], self._ledger.declares)
        if name is None:
            self._free.skip_to(match.end())
            self._enter(Mode.REASONING if headers.reasons(match["header"]) else Mode.CONTENT)
        elif self._parse_calls:
            self._begin_call(self._tables.spellings[0], {"name": name}, match.end())
        else:
            self._refuse(match.end())

    # Call: the text belongs to a reader of arguments

    def _begin_call(self, spelling: Spelling, fields: dict[str, str | None], end: int) -> None:
        """A call's header stands in the text from the position to ``end``."""
        header, _ = self._window.take_to(end)
        self._after.begin(spelling, header)
        self._place = _Place.CALL
        if isinstance(spelling.calls.arguments, JsonEnvelope):
            self._call = OpenCall(spelling, spelling.reader({}, self._ledger.declares), header)
            return
        written_id = (fields.get("id") or "").strip()
        name = self._ledger.resolve(fields.get("name") or written_id)
        self._call = OpenCall(spelling, spelling.reader(self._ledger.schema(name), self._ledger.declares), header)
        self._calls.decide(self._call, name, written_id)

    def _in_call(self) -> bool:
        call = self._call
        assert call is not None
        window, start = self._window, self._window.position
        window.position = call.reader.read(window.text, start)
        if call.outcome is Outcome.UNKNOWN:
            assert isinstance(call.reader, EnvelopeReader)
            call.raw.append(window.text[start : window.position])
            start = window.position
            if call.reader.started:
                self._calls.decide(call, self._ledger.resolve(call.reader.name or ""), "")
            elif call.reader.broken:
                self._call = None
                opener = self._calls.take_back(call)
                self._refuse(window.position + opener)
                return True
            else:
                return False
        self._calls.deliver(call, start)
        if call.reader.closed or call.reader.broken:
            self._end_call(call)
            return True
        return False

    def _end_call(self, call: OpenCall) -> None:
        self._call = None
        self._calls.end(call)
        if call.outcome is not Outcome.TEXT:
            self._pending = call.spelling
        self._enter(self._free.mode)
        self._after.call = call

    # What is common to all places

    def _enter(self, mode: Mode, separator: str = "") -> None:
        """Go to the lead of a mode."""
        self._place = _Place.LEAD
        self._free.separator = separator
        self._free.fresh = False
        self._after.call = None
        self._set_mode(mode)

    def _set_mode(self, mode: Mode) -> None:
        self._free.mode = mode
        if self._pending is not None and mode is Mode.CONTENT:
            self._marks = self._tables.after_call[self._pending.index, self._calls.broke_reasoning]
        else:
            self._marks = self._tables.marks[mode]

    def _go_on_in_text(self) -> None:
        self._place = _Place.TEXT
        self._after.forget()
        self._free.fresh = False
        self._set_mode(Mode.CONTENT if self._free.mode is Mode.HEAD else self._free.mode)

    def _arm(self) -> None:
        """Prepare the short way for text in which nothing can begin or end. Without one, all text needs a look."""
        self._look = len
        if self._window.text or self._free.events:
            return
        if self._place is _Place.TEXT:
            self._look = self._marks.markers.trigger.search
            self._delta = ReasoningDelta if self._free.mode is Mode.REASONING else ContentDelta
        elif (call := self._call) is not None and call.outcome is Outcome.CALL and (run := call.reader.run) is not None:
            self._look, self._delta = run.stop, run.delta(call.index)
            if self._window.kept is not None:
                self._delta = self._keeping(self._delta)

    def _keeping(self, delta: Callable[[str], FormatEvent | None]) -> Callable[[str], FormatEvent | None]:
        """The short way where its text is kept, as long as it is."""

        def kept(text: str) -> FormatEvent | None:
            self._window.record(text)
            if self._window.kept is None:
                self._delta = delta
            return delta(text)

        return kept

    def _take_prefill(self, prefill: str) -> None:
        events = self.feed(prefill)
        self._free.events = self._ledger.begin_anew(self._call, events)
        self._arm()


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
