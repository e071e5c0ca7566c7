"""Reads a JSON schema's ``pattern`` (an ECMA-262 regular expression) into the tree of ``regex.py``.

Knows nothing of schemas or grammars. A pattern is *searched* for in a string, so an end without an anchor may be
followed by anything; the result is the language of whole strings. What cannot be said exactly is a `PatternError`.
"""

from __future__ import annotations

from dataclasses import dataclass

from paraserve.grammar.regex import (
    ANY_CHAR,
    ANY_TEXT,
    DIGIT,
    SPACE,
    WORD,
    Alt,
    Cat,
    Chars,
    Regex,
    Repeat,
    alt,
    chars,
    union,
    without,
)

_CONTROL = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_CLASSES = {
    "d": DIGIT,
    "w": WORD,
    "s": SPACE,
    "D": without(ANY_CHAR, DIGIT),
    "W": without(ANY_CHAR, WORD),
    # What some regex dialects count as space and others do not is in neither class.
    "S": without(without(ANY_CHAR, SPACE), chars("\ufeff\x85", ("\x1c", "\x1f"))),
}
_DOT = without(ANY_CHAR, chars("\n\r\u2028\u2029"))
_MOST_REPEATS = 100_000
_DEEPEST = 30
_LONGEST, _MOST_DIGITS = 10_000, 9


class PatternError(ValueError):
    """The pattern is malformed, or uses what no grammar engine has (lookaround, back references, …)."""


@dataclass(frozen=True, slots=True)
class _Edge:
    """``^`` or ``$``, before it is known whether it stands at an end."""

    start: bool


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Part, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    items: tuple[_Part, ...]


_Part = Regex | _Edge | _Sequence | _Choice


def read_pattern(pattern: str) -> Regex:
    """The strings in which ``pattern`` matches somewhere. Raises `PatternError`."""
    if len(pattern) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST} characters")
    reader = _Reader(pattern)
    part = reader.choice()
    if reader.at < len(pattern):
        raise PatternError("unbalanced parenthesis")
    return _whole(part, prefix=True, suffix=True)


def _whole(part: _Part, *, prefix: bool, suffix: bool) -> Regex:
    """``part`` with free text wherever an end is searched and not anchored."""
    if isinstance(part, _Choice):
        return alt(*(_whole(item, prefix=prefix, suffix=suffix) for item in part.items))
    items = list(part.items) if isinstance(part, _Sequence) else [part]
    if len(items) == 1 and isinstance(items[0], (_Sequence, _Choice)):
        return _whole(items[0], prefix=prefix, suffix=suffix)
    while items and items[0] == _Edge(start=True):
        items.pop(0)
        prefix = False
    while items and items[-1] == _Edge(start=False):
        items.pop()
        suffix = False
    middle = [_inner(item) for item in items]
    return Cat((*((ANY_TEXT,) if prefix else ()), *middle, *((ANY_TEXT,) if suffix else ())))


def _inner(part: _Part) -> Regex:
    match part:
        case _Edge():
            raise PatternError("an anchor that is not at an end of the pattern")
        case _Sequence(items):
            return Cat(tuple(_inner(item) for item in items))
        case _Choice(items):
            return Alt(tuple(_inner(item) for item in items))
        case _:
            return part


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def take(self) -> str:
        if self.at >= len(self.pattern):
            raise PatternError("the pattern ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def choice(self) -> _Part:
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else _Choice(tuple(branches))

    def sequence(self) -> _Part:
        items: list[_Part] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.repeated(self.atom()))
        return _Sequence(tuple(items))

    def atom(self) -> _Part:
        match char := self.take():
            case "^":
                return _Edge(start=True)
            case "$":
                return _Edge(start=False)
            case "(":
                return self.group()
            case "[":
                return self.char_class()
            case ".":
                return _DOT
            case "\\":
                return self.escape(in_class=False)
            case "*" | "+" | "?":
                raise PatternError(f"nothing to repeat before {char!r}")
            case _:
                return _literal(char)

    def group(self) -> _Part:
        if self.peek() == "?":
            self.at += 1
            kind = self.take()
            if kind == "<" and self.peek() not in ("=", "!"):
                while self.take() != ">":
                    pass
            elif kind != ":":
                raise PatternError("lookaround and inline flags are not supported")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise PatternError("too many groups in groups")
        inner = self.choice()
        self.depth -= 1
        if self.peek() != ")":
            raise PatternError("unbalanced parenthesis")
        self.at += 1
        return inner

    def repeated(self, part: _Part) -> _Part:
        repeats = 0
        while (bounds := self.bounds()) is not None:
            if isinstance(part, _Edge):
                raise PatternError("nothing to repeat after an anchor")
            least, most = bounds
            if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
                raise PatternError("a repeat count out of range")
            part = Repeat(_inner(part), least, most)
            repeats += 1
            if repeats > _DEEPEST:
                raise PatternError("too many repeats of repeats")
            if self.peek() == "?":
                self.at += 1
        return part

    def bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            return simple[self.take()]
        if self.peek() != "{":
            return None
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : max(end, 0)].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            return None
        self.at = end + 1
        if len(low) > _MOST_DIGITS or len(high) > _MOST_DIGITS:
            raise PatternError("a repeat count out of range")
        return int(low), (int(high) if high else None) if comma else int(low)

    def char_class(self) -> Chars:
        negated = self.peek() == "^"
        self.at += negated
        found: list[tuple[int, int]] = []
        while self.peek() != "]":
            low = self.class_atom()
            if self.peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.class_atom()
                if len(low.ranges) != 1 or len(high.ranges) != 1 or low.ranges[0][0] > high.ranges[0][0]:
                    raise PatternError("a range of characters out of order")
                found.append((low.ranges[0][0], high.ranges[0][0]))
            else:
                found += low.ranges
        self.at += 1
        rest = without(ANY_CHAR, union(found))
        # Through the universe twice: leaves surrogates out.
        result = rest if negated else without(ANY_CHAR, rest)
        if not result.ranges:
            raise PatternError("a class that matches no character")
        return result

    def class_atom(self) -> Chars:
        char = self.take()
        return self.escape(in_class=True) if char == "\\" else _literal(char)

    def escape(self, *, in_class: bool) -> Chars:
        char = self.take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROL:
            return chars(_CONTROL[char])
        if in_class and char == "b":
            return chars("\b")
        if char == "x":
            return _literal(self.code_point(2))
        if char == "u":
            if self.peek() == "{":
                end = self.pattern.find("}", self.at)
                digits = self.pattern[self.at + 1 : max(end, self.at + 1)]
                self.at = end + 1
                return _literal(_code_point(digits))
            return _literal(self.code_point(4))
        if char.isalnum():
            raise PatternError(f"the escape \\{char} is not supported")
        return _literal(char)

    def code_point(self, digits: int) -> str:
        self.at += digits
        return _code_point(self.pattern[self.at - digits : self.at])


def _code_point(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except (ValueError, OverflowError):
        raise PatternError("a malformed character escape") from None


def _literal(char: str) -> Chars:
    if 0xD800 <= ord(char) <= 0xDFFF:
        raise PatternError("a surrogate is not a character")
    return chars(char)
