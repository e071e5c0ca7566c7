"""Readers of a call's arguments, one for each way in which families write them.

A reader takes text from where the call's header ended, and gives JSON text: joined, it is always a prefix of one JSON
object, and the whole object when ``whole``. It stops at the call's closing markup and never takes it. It knows the
tool's schema, but not the tool's name, the call's markup before and after, or how text arrives: what it cannot decide
yet it leaves in the text. Every reader is linear: it reads a character again only while a marker may begin there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from paraserve.formats.reading.literals import JSON, LiteralReader, convert, space_end
from paraserve.formats.reading.patterns import Markers
from paraserve.formats.reading.strings import PlainRun
from paraserve.formats.spec import JsonEnvelope

Schema = Mapping[str, Any]


class ArgumentReader(Protocol):
    out: list[str]
    """JSON text since somebody emptied it."""
    name: str | None
    """The tool's name, where the arguments' own syntax holds it and it has been read."""

    @property
    def run(self) -> PlainRun | None:
        """Set where the reader is inside a string that streams."""
        ...

    @property
    def whole(self) -> bool:
        """The arguments are one complete JSON object."""
        ...

    @property
    def closed(self) -> bool:
        """Nothing that follows belongs to the arguments."""
        ...

    @property
    def broken(self) -> bool:
        """The text at hand cannot be arguments; what came out before stays a valid prefix."""
        ...

    @property
    def rest(self) -> str:
        """When broken or finished before it was whole: text that was taken and not given out."""
        ...

    def read(self, text: str, position: int) -> int:
        """Take what can be taken; returns where it stopped."""
        ...

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        """The reply is over and the rest of ``text`` is all there is. ``ended``: by the model's own will."""
        ...


class ObjectReader:
    """One JSON object as the model wrote it. Understood as well: nothing or null (no arguments), and the object
    written as a JSON string (which is unwrapped when it is whole)."""

    name: str | None = None

    def __init__(self, enders: Markers | None = None) -> None:
        self._enders = enders
        self._value: LiteralReader | None = None
        self._wrapped = False
        self.out: list[str] = []
        self.rest = ""
        self.whole = self.closed = self.broken = False

    def read(self, text: str, position: int) -> int:
        if self._value is None:
            position = self._begin(text, position)
            if self._value is None:
                return position
        position = self._value.read(text, position)
        self.broken, self.rest = self._value.broken, self._value.rest
        if self._wrapped and (self.broken or self._value.closed):
            self._unwrap("".join(self._value.out))
        if self._value.closed:
            self.whole = self.closed = not self.broken
        return position

    @property
    def run(self) -> PlainRun | None:
        return None if self._value is None or self._wrapped else self._value.run

    @property
    def begun(self) -> bool:
        return self._value is not None or self.whole

    def _begin(self, text: str, position: int) -> int:
        position = space_end(text, position)
        if position == len(text):
            return position
        if text[position] in '{"n':
            self._value = LiteralReader(JSON)
            self._wrapped = text[position] != "{"
            if not self._wrapped:
                self._value.out = self.out
        elif self._enders is not None and self._enders.at(text, position):
            self.out.append("{}")
            self.whole = self.closed = True
        elif self._enders is None or not self._enders.may_begin(text, position):
            self.broken = True
        return position

    def _unwrap(self, written: str) -> None:
        inner = "" if self.broken or written == "null" else json.loads(written)
        value = convert(inner) if inner.strip() else "{}"
        if value == "null":
            value = "{}"
        if self.broken or value is None or not value.startswith("{"):
            self.broken, self.rest = True, written + self.rest
        else:
            self.out.append(value)

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        if self._value is None:
            if ended and not self.broken and not text[position:].strip():
                self.out.append("{}")
                self.whole = self.closed = True
            return
        if self._wrapped and ended and not self.broken:  # a bare null at the very end
            self._value.read("", 0, final=True)
            self.read("", 0)
            if self.whole or self.broken:
                return
        self._value.finish()
        self.rest = ("".join(self._value.out) if self._wrapped and not self.whole else "") + self._value.rest


class EnvelopeReader:
    """One JSON object that holds name and arguments.

    Without an arguments key it is a call only when it has no other keys either: an object that spreads its arguments
    beside the name must not become a call without any. In ``strict`` use (no marker announced it) a foreign key, or a
    missing arguments key, means that it is no call.
    """

    def __init__(self, envelope: JsonEnvelope, *, strict: bool) -> None:
        self._envelope = envelope
        self._strict = strict
        self._key: str | None = None
        self._foreign = False
        self._expect = "{"
        self._part: LiteralReader | ObjectReader | None = None
        self._arguments: ObjectReader | None = None
        self.name: str | None = None
        self.out: list[str] = []
        self.broken = False

    @property
    def whole(self) -> bool:
        return self.name is not None and self._arguments is not None and self._arguments.whole

    closed = whole  # the object's own end is closing markup

    @property
    def run(self) -> PlainRun | None:
        return self._arguments.run if self._part is not None and self._part is self._arguments else None

    @property
    def started(self) -> bool:
        """Name and arguments are there, so that this is a call."""
        return self.name is not None and self._arguments is not None and self._arguments.begun

    @property
    def rest(self) -> str:
        return self._arguments.rest if self._arguments is not None else ""

    def read(self, text: str, position: int) -> int:
        while not (self.closed or self.broken):
            if self._part is not None:
                position = self._part.read(text, position)
                if self._part.broken:
                    self.broken = True
                elif self._part.closed:
                    self._end_part(self._part)
                else:
                    return position
                continue
            position = space_end(text, position)
            if position == len(text):
                return position
            position = self._token(text, position)
        return position

    def _token(self, text: str, position: int) -> int:
        char = text[position]
        match self._expect:
            case "{" if char == "{":
                self._expect = "key"
            case "key" if char == '"':
                self._part = LiteralReader()
                return position
            case "key" | "," if char == "}":
                self._close()
            case ":" if char == ":":
                self._begin_value()
            case "," if char == ",":
                self._expect = "key"
            case _:
                self.broken = True
                return position
        return position + 1

    def _begin_value(self) -> None:
        self._expect = "value"
        if self._key in self._envelope.arguments_keys and self._arguments is None:
            self._part = self._arguments = ObjectReader()
            self._arguments.out = self.out
        else:
            self._part = LiteralReader()

    def _end_part(self, part: LiteralReader | ObjectReader) -> None:
        self._part = None
        if self._expect == "key":
            self._key = json.loads("".join(part.out))
            self._expect = ":"
            if self._key not in (*self._envelope.name_keys, *self._envelope.arguments_keys, "id", "type"):
                self._foreign = True
                self.broken = self._strict
            return
        self._expect = ","
        if part is not self._arguments and self._key in self._envelope.name_keys and self.name is None:
            value = json.loads("".join(part.out))
            self.name = value if isinstance(value, str) else None
            self.broken = self.name is None

    def _close(self) -> None:
        if self.name is not None and self._arguments is None and not (self._strict or self._foreign):
            self._arguments = ObjectReader()
            self._arguments.whole = True
            self.out.append("{}")
        self.broken = not self.whole

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        if self._part is not None and self._part is self._arguments:
            self._arguments.finish(text, position, ended=ended)
