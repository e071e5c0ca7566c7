"""How large a schema may be, so that reading it and writing it stay within a second or two; and for the few that are
within the bounds and take longer, how long.

Knows JSON values alone. The bounds are of our own making: a tool of an agent has some hundred parts, and what engines
compile grows with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from paraserve.grammar.nodes import GrammarError

T = TypeVar("T")

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

WRITING_SECONDS = 10.0
"""Of a processor, for one grammar. Some hundred strings that must match a pattern and have a length take longer."""

MOST_OPTIONAL = 400
"""Optional properties of one object: llguidance 1.9.1 gives up at some 490, where all of them may come next."""


_writing: ContextVar[Writing | None] = ContextVar("writing", default=None)


class Writing:
    """One grammar that is written, in a thread. It ends when it has taken too long, or when it is stopped."""

    def __init__(self) -> None:
        self._stopped = False
        self._until = 0.0

    def run(self, write: Callable[[], T]) -> T:
        """Raises `GrammarError` where it ends before ``write`` does."""
        self._until = time.thread_time() + WRITING_SECONDS
        reset = _writing.set(self)
        try:
            return write()
        finally:
            _writing.reset(reset)

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._stopped = True

    def go_on(self) -> None:
        if self._stopped or time.thread_time() > self._until:
            raise GrammarError(
                f"the grammar takes longer than {WRITING_SECONDS:g} seconds to write: ask for less", keyword="", path=""
            )


def go_on() -> None:
    """Called wherever a grammar's parts are read or written. Raises `GrammarError` when it is to end."""
    writing = _writing.get()
    if writing is not None:
        writing.go_on()


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
