"""Readers of arguments that are written as one element each: keys and values between markers.

The family writes strings raw, so a value's type comes from the markup where it says so, else from the tool's schema.
Strings come out as they arrive; all else is held until it is whole. Only keys are trimmed, never a string value. The
readers follow the contract of `arguments.ArgumentReader`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring
from typing import Any

from paraserve.formats.events import ToolCallDelta
from paraserve.formats.reading.literals import convert, cut_literal, space_end
from paraserve.formats.reading.parameter_markup import ParameterMarkup
from paraserve.formats.reading.patterns import Markers, Pattern
from paraserve.formats.reading.schema import (
    ANYTHING,
    TYPED,
    Expected,
    begins_python,
    expected,
    json_value,
    maybe_literal,
    property_schema,
    typed,
)
from paraserve.formats.reading.strings import PlainRun, encode_string, escape, escaped_delta, needs_escapes
from paraserve.formats.templates import is_markup

Schema = Mapping[str, Any]

_LOOK = 8
_LONG_SPACE = 64


class KeyedReader(ABC):
    """What readers of one element for each argument share: keys, and values that are strings or held."""

    name: str | None = None

    @property
    def run(self) -> PlainRun | None:
        return None

    def __init__(self, opens: tuple[Pattern, ...], enders: Markers, schema: Schema, *, python: bool) -> None:
        self._opens = opens
        self._meant: Callable[[str], str] = str
        self._wraps = self._wrapped = False
        self._enders = enders
        self._schema = schema
        self._python = python
        self._given: set[str] = set()
        self._again = False
        """The key that is open was given already, so that its value does not come out."""
        self._in_value = False
        self._expected: Expected = ANYTHING
        self._held: list[str] | None = None
        self._head: str | None = None
        self.rest = ""
        self.out: list[str] = []
        self.whole = self.closed = self.broken = False

    def read(self, text: str, position: int) -> int:
        while not (self.closed or self.broken):
            before, inside = position, self._in_value
            position = self._value(text, position) if inside else self._between(text, position)
            if position == before and inside == self._in_value:
                break
        return position

    def _between(self, text: str, position: int) -> int:
        position = space_end(text, position)
        if position == len(text):
            return position
        first, *others = self._opens
        ends = self._enders.at(text, position)
        if not ends and (match := first.match(text, position)):
            self._begin_value(match)
            return position if self.broken else match.end()
        waiting = not ends and first.may_match(text, position)
        for other in others:
            if waiting:
                break
            match = other.match(text, position)
            if match and self._wants(self._meant(match["key"].strip())):
                return self._begin_drifted(match, text)
            waiting = match is None and other.may_match(text, position)
        if ends and not waiting:
            self._end_object()
        elif not (waiting or self._enders.may_begin(text, position)):
            self.broken = True
        return position

    def _begin_drifted(self, match: re.Match[str], text: str) -> int:
        """Behind another opener than the family's: a key that nothing follows but markup has no value."""
        after = space_end(text, match.end())
        if self._enders.at(text, after) or self._opens[0].match(text, after):
            return after
        if self._enders.may_begin(text, after) or self._opens[0].may_match(text, after):
            return match.start()
        self._begin_value(match)
        return match.end()

    def _wants(self, key: str) -> bool:
        """Whether it is a declared key that was not given yet."""
        return key not in self._given and property_schema(self._schema, self._schema, key) is not None

    @abstractmethod
    def _value(self, text: str, position: int) -> int:
        """Read on in the value that is open; the position behind what was taken."""

    def _begin_value(self, match: re.Match[str]) -> None:
        self._key = key = self._meant(match["key"].strip())
        self._again = key in self._given
        self._wrapped = self._wraps and not self._given and not self._wants(key)
        if not self._again and not self._wrapped:
            self.out.append(self._opening())
        self._given.add(key)
        self._in_value = True
        known = expected(self._schema, property_schema(self._schema, self._schema, key))
        self._begin(typed(known, match.groupdict()))

    def _begin(self, expectation: Expected) -> None:
        self._expected = expectation
        self._held = self._head = None
        if self._again or self._wrapped or expectation.mode == "literal":
            self._held = []
        elif expectation.mode == "string":
            self.out.append('"')
        else:
            self._head = ""

    def _take(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
        elif self._head is None:
            self.out.append(escape(text))
        elif text:
            self._look(self._head + text)

    def _look(self, head: str) -> None:
        """Find out from a value's beginning whether it must be held until it is whole."""
        self._head = head
        if not maybe_literal(head, self._expected.mode, python=self._python):
            self._head = None
            self.out.append('"' + escape(head))
        elif len(head.strip()) >= _LOOK or len(head) > _LONG_SPACE:
            self._head, self._held = None, [head]

    def _end_value(self) -> None:
        self._in_value = False
        if self._head is None and self._held is None:
            self.out.append('"')
        elif not self._again:
            held = self._head if self._head is not None else "".join(self._held or ())
            if not self._wrapped or not self._unwrap(held):
                self.out.append(self._opening() * self._wrapped)
                self.out.append(json_value(held, self._expected, python=self._python))

    def _opening(self) -> str:
        return ("{" if self._given <= {self._key} else ", ") + encode_string(self._key) + ": "

    def _unwrap(self, held: str) -> bool:
        """The arguments are one object that stands as the value of a key of no meaning."""
        written = convert(held) or ""
        keys = [key for key, _ in json.loads(written, object_pairs_hook=list)] if written[:1] == "{" else []
        if not keys or len(set(keys)) < len(keys) or not all(map(self._wants, keys)):
            return False
        self._given = set(keys)
        self.out.append(written[:-1].rstrip())
        return True

    def _end_object(self) -> None:
        self.out.append("}" if self._given else "{}")
        self.whole = self.closed = True

    def _flush(self) -> None:
        """Cut inside a value: give out what is held, as a prefix."""
        held = self._head if self._head is not None else "".join(self._held or ())
        if (self._head is None and self._held is None) or not held or self._again:
            return
        self.out.append(self._opening() * self._wrapped)
        by_look = self._expected is TYPED or self._expected.mode == "by_look"
        python = not by_look or begins_python(held, self._python)
        written, self.rest = cut_literal(held, python=python) or ('"' + escape(held), "")
        self.out.append(written)


class ParametersReader(KeyedReader):
    """Values between an opening and a closing marker, raw.

    A closing marker counts only where markup follows (another parameter, or the end of the call), so that a value may
    hold its own closing marker's text. Where it is missing, what can only follow a value ends it: see
    `parameter_markup`. A value that holds the opener of a call tells of calls, so that nothing else ends it then.
    """

    def __init__(self, markup: ParameterMarkup, schema: Schema, declared: Callable[[str], bool]) -> None:
        super().__init__(markup.opens, markup.enders, schema, python=markup.python)
        self._markup = markup
        self._meant, self._wraps = markup.meant, markup.wraps
        self._declared = declared
        self._lead = ""
        self._empty = True
        self._quotes = False
        self._breaks = 0
        """Line breaks that were taken in a short way and belong to the value only if it goes on."""
        self._run = PlainRun(markup.trigger.search, self._delta if markup.breaks else escaped_delta)

    @property
    def run(self) -> PlainRun | None:
        streams = self._in_value and not self._empty and self._held is None and self._head is None
        return self._run if streams else None

    def _delta(self, index: int) -> Callable[[str], ToolCallDelta | None]:
        """Line breaks at the end of a text wait: they belong to the value only if it goes on."""

        def delta(text: str) -> ToolCallDelta | None:
            if needs_escapes(text):
                shown = text.rstrip("\n")
                if not shown:
                    return None
                text, self._breaks = "\\n" * self._breaks + encode_basestring(shown)[1:-1], len(text) - len(shown)
            elif self._breaks:
                text, self._breaks = "\\n" * self._breaks + text, 0
            return ToolCallDelta(index, text)

        return delta

    def _begin(self, expectation: Expected) -> None:
        super()._begin(expectation)
        self._lead = self._markup.lead
        self._empty, self._quotes = True, False

    def _value(self, text: str, position: int) -> int:
        if self._breaks:
            kept, self._breaks = self._breaks, 0
            end = self._value("\n" * kept + text[position:], 0)
            self._breaks = max(0, kept - end)
            return position + max(0, end - kept)
        if self._lead:
            if text.startswith(self._lead, position):
                position += len(self._lead)
            elif self._lead.startswith(text[position : position + len(self._lead)]):
                return position
            self._lead = ""
        match, stop = self._find_end(text, position)
        self._take(text[position:stop])
        if match is None:
            return stop
        self._end_value()
        return match.end()

    def _take(self, text: str) -> None:
        if text:
            self._empty = False
            super()._take(text)

    def _find_end(self, text: str, position: int) -> tuple[re.Match[str] | None, int]:
        """The end of the value and where it begins, or where the end of the text begins that may become it."""
        markup, at = self._markup, position
        while not self._quotes:
            begun = markup.end.part.search(text, at)
            stop = begun.start() if begun else len(text)
            quote, quoted = markup.quoting.find(text, at)
            if quoted >= stop:
                match = markup.end.match(text, stop)
                if match is None or self._fits(match, position):
                    return match, stop
                if markup.closed.may_match(text, stop):
                    return None, stop
                at = stop + 1
            if quoted <= stop:
                if quote is None:
                    return None, quoted
                self._quotes, at = True, quote.end()
        return markup.closed.find(text, at)

    def _fits(self, match: re.Match[str], begin: int) -> bool:
        found = {group: text.strip() for group, text in match.groupdict().items() if text is not None}
        if not found:
            return True
        markup, taken = self._markup, match[0].strip()
        ((group, name),) = found.items()
        if taken not in ("", markup.close, *markup.closers, f"</{self._key}>"):
            return False
        if group.startswith("name"):
            return self._declared(name)
        on_line = bool(match[0]) or not markup.on_lines or (self._empty and match.start() == begin)
        return on_line and self._wants(self._meant(name))

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        if not self._in_value:
            if ended and not text[position:].strip():
                self._end_object()
            return
        text = "\n" * self._breaks + text[position:]
        _, stop = self._find_end(text, 0)
        rest = text[stop:]
        if ended and not self._quotes and self._markup.remaining.fullmatch(rest):
            rest = self._markup.close
        _, closing, behind = rest.partition(self._markup.close)
        begun = not ended and self._opens[0].may_match(behind, space_end(behind, 0))  # another argument
        if not closing or not (begun or is_markup(behind)):
            self._take(text[:stop] if not ended and is_markup(rest) else text)  # a cut may fall into closing markup
            self._flush()
            return
        self._take(text[:stop])
        self._end_value()
        if ended and not behind.strip():
            self._end_object()
