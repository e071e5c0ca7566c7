"""Regular languages as a small tree, written as a regex that both grammar engines take.

Knows characters only: never a schema, a model family or an engine's grammar syntax. Two invariants: a set of
characters never holds a surrogate, and every function that changes a language only ever makes it smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of sorted, disjoint, inclusive code point ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Cat:
    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    item: Regex
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Both:
    """The strings that are in every one of ``items``."""

    items: tuple[Regex, ...]


Regex = Chars | Cat | Alt | Repeat | Both


UNIVERSE: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
EMPTY = Cat(())


def chars(*parts: str | tuple[str, str]) -> Chars:
    """A set from single characters (each of a string) and (first, last) pairs."""
    ranges: list[tuple[int, int]] = []
    for part in parts:
        if isinstance(part, tuple):
            ranges.append((ord(part[0]), ord(part[1])))
        else:
            ranges += [(ord(c), ord(c)) for c in part]
    return Chars(_merged(ranges))


def union(ranges: Iterable[tuple[int, int]]) -> Chars:
    """A set from inclusive code point ranges in any order, which may overlap: in n log n of them."""
    return Chars(_merged(ranges))


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def without(base: Chars, removed: Chars) -> Chars:
    """Once over both: their ranges are sorted and disjoint."""
    left: list[tuple[int, int]] = []
    cuts, at = removed.ranges, 0
    for low, high in base.ranges:
        start = low
        while at < len(cuts) and cuts[at][1] < low:
            at += 1
        place = at
        while place < len(cuts) and cuts[place][0] <= high:
            cut_low, cut_high = cuts[place]
            if cut_low > start:
                left.append((start, cut_low - 1))
            start = cut_high + 1
            at, place = place, place + 1
        if start <= high:
            left.append((start, high))
    return Chars(tuple(left))


ANY_CHAR = Chars(UNIVERSE)
DIGIT = chars(("0", "9"))
WORD = chars(("0", "9"), ("A", "Z"), ("a", "z"), "_")
SPACE = chars("\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000", ("\u2000", "\u200a"))
ANY_TEXT = Repeat(ANY_CHAR, 0, None)


def text(value: str) -> Regex:
    return Cat(tuple(chars(c) for c in value))


def alt(*items: Regex) -> Regex:
    return items[0] if len(items) == 1 else Alt(items)


def optional(item: Regex) -> Regex:
    return Repeat(item, 0, 1)


def other_than(
    alphabet: Chars, words: Iterable[str], *, first: Chars | None = None, most: int | None = None, depth: int = 50
) -> Regex:
    """1 to ``most`` characters of ``alphabet``, the first of them in ``first``, that are none of ``words``.

    Words count up to ``depth`` characters: what begins like a longer one is left out with it.
    """
    start = first or alphabet
    branches: list[Regex] = []
    heads = sorted({word[0] for word in words if word})
    free = without(start, chars("".join(heads)))
    left = None if most is None else max(most - 1, 1)
    if free.ranges:
        branches.append(Cat((free, Repeat(alphabet, 0, None if most is None else max(most - 1, 0)))))
    for head in heads if depth else ():
        if without(chars(head), start).ranges:
            continue
        tails = [word[1:] for word in words if word[:1] == head]
        longer = other_than(alphabet, tails, most=left, depth=depth - 1)
        branches.append(Cat((chars(head), longer if "" in tails else optional(longer))))
    return alt(*branches)


def lengths(regex: Regex) -> tuple[int, int | None]:
    """The least and the most (None: unbounded) characters of a string in the language."""
    match regex:
        case Chars():
            return 1, 1
        case Cat(items):
            pairs = [lengths(item) for item in items]
            most = None if any(p[1] is None for p in pairs) else sum(p[1] or 0 for p in pairs)
            return sum(p[0] for p in pairs), most
        case Alt(items):
            pairs = [lengths(item) for item in items]
            ends = [p[1] for p in pairs]
            return min(p[0] for p in pairs), None if None in ends else max(e or 0 for e in ends)
        case Repeat(item, least, most):
            low, high = lengths(item)
            if most == 0 or high == 0:
                return 0, 0
            return low * least, None if most is None or high is None else high * most
        case Both(items):
            pairs = [lengths(item) for item in items]
            known = [p[1] for p in pairs if p[1] is not None]
            return max(p[0] for p in pairs), min(known) if known else None


def avoiding(words: Iterable[str], plain: Chars, *others: Regex) -> Regex:
    """Strings of ``plain`` characters and ``others`` that hold none of ``words``.

    A word counts only up to its first eight characters, and up to where it holds the first character of a word again:
    what holds no beginning of a word holds no word.
    """
    firsts = {word[0] for word in words}
    cut = {word[0] + word[1 : 1 + _until(word[1:8], firsts)] for word in words}
    heads = sorted(head for head in cut if not any(head != other and head.startswith(other) for other in cut))
    follow: dict[str, str] = {}
    for head in heads:
        for end in range(1, len(head)):
            follow[head[:end]] = follow.get(head[:end], "") + head[end]
    free = without(plain, chars("".join(firsts)))
    if not follow:
        return Repeat(Alt((free, *others)), 0, None)
    # Beginnings of words in a row, then what does not go on with the last of them.
    begun = Repeat(Alt(tuple(text(head) for head in follow)), 0, None)
    stray = (Cat((text(head), without(plain, chars("".join(firsts) + after)))) for head, after in follow.items())
    return Cat((Repeat(Alt((free, Cat((begun, Alt((*others, *stray)))))), 0, None), begun))


def _until(word: str, firsts: set[str]) -> int:
    return next((index for index, char in enumerate(word) if char in firsts), len(word))


def each_char(regex: Regex, change: Callable[[Chars], Regex]) -> Regex:
    """``regex`` with every character set replaced."""
    match regex:
        case Chars():
            return change(regex)
        case Cat(items):
            return Cat(tuple(each_char(item, change) for item in items))
        case Alt(items):
            return Alt(tuple(each_char(item, change) for item in items))
        case Repeat(item, least, most):
            return Repeat(each_char(item, change), least, most)
        case Both(items):
            return Both(tuple(each_char(item, change) for item in items))


def of_length(regex: Regex, least: int, most: int | None) -> Regex:
    """The strings of ``regex`` with ``least`` to ``most`` characters; a `Both` only where nothing simpler says it."""
    low, high = lengths(regex)
    if low >= least and (most is None or (high is not None and high <= most)):
        return regex
    if isinstance(regex, Cat) and len(regex.items) == 1:
        return of_length(regex.items[0], least, most)
    if isinstance(regex, Repeat) and isinstance(regex.item, Chars):
        ends = [end for end in (regex.most, most) if end is not None]
        return Repeat(regex.item, max(regex.least, least), min(ends) if ends else None)
    return Both((regex, Repeat(ANY_CHAR, least, most)))


def never_spelling(regex: Regex, marker: str) -> Regex | None:
    """``regex`` made smaller so that no string of it holds ``marker``; None where that would empty a literal.

    One character of the marker is taken out of every set of the pattern that has others beside it: punctuation is
    given up before letters.
    """
    singles: set[int] = set()
    reach: set[str] = set()

    def look(found: Chars) -> Regex:
        if len(found.ranges) == 1 and found.ranges[0][0] == found.ranges[0][1]:
            singles.add(found.ranges[0][0])
        reach.update(c for c in marker if any(low <= ord(c) <= high for low, high in found.ranges))
        return found

    each_char(regex, look)
    if not set(marker) <= reach:
        return regex
    for char in sorted(set(marker), key=lambda c: (c.isalnum(), marker.index(c))):
        if ord(char) not in singles:
            return each_char(regex, lambda found, char=char: without(found, chars(char)) if found.ranges else found)  # type: ignore[misc]
    return None


# --- writing -----------------------------------------------------------------------------------------------------


def has_both(regex: Regex) -> bool:
    match regex:
        case Both():
            return True
        case Chars():
            return False
        case Cat(items) | Alt(items):
            return any(has_both(item) for item in items)
        case Repeat(item, _, _):
            return has_both(item)


def quantifier(least: int, most: int | None) -> str:
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in simple:
        return simple[least, most]
    if least == most:
        return f"{{{least}}}"
    return f"{{{least},{'' if most is None else most}}}"


def write(regex: Regex, escape: Callable[[int], str]) -> str:
    """Standard regex syntax with every code point spelled by ``escape``. `Both` has none (raises `ValueError`)."""
    match regex:
        case Chars(ranges):
            if not ranges:
                raise ValueError("an empty set of characters matches nothing")
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return escape(ranges[0][0])
            parts = (escape(low) if low == high else f"{escape(low)}-{escape(high)}" for low, high in ranges)
            return f"[{''.join(parts)}]"
        case Cat(items):
            return "".join(write(item, escape) for item in items)
        case Alt(items):
            return "(" + "|".join(write(item, escape) for item in items if not is_empty(item)) + ")"
        case Repeat(item, least, most):
            if most == 0 or is_empty(item):
                return ""
            inner = write(item, escape)
            if not inner:
                return ""
            return (inner if isinstance(item, (Chars, Alt)) else f"({inner})") + quantifier(least, most)
        case Both():
            raise ValueError("an intersection is not a plain regex")


def is_empty(regex: Regex) -> bool:
    """Whether no string at all is in the language, as far as the tree shows it."""
    match regex:
        case Chars(ranges):
            return not ranges
        case Cat(items) | Both(items):
            return any(is_empty(item) for item in items)
        case Alt(items):
            return all(is_empty(item) for item in items)
        case Repeat(item, least, most):
            return (most is not None and most < least) or (least > 0 and is_empty(item))
