"""Readers of arguments that are written as one element each: keys and values between markers.

The family writes strings raw, so a value's type comes from the markup where it says so, else from the tool's schema.
Strings come out as they arrive; all else is held until it is whole. Only keys are trimmed, never a string value. The
readers follow the contract of `arguments.ArgumentReader`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paraserve.formats.reading.literals import PlainRun, cut_literal, encode_string, escape, space_end
from paraserve.formats.reading.patterns import Markers, Pattern
from paraserve.formats.reading.schema import (
    ANYTHING,
    STRING,
    Expected,
    expected,
    item_schema,
    json_value,
    maybe_literal,
    property_schema,
)

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParameterMarkup:
    """The compiled markup of `Parameters` (see `tables.py`)."""

    open: Pattern
    lead: str
    close: str
    end: Pattern
    trigger: re.Pattern[str]
    """A character without which no end begins."""
    enders: Markers


_LOOK = 8
_LONG_SPACE = 64


class _KeyedReader(ABC):
    """What readers of one element for each argument share: keys, and values that are strings or held."""

    name: str | None = None

    @property
    def run(self) -> PlainRun | None:
        return None

    def __init__(self, open_: Pattern, enders: Markers, schema: Schema) -> None:
        self._open = open_
        self._enders = enders
        self._schema = schema
        self._first = True
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
        if self._enders.at(text, position):
            self._end_object()
        elif match := self._open.match(text, position):
            self._begin_value(match)
            return position if self.broken else match.end()
        elif not (self._enders.may_begin(text, position) or self._open.may_match(text, position)):
            self.broken = True
        return position

    @abstractmethod
    def _value(self, text: str, position: int) -> int:
        """Read on in the value that is open; the position behind what was taken."""

    def _begin_value(self, match: re.Match[str]) -> None:
        key = match["key"].strip()
        fields = match.groupdict()
        self.out.append(("{" if self._first else ", ") + encode_string(key) + ": ")
        self._first = False
        self._in_value = True
        self._begin(_declared(fields) or expected(self._schema, property_schema(self._schema, self._schema, key)))

    def _begin(self, expectation: Expected) -> None:
        self._expected = expectation
        self._held = self._head = None
        if expectation.mode == "string":
            self.out.append('"')
        elif expectation.mode == "literal":
            self._held = []
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
        if not maybe_literal(head, self._expected.mode):
            self._head = None
            self.out.append('"' + escape(head))
        elif len(head.strip()) >= _LOOK or len(head) > _LONG_SPACE:
            self._head, self._held = None, [head]

    def _end_value(self) -> None:
        self._in_value = False
        if self._head is not None:
            self.out.append(json_value(self._head, self._expected))
        elif self._held is not None:
            self.out.append(json_value("".join(self._held), self._expected))
        else:
            self.out.append('"')

    def _end_object(self) -> None:
        self.out.append("{}" if self._first else "}")
        self.whole = self.closed = True

    def _flush(self) -> None:
        """Cut inside a value: give out what is held, as a prefix."""
        held = self._head if self._head is not None else "".join(self._held or ())
        if (self._head is None and self._held is None) or not held:
            return
        written, self.rest = cut_literal(held) or ('"' + escape(held), "")
        self.out.append(written)


class ParametersReader(_KeyedReader):
    """Values between an opening and a closing marker, raw.

    A closing marker counts only where markup follows (another parameter, or the end of the call), so that a value may
    hold its own closing marker's text.
    """

    def __init__(self, markup: ParameterMarkup, schema: Schema) -> None:
        super().__init__(markup.open, markup.enders, schema)
        self._markup = markup
        self._lead = ""
        self._run = PlainRun(markup.trigger.search, escape)

    @property
    def run(self) -> PlainRun | None:
        streams = self._in_value and not self._lead and self._held is None and self._head is None
        return self._run if streams else None

    def _begin(self, expectation: Expected) -> None:
        super()._begin(expectation)
        self._lead = self._markup.lead

    def _value(self, text: str, position: int) -> int:
        markup = self._markup
        if self._lead:
            if text.startswith(self._lead, position):
                position += len(self._lead)
            elif self._lead.startswith(text[position : position + len(self._lead)]):
                return position
            self._lead = ""
        if markup.trigger.search(text, position) is None:
            self._take(text[position:])
            return len(text)
        match, stop = markup.end.find(text, position)
        if stop > position:
            self._take(text[position:stop])
        if match is None:
            return stop
        self._end_value()
        return match.end()

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        if not self._in_value:
            if ended and not text[position:].strip():
                self._end_object()
            return
        _, stop = self._markup.end.find(text, position)
        _, closing, rest = text[stop:].partition(self._markup.close)
        if not closing:
            self._take(text[position : len(text) if ended else stop])  # a cut may fall into the closing markup
            self._flush()
            return
        self._take(text[position:stop])
        self._end_value()
        if ended and not rest.strip():
            self._end_object()


class ElementsReader(_KeyedReader):
    """Values as nested elements; what is no string is held until it is whole and typed leaf by leaf."""

    def __init__(self, tag: str, item: str, open_: Pattern, enders: Markers, schema: Schema) -> None:
        super().__init__(open_, enders, schema)
        self._tag = tag
        self._item = item
        self._element = re.compile(re.escape(tag) + r"<(/?)([^<>]{1,256})>")
        self._nodes: list[_Node] = []
        self._raw: list[str] = []

    def _begin_value(self, match: re.Match[str]) -> None:
        key = match["key"].strip()
        if key.startswith("/"):
            self.broken = True
            return
        super()._begin_value(match)
        self._nodes = [_Node(key, property_schema(self._schema, self._schema, key))]
        self._raw = []

    def read(self, text: str, position: int) -> int:
        end = super().read(text, position)
        if self.broken and self._in_value:
            self.rest = "".join(self._raw)
        return end

    def _begin(self, expectation: Expected) -> None:
        """Only a plain string streams; the elements of anything else decide what it is."""
        super()._begin(expectation)
        if self._head is not None:
            self._head, self._held = None, []

    def _value(self, text: str, position: int) -> int:
        mark = text.find(self._tag, position)
        is_whole = mark >= 0
        if not is_whole:
            mark = _part_start(text, self._tag, position)
        self._text(text[position:mark])
        if not is_whole:
            return mark
        match = self._element.match(text, mark)
        if match is None:
            if len(text) - mark > len(self._tag) + 260 or not _may_be_element(text[mark + len(self._tag) :]):
                self.broken = True
            return mark
        if not match[1]:
            if self._held is None:
                self.broken = True
                return mark
            self._nodes.append(_Node(match[2], self._child_schema(match[2])))
        elif match[2] != self._nodes[-1].key:
            self.broken = True
            return mark
        else:
            self._end_node()
        self._keep(match[0])
        return match.end()

    def _text(self, text: str) -> None:
        if text and self._held is None:
            self.out.append(escape(text))
        elif text:
            self._nodes[-1].text.append(text)
            self._keep(text)

    def _keep(self, text: str) -> None:
        """Remember what is taken of a held value, for the case that it breaks."""
        if self._held is not None:
            self._raw.append(text)

    def _child_schema(self, key: str) -> Any:
        parent = self._nodes[-1].schema
        return item_schema(self._schema, parent) if key == self._item else property_schema(self._schema, parent, key)

    def _end_node(self) -> None:
        node = self._nodes.pop()
        if self._held is None:
            self.out.append('"')
        else:
            written = node.json(self._item, expected(self._schema, node.schema))
            if self._nodes:
                self._nodes[-1].children.append((node.key, written))
                return
            self.out.append(written)
        self._in_value = False

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        if not self._in_value:
            if ended and not text[position:].strip():
                self._end_object()
        elif self._held is None:
            self.out.append(escape(text[position:]))
        else:
            self.rest = "".join(self._raw) + text[position:]


class _Node:
    """One open element."""

    __slots__ = ("children", "key", "schema", "text")

    def __init__(self, key: str, schema: Any) -> None:
        self.key = key
        self.schema = schema
        self.children: list[tuple[str, str]] = []
        self.text: list[str] = []

    def json(self, item: str, expectation: Expected) -> str:
        types = expectation.types or frozenset()
        if self.children:
            if all(key == item for key, _ in self.children) and not types & {"object"}:
                return "[" + ", ".join(value for _, value in self.children) + "]"
            return "{" + ", ".join(f"{encode_string(key)}: {value}" for key, value in self.children) + "}"
        text = "".join(self.text)
        if not text.strip() and "string" not in types and types & {"object", "array"}:
            return "{}" if "object" in types else "[]"
        return json_value(text, expectation)


def _declared(fields: Mapping[str, str | None]) -> Expected | None:
    """What the markup itself says about a value's type."""
    if (declared := fields.get("type")) is not None:
        return STRING if declared == "string" else Expected(frozenset({declared}))
    if (is_string := fields.get("string")) is not None:
        return STRING if is_string == "true" else Expected(frozenset({"object"}))
    return None


def _part_start(text: str, marker: str, position: int) -> int:
    """Where the end of the text begins that is a beginning of the marker."""
    for start in range(max(position, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[start:]):
            return start
    return len(text)


def _may_be_element(text: str) -> bool:
    return re.fullmatch(r"(?:</?[^<>]*)?", text) is not None
