"""How large a schema may be, so that reading it and writing it stay within a second or two.

Knows JSON values alone. The bounds are of our own making: a tool of an agent has some hundred parts, and what engines
compile grows with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraserve.grammar.nodes import GrammarError

MOST_VALUES = 50_000
"""JSON values (with every key) in one schema as it is written."""
MOST_PARTS = 10_000
"""Schemas in one schema, each counted wherever it is referred to."""
MOST_COMBINED = 500_000
"""Keywords and properties that are read to combine schemas (``allOf``, keywords beside a reference or alternatives)."""
MOST_CHARACTERS = 1_000_000
"""Of all keys and strings together."""
DEEPEST_VALUE = 250
"""Levels of JSON values."""
DEEPEST_SCHEMA = 50
"""Levels of schemas in schemas."""
MOST_FIRST_ITEMS = 100
"""Items that an array lists one by one."""

MOST_OPTIONAL = 400
"""Optional properties of one object: llguidance 1.9.1 gives up at some 490, where all of them may come next."""


def too_large(what: str, most: int, path: str, keyword: str = "") -> GrammarError:
    return GrammarError(f"the schema is too large: more than {most} {what}", keyword=keyword, path=path)


def check_size(document: Any, path: str) -> None:
    """Refuse a document that is too large as it stands.

    Raises:
        GrammarError: names the bound.
    """
    pending, count, characters = [(document, 1)], 0, 0
    while pending:
        value, depth = pending.pop()
        count += 1
        if depth > DEEPEST_VALUE:
            raise GrammarError(f"the schema is more than {DEEPEST_SCHEMA} levels deep", keyword="", path=path)
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, Mapping):
            count += len(value)
            characters += sum(map(len, value))
            pending += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            pending += [(item, depth + 1) for item in value]
        if characters > MOST_CHARACTERS:
            raise too_large("characters", MOST_CHARACTERS, path)
        if count + len(pending) > MOST_VALUES:
            raise too_large("values and keys", MOST_VALUES, path)
