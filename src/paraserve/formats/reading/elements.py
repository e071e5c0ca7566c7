"""Arguments as nested elements: what is no string is held until it is whole, and typed leaf by leaf.

The reader follows the contract of `arguments.ArgumentReader`, and shares keys and values with `parameters`.
"""

from __future__ import annotations

import re
from typing import Any

from paraserve.formats.reading.parameters import KeyedReader, Schema
from paraserve.formats.reading.patterns import Markers, Pattern
from paraserve.formats.reading.schema import Expected, expected, item_schema, json_value, property_schema
from paraserve.formats.reading.strings import encode_string, escape


class ElementsReader(KeyedReader):
    """Values as nested elements; what is no string is held until it is whole and typed leaf by leaf."""

    def __init__(self, tag: str, item: str, open_: Pattern, enders: Markers, schema: Schema) -> None:
        super().__init__((open_,), enders, schema, python=False)
        self._tag = tag
        self._item = item
        self._element = re.compile(re.escape(tag) + r"<(/?)([^<>]{1,256})>")
        self._nodes: list[_Node] = []
        self._raw: list[str] = []
        self._key = ""
        self._last: list[str] = []
        """Values of the last key: it may be repeated, and is a list then."""

    def _begin_value(self, match: re.Match[str]) -> None:
        key = match["key"].strip()
        if key != self._key:
            self._tell_last()
        if key.startswith("/"):
            self.broken = True
            return
        super()._begin_value(match)
        self._nodes = [_Node(key, property_schema(self._schema, self._schema, key))]
        self._raw = []

    def read(self, text: str, position: int) -> int:
        end = super().read(text, position)
        if self.broken:
            self._tell_last()
            self.rest = "".join(self._raw) if self._in_value else ""
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
        told = self._held is None or any(map(str.strip, self._nodes[0].text))
        unclosed = len(self._nodes) == 1 and not self._nodes[0].children and told
        if unclosed and (self._enders.at(text, mark) or (not match[1] and self._wants(match[2]))):
            self._end_node()
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
            if self._last or not self._again:
                self._last.append(written)
        self._in_value = False

    def _tell_last(self) -> None:
        if self._last:
            self.out.append(_one_or_list(self._last))
            self._last = []

    def _end_object(self) -> None:
        self._tell_last()
        super()._end_object()

    def finish(self, text: str, position: int, *, ended: bool) -> None:
        self._tell_last()
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
            keys = {key for key, _ in self.children}
            if not types & {"object"} and (keys == {item} or (len(self.children) > 1 and len(keys) == 1)):
                return "[" + ", ".join(value for _, value in self.children) + "]"
            members: dict[str, list[str]] = {}
            for key, value in self.children:
                members.setdefault(key, []).append(value)
            return "{" + ", ".join(f"{encode_string(key)}: {_one_or_list(v)}" for key, v in members.items()) + "}"
        text = "".join(self.text)
        if not text.strip() and "string" not in types and types & {"object", "array"}:
            return "{}" if "object" in types else "[]"
        return json_value(text, expectation)


def _one_or_list(values: list[str]) -> str:
    """Elements of one key that are repeated are a list."""
    return values[0] if len(values) == 1 else "[" + ", ".join(values) + "]"


def _part_start(text: str, marker: str, position: int) -> int:
    """Where the end of the text begins that is a beginning of the marker."""
    for start in range(max(position, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[start:]):
            return start
    return len(text)


def _may_be_element(text: str) -> bool:
    return re.fullmatch(r"(?:</?[^<>]*)?", text) is not None
