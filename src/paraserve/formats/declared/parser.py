"""Runs a declaration of regions (`regions.py`): text of a reply in, events out, as `reading/parser.py` does.

Text is either in an explicit region or outside of all. In a region only its own closing delimiter means something;
outside, every opening delimiter does. What is in a region of text is given out as it comes, less the whitespace at both
ends where the declaration strips it. What is in a region of calls is kept until the region is whole, since only then
can its content parser say what it is: then it becomes calls, or (no calls, a tool that was not declared, cut) it is
content as it stands, delimiters included. What stands outside is content, whether the declaration has a field for it
or not: an answer without its markers is still an answer.

Invariants: as in `reading/parser.py`, chunk invariance and linear cost; what is held back is bounded, but for the
regions of calls.
"""

from __future__ import annotations

import re

from paraserve.formats.declared.anchors import AnchorSet
from paraserve.formats.declared.content import MalformedError, RegionCall, arguments_json, calls_of
from paraserve.formats.declared.regions import Edge, Region, RegionKind, Regions
from paraserve.formats.events import ContentDelta, FormatEvent, ReasoningDelta
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.types import ReplyStart, TextEnd


class RegionParser(ReplyParser):
    """Reads a reply in the format that declared regions give."""

    def _begin(self, start: ReplyStart) -> None:
        assert isinstance(self._format.declared, Regions)
        self._regions = self._format.declared
        content = self._regions.first(RegionKind.CONTENT) or Region(RegionKind.CONTENT)
        reasoning = self._regions.first(RegionKind.REASONING)
        self._events: list[FormatEvent] = []
        self._content = _TextField(content, ContentDelta, self._events)
        self._reasoning = _TextField(reasoning or Region(RegionKind.REASONING), ReasoningDelta, self._events)
        self._may_reason = start is not ReplyStart.CONTENT
        self._inside = reasoning if start is ReplyStart.REASONING else None
        self._echo = self._inside is not None
        self._captures: dict[str, str] = {}
        self._raw: list[str] = []
        """All text of an open region of calls, delimiters included, that is news."""
        self._body: list[str] = []
        self._cut_in_calls = False
        self._watched = self._watch()

    @property
    def in_reasoning(self) -> bool:
        return self._inside is not None and self._inside.kind is RegionKind.REASONING

    @property
    def open_call(self) -> bool:
        # False before the reply's end: a call is reported when it is whole.
        return self._cut_in_calls

    def plain(self, text: str) -> FormatEvent | None:
        return self.feed(text)[0] if self._passes(text) else None

    def _passes(self, text: str) -> bool:
        if self._window.text or self._echo or self._watched.trigger.search(text):
            return False
        match self._inside.kind if self._inside else None:
            case RegionKind.REASONING:
                return self._reasoning.passes(text)
            case RegionKind.CONTENT | None:
                return self._content.passes(text)
            case _:
                return False

    def feed(self, text: str) -> list[FormatEvent]:
        self._window.text += text
        while self._step(final=False):
            pass
        self._window.trim()
        return self._given()

    def finish(self, reason: TextEnd) -> list[FormatEvent]:
        while self._step(final=True):
            pass
        if self._parse_calls and self._inside is not None and self._inside.kind is RegionKind.CALLS:
            before = self._ledger.begun
            self._end_calls(self._inside, closed=False, ended=reason == "stop")
            self._cut_in_calls = reason != "stop" and self._ledger.begun == before and self._ledger.admits_more
        return self._given()

    def _given(self) -> list[FormatEvent]:
        events = self._events[:]
        self._events.clear()
        return events

    def _watch(self) -> AnchorSet[Edge]:
        return self._regions.watch(self._inside, may_reason=self._may_reason)

    def _step(self, *, final: bool) -> bool:
        """Take the text up to the next delimiter, and the delimiter."""
        if self._echo and self._passed_echo(final=final):
            return False
        window = self._window
        found, stop = self._watched.search(window.text, window.position, final=final)
        self._take(*window.take_to(stop))
        if found is None:
            return False
        edge, match = found
        written, known = window.take_to(match.end())
        (self._open if edge.is_open else self._close)(edge.region, match, written[max(known, 0) :])
        self._watched = self._watch()
        return True

    def _passed_echo(self, *, final: bool) -> bool:
        """After a prompt that opened the reasoning, drop an opener that the model repeats. True: wait."""
        text = self._window.text
        at = len(text) - len(text.lstrip())
        region = self._inside
        opener = region.open.at(text, at, final=final) if region is not None and region.open else None
        if not final and (at == len(text) or opener is True):
            return True
        self._echo = False
        if isinstance(opener, re.Match) and opener.end() > at:
            self._window.take_to(opener.end())
        return False

    def _take(self, text: str, known: int) -> None:
        known = max(known, 0)
        for part, is_known in ((text[:known], True), (text[known:], False)):
            if part:
                self._take_part(part, known=is_known)

    def _take_part(self, text: str, *, known: bool) -> None:
        match self._inside.kind if self._inside else None:
            case RegionKind.CALLS if self._parse_calls:
                self._body.append(text)
                self._raw.append("" if known else text)
            case RegionKind.CALLS:
                self._content.say_exactly(text, known=known)
            case RegionKind.REASONING:
                self._reasoning.say(text, known=known)
            case RegionKind.CONTENT:
                self._content.say(text, known=known)
            case RegionKind.IGNORED:
                pass
            case None:
                self._content.say(text, known=known, strip=self._regions.implicit is None)

    def _open(self, region: Region, match: re.Match[str], news: str) -> None:
        self._content.end()
        self._inside = region
        if region.kind is RegionKind.CALLS:
            if not self._parse_calls:
                self._content.say_exactly(news)
            self._raw = [news]
            self._body = []
            self._captures = _named(match)

    def _close(self, region: Region, match: re.Match[str], news: str) -> None:
        self._inside = None
        match region.kind:
            case RegionKind.CALLS if self._parse_calls:
                self._captures |= _named(match)
                self._raw.append(news)
                self._end_calls(region, closed=True, ended=True)
            case RegionKind.CALLS:
                self._content.say_exactly(news)
            case RegionKind.REASONING:
                self._may_reason = region.repeats
                self._reasoning.end()
            case _:
                self._content.end()

    def _end_calls(self, region: Region, *, closed: bool, ended: bool) -> None:
        try:
            if not (closed or ended or region.whole_by_itself):
                raise MalformedError("cut")
            calls, behind = self._read(region)
            named = [(call, self._ledger.resolve(call.name)) for call in calls]
            if any(name is None for _, name in named):
                raise MalformedError("a tool that was not declared")
            written = [
                (name, arguments_json(call.arguments, self._ledger.schema(name)), call.id)
                for call, name in named
                if name is not None
            ]
        except MalformedError:
            self._ledger.broken += 1
            self._content.say_exactly("".join(self._raw))
            return
        for name, arguments, written_id in written:
            self._events += self._ledger.add_whole(name, arguments, written_id)
        self._content.say(behind)

    def _read(self, region: Region) -> tuple[list[RegionCall], str]:
        assert region.read is not None
        value, behind = region.read("".join(self._body))
        return calls_of(value, self._captures, region.transform, each=region.transform_each), behind

    def _take_prefill(self, prefill: str) -> None:
        self.feed(prefill)
        self._ledger.begin_anew(None)


