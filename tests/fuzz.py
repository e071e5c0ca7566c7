"""Documents and bytes that are changed at random, by a seed: what files, engines and clients might send instead."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Iterator
from typing import Any

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**24, 2**31, 2**40, 2**63, 2**70, -(2**70), 1e308, 0.5),
    *("", "x", "\0", "(", "(a+)+$", "x" * 100_000, "9" * 5000, "{{", "{% for %}", "{% break %}", "\x1b[2J", "\n"),
    *(
        [],
        {},
        [[]],
        [None],
        [1],
        [{}],
        {"a": 1},
        {"content": 1},
        ["a", "b"],
        {"type": "Sequence"},
        {"type": "ByteLevel"},
    ),
)
ODD_KEYS = ("", "x", "-1", "1e3", str(2**24), str(2**40), "260")
ODD_NUMBERS = (0, 1, 2**24, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1)


def changed(document: Any, lot: random.Random) -> Any:
    """A copy with one to three values taken away, renamed or replaced."""
    document = copy.deepcopy(document)
    for _ in range(lot.choice([1, 1, 1, 2, 3])):
        paths = [path for path in _paths(document) if path]
        if not paths:
            break
        short = [path for path in paths if len(path) <= lot.randint(1, 5)]
        *way, last = lot.choice(short or paths)
        parent = document
        for key in way:
            parent = parent[key]
        match lot.randrange(6):
            case 0:
                del parent[last]
            case 1 if isinstance(parent, dict):
                parent[lot.choice(ODD_KEYS)] = parent.pop(last)
            case _:
                parent[last] = copy.deepcopy(lot.choice(HOSTILE))
    return document


def _paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from _paths(value, (*path, key))


def damaged(data: bytes, lot: random.Random) -> bytes:
    """Cut off, changed, with something put in or taken out, at one to four places."""
    damaged = bytearray(data)
    for _ in range(lot.choice([1, 1, 2, 4])):
        at = lot.randrange(min(len(damaged), lot.choice([len(damaged), 400])) + 1)
        match lot.randrange(5):
            case 0:
                del damaged[at:]
            case 1:
                damaged[at : at + 1] = bytes([lot.randrange(256)])
            case 2:
                damaged[at : at + 8] = struct.pack("<Q", lot.choice(ODD_NUMBERS))
            case 3:
                damaged[at:at] = lot.randbytes(lot.randrange(9))
            case _:
                del damaged[at : at + lot.randrange(9)]
    return bytes(damaged)
