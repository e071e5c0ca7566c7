"""Schemas of declared tools as templates read them that walk a schema instead of printing it.

Never judges a schema and never changes one that says the same already: a result is the same object then. Two
invariants: what a schema allows stays what it is, and a result is bounded however definitions refer to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paraserve.prompt.template import tojson

Schema = Mapping[str, Any]

MAX_REFERENCES = 200
"""Put in place in one tool. What refers to more stays a bare type there, as a reference to what is being put in."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold schemas by name."""
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_SAID = ("properties", "required", "items", "type", "description", "title", "enum", *_LISTED)
"""Keywords of which null says nothing. Of ``default`` and ``const`` it is a value."""


def without_nulls(schema: Schema) -> Schema:
    """Without keywords that are null: templates print or iterate them."""
    kept = schema
    if any(key in _SAID and value is None for key, value in schema.items()):
        kept = {key: value for key, value in schema.items() if value is not None or key not in _SAID}
    return _each(kept, without_nulls)


def split_types(schema: Schema) -> Schema:
    """A list of types as ``anyOf`` of each, for templates that take one type."""
    types = schema.get("type")
    split = schema
    if isinstance(types, list):
        split = {key: value for key, value in schema.items() if key != "type"}
        if len(types) == 1:
            split["type"] = types[0]
        elif "anyOf" not in split:
            split["anyOf"] = [{"type": name} for name in types]
    return _each(split, split_types)


def has_references(schema: Schema) -> bool:
    found = []

    def look(each: Schema) -> Schema:
        if "$ref" in each:
            found.append(each)
        return _each(each, look)

    look(schema)
    return bool(found)


def inlined(schema: Schema) -> Schema:
    """The definitions in the places of the references to them, and what is optional as ``nullable``: templates that
    walk a schema look at the type and its fields, not behind ``$ref``, ``anyOf`` or ``allOf``."""
    placed = _Inliner(schema).place(schema, ())
    return {key: value for key, value in placed.items() if key not in ("$defs", "definitions")}


def described(schema: Schema) -> Schema:
    """Each parameter that refers to a definition with its schema in its description: for templates that show a type
    and a description only."""
    whole = inlined(schema)
    properties = dict(whole.get("properties") or {})
    for name, each in (schema.get("properties") or {}).items():
        if isinstance(each, Mapping) and has_references(each):
            said = {key: value for key, value in properties[name].items() if key != "description"}
            text = " ".join(filter(None, (properties[name].get("description"), tojson(said))))
            properties[name] = {**properties[name], "description": text}
    return {**whole, "properties": properties}


@dataclass(slots=True)
class _Inliner:
    root: Schema
    left: int = MAX_REFERENCES

    def place(self, schema: Schema, within: tuple[str, ...]) -> Schema:
        """``within``: the references whose definitions this stands in."""
        if "$ref" in schema:
            target = self._target(schema["$ref"])
            if target is None:
                return schema
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            if schema["$ref"] in within or self.left <= 0:
                return {key: target[key] for key in ("type", "description") if key in target} | beside
            self.left -= 1
            return self.place({**target, **beside}, (*within, schema["$ref"]))
        placed = _each(schema, lambda each: self.place(each, within))
        for keyword in _LISTED[:3]:
            branches = placed.get(keyword)
            if isinstance(branches, list) and all(isinstance(branch, Mapping) for branch in branches):
                rest = [branch for branch in branches if keyword == "allOf" or branch.get("type") != "null"]
                if len(rest) == 1:
                    optional = {"nullable": True} if len(branches) > 1 else {}
                    beside = {key: value for key, value in placed.items() if key != keyword}
                    placed = {**rest[0], **beside, **optional}
        return placed

    def _target(self, reference: Any) -> Schema | None:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: Any = self.root
        for step in filter(None, reference[1:].split("/")):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else None


def _each(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """With every schema inside it changed; the same object where none is."""
    changed: dict[str, Any] = {}
    for key, value in schema.items():
        new: Any = value
        if key in _NAMED and isinstance(value, Mapping):
            named = {name: _one(each, change) for name, each in value.items()}
            new = value if all(named[name] is each for name, each in value.items()) else named
        elif key in _LISTED and isinstance(value, list):
            listed = [_one(each, change) for each in value]
            new = value if all(one is each for one, each in zip(listed, value, strict=True)) else listed
        elif key in _SINGLE:
            new = _one(value, change)
        if new is not value:
            changed[key] = new
    return {**schema, **changed} if changed else schema


def _one(value: Any, change: Callable[[Schema], Schema]) -> Any:
    return change(value) if isinstance(value, Mapping) else value
