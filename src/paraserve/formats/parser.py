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

Beside it stand `freetext.py` (what is said, and whitespace that waits), `calls.py` (which call counts, and its id) and
`tables.py` (the description, compiled: patterns, and what each marker means in each mode).

Two invariants. *Chunk invariance*: every decision is a function of the text before it alone; where more text could
change a decision, the machine waits (`Pattern` and `Markers` answer "not yet"). *Linear*: what waits is bounded, or
lies in lists that are joined once; no character is searched again except within a window as long as the longest
marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto

from msgspec.structs import replace

from paraserve.formats.arguments import EnvelopeReader
from paraserve.formats.calls import CallLedger, Fate, OpenCall, Undeclared
from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta, ToolCallStart
from paraserve.formats.freetext import FreeText
from paraserve.formats.literals import space_end
from paraserve.formats.patterns import Pattern
from paraserve.formats.spec import Format, JsonEnvelope
from paraserve.formats.tables import Meaning, Mode, Spelling, compile_format
from paraserve.formats.types import FinishReason, ReplyStart, ToolSpec


class _Place(Enum):
    LEAD = auto()
    TEXT = auto()
    PROBE = auto()
    CALL = auto()


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
        self._parse_calls = parse_tool_calls and (bool(tools) or undeclared == "call")
        self._tables = compile_format(format, calls=self._parse_calls)
        self._ledger = CallLedger(
            format,
            tools,
            parallel=True,
            offset=call_index_offset,
            new_id=new_id,
            undeclared=undeclared,
        )
        self._free = FreeText()
        self._text = ""
        self._position = 0
        self._known = 0
        """Where in the text the prompt's part of it ends; not above zero when all of it is news."""
        # Lead: what may stand only here
        self._echo = start is ReplyStart.REASONING
        self._follow: OpenCall | None = None
        # Probe: what may match, and where the opener's parts end, counted from the position
        self._probes: tuple[tuple[Spelling | None, Pattern], ...] = ()
        self._opener_end = 0
        self._separator_length = 0
        # Call
        self._call: OpenCall | None = None
        self._broke_reasoning = False
        self._pending: Spelling | None = None
        self._cut_in_header = False

        has_reasoning = format.reasoning is not None or format.channels is not None
        separator = "" if start is ReplyStart.REASONING else format.lead
        self._enter(_START[start] if has_reasoning else Mode.CONTENT, separator)
        self._free.fresh = True
        if prefill:
            self._take_prefill(prefill)
        self._ledger.parallel = parallel_tool_calls
        self._arm()

    @property
    def in_reasoning(self) -> bool:
        """Whether the text fed so far ends inside reasoning. A marker that is not whole has not ended it yet."""
        return self._free.mode is Mode.REASONING

    @property
    def open_call(self) -> bool:
        """Whether a call was begun and is not complete. It stays so when the reply ends within it.

        A call whose opener is whole counts as begun when the reply was cut before its header could say what it is.
        """
        return self._cut_in_header or self._ledger.begun > self._ledger.completed

    @property
    def completed_calls(self) -> int:
        return self._ledger.completed

    @property
    def broken_calls(self) -> int:
        """What looked like a call and did not become one: undeclared, no valid arguments, or cut."""
        return self._ledger.broken

    def plain(self, text: str) -> FormatEvent | None:
        """Feed text that comes out as it is and changes nothing, however it is cut. None where it is not known to be
        such text: it must be fed then, piece by piece."""
        if self._plain is None or not text or self._plain(text):
            return None
        return self._delta(text)

    def feed(self, text: str) -> list[FormatEvent]:
        """The events of more text."""
        if (event := self.plain(text)) is not None:
            return [event]
        self._text += text
        while _STEPS[self._place](self):
            pass
        self._text = self._text[self._position :]
        self._known -= self._position
        self._position = 0
        events, self._free.events = self._free.events, []
        self._arm()
        return events

    def finish(self, reason: FinishReason) -> list[FormatEvent]:
        """The events of the end: what was held back is given out. Nothing may be fed after it."""
        rest = self._text[self._position :]
        self._cut_in_header = reason != "stop" and self._ledger.admits_more and self._may_become_a_call(rest)
        if self._call is not None:
            self._finish_call(self._call, ended=reason == "stop")
        elif not self._in_header():
            if self._place is _Place.PROBE and len(rest) > self._opener_end:
                self._ledger.broken += 1
            if rest or self._free.fresh:  # else it is layout between a marker and the end
                self._free.release()
            self._say_to(len(self._text))
        events, self._free.events = self._free.events, []
        return events

    def _may_become_a_call(self, rest: str) -> bool:
        match self._place:
            case _Place.CALL:
                return self._call is not None and self._call.fate is Fate.UNKNOWN
            case _Place.PROBE:
                return self._parse_calls
            case _Place.LEAD:
                return bool(rest) and self._unannounced_here() is None
            case _Place.TEXT:
                return False

    # Lead: behind a marker, or at the start

    def _at_lead(self) -> bool:
        after = space_end(self._text, self._position)
        if after > self._position:
            self._free.hold(*self._take_to(after))
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
        self._free.release()
        self._go_on_in_text()
        return True

    def _closer_here(self) -> bool | None:
        """Closing markup of the call that has just ended. (These four say yes, no, or None for not yet.)"""
        if self._follow is None:
            return False
        spelling = self._follow.spelling
        hit = spelling.closers.at(self._text, self._position)
        entry = spelling.entry.match(self._text, self._position) if spelling.entry else None
        if hit is None and entry is None:
            waiting = spelling.closers.may_begin(self._text, self._position)
            waiting = waiting or (spelling.entry is not None and spelling.entry.may_match(self._text, self._position))
            return None if waiting else False
        end = hit[2] if hit else entry.end() if entry else 0
        if self._follow.keeps_text(hit[1] if hit else ""):
            self._free.release()
            self._say_to(end)
        self._free.drop()
        self._position = end
        if hit and hit[1] == spelling.last_closer:
            self._follow = None
            self._close_pending()
        return True

    def _unannounced_here(self) -> bool | None:
        """A call without a marker: the next one of a list, or a bare one where content starts."""
        candidates: tuple[tuple[Spelling, Pattern], ...] = ()
        if self._follow is not None:
            spelling = self._follow.spelling
            candidates = tuple((spelling, pattern) for pattern in spelling.followings)
        elif self._free.mode is not Mode.REASONING and not self._free.said:
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
        if header is None or self._free.mode is not Mode.HEAD:
            return False
        if match := header.match(self._text, self._position):
            self._route(match)
            return True
        return None if header.may_match(self._text, self._position) else False

    def _marker_here(self) -> bool | None:
        head = self._free.mode is Mode.HEAD or (self._echo and self._free.fresh)
        markers = self._tables.markers[Mode.HEAD] if head else self._markers
        if hit := markers.at(self._text, self._position):
            self._act(*hit, Mode.HEAD if head else self._free.mode)
            return True
        return None if markers.may_begin(self._text, self._position) else False

    # Text: searched for markers

    def _in_text(self) -> bool:
        hit = self._markers.search(self._text, self._position)
        stop = hit[0] if hit else self._markers.held_from(self._text, self._position)
        self._say_to(stop)
        if hit:
            self._act(*hit, self._free.mode)
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
                self._enter(Mode.CONTENT, self._tables.frame_ends.get(literal, ""))
            case Meaning.CLOSER:
                ends_reasoning = block is not None and literal == block.close
                if ends_reasoning:
                    self._broke_reasoning = False
                if ends_reasoning or (self._pending is not None and literal == self._pending.last_closer):
                    self._close_pending()
                self._pass_marker(end)
                self._enter(Mode.CONTENT, block.close_after if block and ends_reasoning else "")

    def _close_pending(self) -> None:
        """All closing markup of the last call has come, so that it is no markup any more from here on."""
        if not self._broke_reasoning:
            self._pending = None
        self._set_mode(self._free.mode)

    def _pass_marker(self, end: int) -> None:
        self._position = end
        self._free.drop()

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
        self._free.release()
        self._say_to(opener_end)
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
        self._follow = None
        if isinstance(spelling.calls.arguments, JsonEnvelope):
            self._call = OpenCall(spelling, spelling.reader({}), header)
            return
        written_id = (fields.get("id") or "").strip()
        name = self._ledger.resolve(fields.get("name") or written_id)
        self._call = OpenCall(spelling, spelling.reader(self._ledger.schema(name)), header)
        self._decide(self._call, name, written_id)

    def _decide(self, call: OpenCall, name: str | None, written_id: str) -> None:
        """The name is read: is this a call, is it one too many, or is it text?"""
        if name is None:
            call.fate = Fate.TEXT
            self._ledger.broken += 1
            self._free.release()
            self._say_taken("".join(call.raw))
            self._free.mode = Mode.CONTENT if self._free.mode is Mode.HEAD else self._free.mode
        else:
            self._pass_marker(self._position)
            self._free.fresh = False
            self._broke_reasoning = self._broke_reasoning or self._free.mode is Mode.REASONING
            self._free.mode = Mode.CONTENT
            self._free.events += self._ledger.admit(call, name, written_id)
        call.raw = []

    def _in_call(self) -> bool:
        call = self._call
        assert call is not None
        end = call.reader.read(self._text, self._position)
        taken = self._text[self._position : end]
        self._position = end
        if call.fate is Fate.UNKNOWN:
            assert isinstance(call.reader, EnvelopeReader)
            call.raw.append(taken)
            taken = ""
            if call.reader.started:
                self._decide(call, self._ledger.resolve(call.reader.name or ""), "")
            elif call.reader.broken:
                self._take_back(call)
                return True
            else:
                return False
        self._deliver(call, taken)
        if call.reader.closed or call.reader.broken:
            self._end_call(call)
            return True
        return False

    def _deliver(self, call: OpenCall, taken: str) -> None:
        if call.fate is Fate.TEXT:
            self._say_taken(taken)
        self._free.events += self._ledger.arguments(call)

    def _take_back(self, call: OpenCall) -> None:
        """What was read as an envelope is none: only its opener is text for sure, so go on right behind that."""
        if call.reader.name is not None:
            self._ledger.broken += 1
        self._call = None
        raw = "".join(call.raw)
        self._position -= len(raw)
        if self._position < 0:  # else all of it still stands in the text
            self._text = raw[: -self._position] + self._text
            self._known -= self._position
            self._position = 0
        self._refuse(self._position + len(call.header))

    def _end_call(self, call: OpenCall) -> None:
        self._call = None
        if call.fate is Fate.CALL and call.reader.broken:
            self._ledger.broken += 1
            self._say_taken(call.reader.rest)
        if call.fate is not Fate.TEXT:
            self._pending = call.spelling
        self._enter(self._free.mode)
        self._follow = call

    def _finish_call(self, call: OpenCall, *, ended: bool) -> None:
        call.reader.finish(self._text, self._position, ended=ended)
        rest, _ = self._take_to(len(self._text))
        if call.fate is Fate.UNKNOWN:
            self._ledger.broken += 1
            self._free.release()
            self._say_taken("".join(call.raw) + rest)
            return
        self._deliver(call, rest)
        if call.fate is Fate.CALL and not call.ended:
            self._ledger.broken += 1
            self._say_taken(call.reader.rest)

    # What is common to all places

    def _take_to(self, end: int) -> tuple[str, int]:
        """Go to ``end``. Returns the text on the way, and how much of its beginning was in the prompt already."""
        text, known = self._text[self._position : end], self._known - self._position
        self._position = end
        return text, known

    def _say_to(self, end: int) -> None:
        self._free.say(*self._take_to(end))

    def _say_taken(self, text: str) -> None:
        """Say the text that stands right before the position, all of it in the prompt or some or none."""
        self._free.say(text, self._known - (self._position - len(text)))

    def _enter(self, mode: Mode, separator: str = "") -> None:
        """Go to the lead of a mode."""
        self._place = _Place.LEAD
        self._free.separator = separator
        self._free.fresh = False
        self._follow = None
        self._set_mode(mode)

    def _set_mode(self, mode: Mode) -> None:
        self._free.mode = mode
        if self._pending is not None and mode is Mode.CONTENT:
            self._markers = self._tables.after_call[self._pending.index, self._broke_reasoning]
        else:
            self._markers = self._tables.markers[mode]

    def _go_on_in_text(self) -> None:
        self._place = _Place.TEXT
        self._free.fresh = False
        self._follow = None
        self._set_mode(Mode.CONTENT if self._free.mode is Mode.HEAD else self._free.mode)

    def _arm(self) -> None:
        """Prepare the short way for text in which nothing can begin."""
        free = self._place is _Place.TEXT and not self._text and not self._free.events
        self._plain = self._markers.trigger.search if free else None
        self._delta = ReasoningDelta if self._free.mode is Mode.REASONING else ContentDelta

    def _take_prefill(self, prefill: str) -> None:
        """Run text that the prompt holds already. Only a call that it leaves open is news to the client."""
        self._plain = None
        self._known = len(prefill)
        events = self.feed(prefill)
        call = self._call
        self._ledger.begin_anew(call)
        if call is not None and call.fate is Fate.CALL:
            start = max(i for i, event in enumerate(events) if isinstance(event, ToolCallStart))
            self._free.events = [replace(event, index=0) for event in events[start:]]


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
