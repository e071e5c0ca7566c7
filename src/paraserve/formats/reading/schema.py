"""What type a tool's JSON schema gives a value, and the JSON text of a value that a model wrote without one.

For formats that write ``5`` both for a number and for the string "5". It never validates: an argument that does not
fit its schema still comes out as valid JSON. The rules, in order:

1. a schema that allows strings makes the text a string (*string wins where both fit*), except
2. ``null``, where null is allowed too;
3. a schema without strings makes it the JSON (or Python) literal that it spells, or a string when it spells none;
4. no type known at all: a container, number or constant by its look, else a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json import dumps
from typing import Any, Literal

from paraserve.formats.reading.literals import PYTHON, convert
from paraserve.formats.reading.strings import encode_string

_NULLS = ("null", "None")
_BY_LOOK = re.compile(r"\s*(?:[\[{(\-+0-9.]|true|false|null|True|False|None)")
_MAX_REFERENCES = 64

Mode = Literal["string", "nullable", "by_look", "literal"]


@dataclass(frozen=True, slots=True)
class Expected:
    """The types that a schema allows; None when it does not say. ``members`` are the values of an enum or const."""

    types: frozenset[str] | None = None
    members: tuple[Any, ...] | None = None

    @property
    def mode(self) -> Mode:
        """How to read a value: a string at once, a string unless it is null, by its look, or as a literal."""
        if self.members is not None and not all(isinstance(member, str) for member in self.members):
            return "literal"
        if self.types is None:
            return "by_look"
        if "string" not in self.types:
            return "literal"
        return "nullable" if "null" in self.types else "string"


ANYTHING = Expected()
STRING = Expected(frozenset({"string"}))
TYPED = Expected(frozenset({"object"}), ())
"""No string, by the value's own markup; the schema says nothing."""


def typed(known: Expected, fields: Mapping[str, str | None]) -> Expected:
    """What a value may be whose own markup says what it is: a tag that says no string does not make one of a number
    that the schema wants as a string."""
    word = fields.get("type") or {"true": "string", "false": "object", None: None}.get(fields.get("string"))
    if word is None or (word != "string" and known.types is not None):
        return known
    return STRING if word == "string" else TYPED


def json_value(text: str, expected: Expected, *, python: bool = True) -> str:
    """The JSON text of a whole value. ``python``: the family writes Python's words, so that they mean something even
    where the schema does not ask for what they say."""
    match expected.mode:
        case "string":
            return encode_string(text)
        case "nullable":
            return "null" if text.strip() in _NULLS[: 1 + python] else encode_string(text)
        case "by_look":
            return (_plain_literal(text, python) if _BY_LOOK.match(text) else None) or encode_string(text)
    if expected is TYPED:
        return _plain_literal(text, python) or encode_string(text)
    if expected.members is not None:
        return _member(text, expected.members, expected.types)
    if expected.types == frozenset({"boolean"}) and text.strip().lower() in ("true", "false"):
        return text.strip().lower()
    return literal(text) or _container(text, expected) or encode_string(text)


def maybe_literal(text: str, mode: Mode, *, python: bool = True) -> bool:
    """Whether a value that begins like this may still be something else than a string."""
    if mode == "nullable":
        return any(null.startswith(text.strip()) for null in _NULLS[: 1 + python])
    if mode == "by_look":
        head = text.lstrip()
        return _BY_LOOK.match(head) is not None or any(
            word.startswith(head) for word in ("true", "false", "null", "True", "False", "None")
        )
    return mode == "literal"


def literal(text: str) -> str | None:
    """The JSON text of a JSON or Python literal; None when it is neither."""
    return convert(text) or convert(text, PYTHON)


def _plain_literal(text: str, python: bool) -> str | None:
    """The literal that a text is by its look alone. What is no number in JSON is none (a phone number, a code), and
    Python's words are words where the family does not write them."""
    return convert(text) or (convert(text, PYTHON) if begins_python(text, python) else None)


def begins_python(text: str, python: bool) -> bool:
    """Whether a text may be a literal of Python by its look: a container, or a word of a family that writes them."""
    return text.lstrip()[:1] in (tuple("[{(TFN") if python else tuple("[{("))


def _container(text: str, expected: Expected) -> str | None:
    """The array or object that a schema wants of a text whose quotes are escaped."""
    if not (expected.types or frozenset()) & {"array", "object"} or '\\"' not in text:
        return None
    return convert(text.replace('\\"', '"'))


def _member(text: str, members: tuple[Any, ...], types: frozenset[str] | None) -> str:
    if text in members:
        return encode_string(text)
    written = literal(text)
    if written is not None and any(written == dumps(member, ensure_ascii=False) for member in members):
        return written
    if written is not None and (types is None or "string" not in types):
        return written
    return encode_string(text)


def property_schema(root: Mapping[str, Any], schema: Any, key: str) -> Any:
    """The schema of a property of an object schema; None when nothing is said about it."""
    for branch in _branches(root, schema):
        properties = branch.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            return properties[key]
    for branch in _branches(root, schema):
        if isinstance(branch.get("additionalProperties"), Mapping):
            return branch["additionalProperties"]
    return None


def item_schema(root: Mapping[str, Any], schema: Any) -> Any:
    """The schema of an array schema's members; None when nothing is said about them."""
    return next((b["items"] for b in _branches(root, schema) if isinstance(b.get("items"), Mapping)), None)


def expected(root: Mapping[str, Any], schema: Any) -> Expected:
    """What ``schema`` (a part of ``root``, which holds what its ``$ref`` point to) allows."""
    types: set[str] = set()
    members: list[Any] | None = None
    unknown = True
    for branch in _branches(root, schema):
        own = _types(branch)
        listed = branch.get("enum") if isinstance(branch.get("enum"), list) else None
        if "const" in branch:
            listed = [branch["const"]]
        if listed is not None:
            members = [*(members or []), *listed]
            own = own or {type_of(member) for member in listed}
        elif own and members is not None and own != {"null"}:
            members = None  # another branch allows more than the listed values
        if own:
            unknown = False
            types |= own
    if unknown:
        return ANYTHING
    return Expected(frozenset(types), tuple(members) if members is not None else None)


def _branches(root: Mapping[str, Any], schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and all its alternatives and parts, references followed; each once."""
    pending, seen = [schema], 0
    while pending and seen < _MAX_REFERENCES:
        current = pending.pop(0)
        seen += 1
        if not isinstance(current, Mapping):
            continue
        yield current
        if isinstance(current.get("$ref"), str):
            pending.append(_resolve(root, current["$ref"]))
        for word in ("anyOf", "oneOf", "allOf"):
            if isinstance(current.get(word), list):
                pending.extend(current[word])


def _resolve(root: Mapping[str, Any], reference: str) -> Any:
    """A local reference (``#/…``); None when it points nowhere."""
    target: Any = root
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or step not in target:
            return None
        target = target[step]
    return target


def _types(schema: Mapping[str, Any]) -> set[str]:
    declared = schema.get("type")
    types = {declared} if isinstance(declared, str) else set()
    if isinstance(declared, list):
        types = {name for name in declared if isinstance(name, str)}
    if not types and isinstance(schema.get("properties"), Mapping):
        types = {"object"}
    if not types and "items" in schema:
        types = {"array"}
    if types and schema.get("nullable") is True:
        types.add("null")
    return types


def type_of(value: object) -> str:
    """The JSON schema word for a value, with all numbers under ``number`` (what typed families write)."""
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case int() | float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"
