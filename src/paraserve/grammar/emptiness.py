"""Whether any string at all is in a regular language, intersections included.

Knows characters alone. A language is taken apart by its first characters (Brzozowski's derivatives: what may follow a
character is a language again), and searched for one that admits the empty string. Invariant: what is called empty has
no string; a language that takes too long to search is taken for one that has.
"""

from __future__ import annotations

from collections.abc import Iterable

from paraserve.grammar.limits import go_on
from paraserve.grammar.regex import ANY_TEXT, EMPTY, Alt, Both, Cat, Chars, Regex, Repeat, has_both, is_empty, lengths

MOST_WORK = 200_000
"""Parts of languages that are looked at."""
_NOTHING = Chars(())


def has_no_string(regex: Regex) -> bool:
    if is_empty(regex):
        return True
    if not has_both(regex):
        return False
    least, most = lengths(regex)
    return (most is not None and most < least) or not _leads_to_an_end(regex)


def _leads_to_an_end(regex: Regex) -> bool:
    pending, seen, work = [regex], {regex}, 0
    while pending:
        go_on()
        language = pending.pop()
        if _may_be_over(language):
            return True
        work += _size(language)
        if work > MOST_WORK:
            return True
        for char in _kinds_of_first(language):
            rest = _after(language, char)
            if rest not in seen and not is_empty(rest):
                seen.add(rest)
                pending.append(rest)
    return False


def _size(regex: Regex) -> int:
    match regex:
        case Chars():
            return 1
        case Repeat(item):
            return 1 + _size(item)
        case Cat(items) | Alt(items) | Both(items):
            return 1 + sum(map(_size, items))


def _may_be_over(regex: Regex) -> bool:
    match regex:
        case Chars():
            return False
        case Cat(items) | Both(items):
            return all(map(_may_be_over, items))
        case Alt(items):
            return any(map(_may_be_over, items))
        case Repeat(item, least):
            return least == 0 or _may_be_over(item)


def _firsts(regex: Regex) -> Iterable[Chars]:
    """The sets that a first character is matched with."""
    match regex:
        case Chars():
            yield regex
        case Cat(items):
            for item in items:
                yield from _firsts(item)
                if not _may_be_over(item):
                    return
        case Alt(items) | Both(items):
            for item in items:
                yield from _firsts(item)
        case Repeat(item):
            yield from _firsts(item)


def _kinds_of_first(regex: Regex) -> list[int]:
    """One character of every kind that the sets tell apart."""
    spans = [span for found in set(_firsts(regex)) for span in found.ranges]
    edges = sorted({low for low, _ in spans} | {high + 1 for _, high in spans})
    return [edge for edge in edges if any(low <= edge <= high for low, high in spans)]


def _after(regex: Regex, char: int) -> Regex:
    """What may follow ``char`` at the beginning."""
    match regex:
        case Chars(ranges):
            return EMPTY if any(low <= char <= high for low, high in ranges) else _NOTHING
        case Cat(items):
            ways = []
            for index, item in enumerate(items):
                ways.append(_row(_after(item, char), *items[index + 1 :]))
                if not _may_be_over(item):
                    break
            return _any_of(ways)
        case Alt(items):
            return _any_of([_after(item, char) for item in items])
        case Both(items):
            return _all_of([_after(item, char) for item in items])
        case Repeat(item, least, most):
            if most == 0:
                return _NOTHING
            return _row(_after(item, char), Repeat(item, max(least - 1, 0), None if most is None else most - 1))


def _row(*items: Regex) -> Regex:
    flat = [part for item in items for part in (item.items if isinstance(item, Cat) else (item,))]
    if any(map(is_empty, flat)):
        return _NOTHING
    return flat[0] if len(flat) == 1 else Cat(tuple(flat))


def _any_of(items: Iterable[Regex]) -> Regex:
    flat = dict.fromkeys(part for item in items for part in (item.items if isinstance(item, Alt) else (item,)))
    kept = [item for item in flat if not is_empty(item)]
    return kept[0] if len(kept) == 1 else Alt(tuple(kept))


def _all_of(items: Iterable[Regex]) -> Regex:
    flat = dict.fromkeys(part for item in items for part in (item.items if isinstance(item, Both) else (item,)))
    kept = [item for item in flat if item != ANY_TEXT] or [ANY_TEXT]
    if any(map(is_empty, kept)):
        return _NOTHING
    return kept[0] if len(kept) == 1 else Both(tuple(kept))
