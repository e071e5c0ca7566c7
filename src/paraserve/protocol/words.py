"""The words that a field of our types takes, for errors that say what would be right.

Never knows a value. One invariant: words come from the type that refused.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")


def right_words(expected: Any, path: str) -> tuple[str, ...]:
    """Those of a field at a path (``tools[0].type``) of a type; empty where it takes no fixed words."""
    found = _alternatives(inspect.type_info(expected))
    words: list[Any] = []
    for step in _STEP.findall(path):
        words = [one.tag for one in found if isinstance(one, inspect.StructType) and one.tag_field == step]
        found = [inner for one in found for inner in _inside(one, step)]
    words += [value for one in found if isinstance(one, inspect.LiteralType) for value in one.values]
    return tuple(dict.fromkeys(str(word) for word in words if word is not None))


def _alternatives(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _alternatives(info.type)
    if isinstance(info, inspect.UnionType):
        return [one for each in info.types for one in _alternatives(each)]
    return [info]


def _inside(info: inspect.Type, step: str) -> list[inspect.Type]:
    if isinstance(info, inspect.StructType):
        return [one for field in info.fields if field.encode_name == step for one in _alternatives(field.type)]
    if isinstance(info, inspect.ListType) and step.startswith("["):
        return _alternatives(info.item_type)
    return []
