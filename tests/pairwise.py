"""Cases for axes that one line of code treats alike: every pair of values once, instead of every combination."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows with a value of each axis in which every two values of two axes meet. Greedy, and the same every time."""
    values = [list(axis) for axis in axes]

    def pairs(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(row), min(2, len(row))))

    rows = {row: pairs(row) for row in product(*(range(len(axis)) for axis in values))}
    open_pairs = set().union(*rows.values())
    chosen = []
    while open_pairs:
        best = max(rows, key=lambda row: len(rows[row] & open_pairs))
        open_pairs -= rows.pop(best)
        chosen.append(tuple(axis[index] for axis, index in zip(values, best, strict=True)))
    return chosen


def diagonal(kinds: Iterable[Any], *axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Every kind once, and every combination of the other axes once: what is done with them is one line for all."""
    combined, named = list(product(*axes)), list(kinds)
    count = max(len(named), len(combined))
    return [(named[i % len(named)], *combined[i % len(combined)]) for i in range(count)]