class _TextField:
    """One field of text: gives it out as it comes, whitespace at its ends aside."""

    def __init__(
        self, region: Region, event: type[ContentDelta] | type[ReasoningDelta], events: list[FormatEvent]
    ) -> None:
        self._region = region
        self._event = event
        self._events = events
        self._held: list[str] = []
        """Whitespace that is given out if text follows."""
        self._said = False
        self._joins = False

    def say(self, text: str, *, known: bool = False, strip: bool = False) -> None:
        if not (strip or self._region.strip):
            self.say_exactly(text, known=known)
            return
        body = text.strip()
        if not body:
            self._held.append("" if known else text)
            return
        start = text.index(body[0])
        self._held.append("" if known else text[:start])
        before = "".join(self._held) if self._said else ""
        if self._joins and self._region.join is not None:
            before = self._region.join
        self._held = ["" if known else text[start + len(body) :]]
        self._joins = False
        self._give("" if known else before + body)

    def say_exactly(self, text: str, *, known: bool = False) -> None:
        """Text of which nothing is layout; whitespace that waited before it is part of it."""
        before = "".join(self._held) if self._said else ""
        if self._joins and text and self._region.join is not None:
            before = self._region.join
        self._held.clear()
        self._joins = False
        self._give("" if known else before + text)

    def passes(self, text: str) -> bool:
        free = self._said and not self._joins and not any(self._held)
        return free and bool(text) and text == text.strip()

    def end(self) -> None:
        """A region has ended: what follows is another one of the field."""
        self._joins = self._said

    def _give(self, text: str) -> None:
        self._said = True
        if text:
            self._events.append(self._event(text))


def _named(match: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in match.groupdict().items() if text is not None}
