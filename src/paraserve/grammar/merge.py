"""The intersection of two schemas as one schema: what ``allOf`` and keywords beside ``$ref`` or ``anyOf`` mean.

Works on the keywords alone, follows no reference. Invariant: what the result admits, both admit, unless a clash is
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_TIGHTER: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum"), min),
}
_MOST_COMPARED = 1_000_000
"""Pairs of values of two enumerations."""
MERGEABLE = frozenset(
    {*_TIGHTER, "type", "const", "enum", "required", "properties", "additionalProperties", "items", "pattern", "allOf"}
)


def merge(left: Any, right: Any) -> tuple[Any, str | None]:
    """One schema for both, and the keyword that could not be combined (None: all of them were)."""
    if left is True or right is True or left is False or right is False:
        return (right if left is True else left) if left is True or left is False else merge(right, left)[0], None
    result: dict[str, Any] = dict(left)
    clash: str | None = None
    for key, value in right.items():
        if key not in result or result[key] == value:
            result[key] = value
        elif key == "const":
            return False, None
        elif not _can_be_combined(key, result[key], value):
            clash = key
        elif key in _TIGHTER:
            result[key] = _TIGHTER[key](result[key], value)
        elif (combine := _COMBINE.get(key)) is not None:
            result[key] = combine(result[key], value)
        elif key in _ANNOTATIONS:
            continue
        else:
            clash = key
    both = left.get("properties", {}), right.get("properties", {})
    if clash is None and any(both) and all(isinstance(side, Mapping) for side in both):
        result["properties"] = _properties(left, right)
    return result, clash


def _can_be_combined(key: str, left: Any, right: Any) -> bool:
    if not (_well_formed(key, left) and _well_formed(key, right)):
        return False
    return key != "enum" or len(left) * len(right) <= _MOST_COMPARED


def _well_formed(key: str, value: Any) -> bool:
    match key:
        case "enum" | "required" | "allOf":
            return isinstance(value, list)
        case "type":
            return isinstance(value, str) or (isinstance(value, list) and all(isinstance(kind, str) for kind in value))
        case "properties":
            return isinstance(value, Mapping)
        case _:
            return key not in _TIGHTER or (isinstance(value, int | float) and not isinstance(value, bool))


def _types(left: Any, right: Any) -> Any:
    ours, theirs = ([kind] if isinstance(kind, str) else list(kind) for kind in (left, right))
    both = [kind for kind in ours if kind in theirs or (kind == "integer" and "number" in theirs)]
    return both + [kind for kind in theirs if kind == "integer" and "number" in ours and kind not in both]


def _both(left: Any, right: Any) -> Any:
    return {"allOf": [left, right]}


def _patterns(left: Any, right: Any) -> list[Any]:
    return [*(left if isinstance(left, list) else [left]), *(right if isinstance(right, list) else [right])]


_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": lambda left, right: [value for value in left if value in right],
    "required": lambda left, right: [*left, *(name for name in right if name not in left)],
    "properties": lambda left, right: left,
    "additionalProperties": _both,
    "items": _both,
    "pattern": _patterns,
    "allOf": lambda left, right: [*left, *right],
}
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$defs", "definitions", "$comment", "deprecated"}
)


def _properties(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Every property of both; one that only one side declares also obeys the other's ``additionalProperties``."""
    ours, theirs = left.get("properties", {}), right.get("properties", {})
    result: dict[str, Any] = {}
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name in ours and name in theirs:
            result[name] = ours[name] if ours[name] == theirs[name] else _both(ours[name], theirs[name])
            continue
        value, other = (ours[name], right) if name in ours else (theirs[name], left)
        beyond = other.get("additionalProperties", True)
        result[name] = value if beyond is True else _both(value, beyond)
    return result
