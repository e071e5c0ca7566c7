"""How a language writes strings and constants: quotes, escapes, and the markers that a string must not hold.

Knows characters, never a schema, a model family or an engine's syntax. Invariant: what is written here reads back, in
the same spelling, as the string that was meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from paraserve.grammar.regex import ANY_CHAR, Alt, Cat, Chars, Regex, Repeat, alt, chars, text, without

_HEX = chars(("0", "9"), ("a", "f"), ("A", "F"))
_UNICODE = Cat(
    (text("\\u"), Alt((
        Cat((without(_HEX, chars("dD")), Repeat(_HEX, 3, 3))),
        Cat((chars("dD"), chars(("0", "7")), Repeat(_HEX, 2, 2))),
    )))
)  # fmt: skip
_NAMED_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
_HIGH, _LOW = (Cat((chars("dD"), chars(half), Repeat(_HEX, 2, 2))) for half in ("89abAB", "cdefCDEF"))
_SURROGATE_PAIR = Cat((text("\\u"), _HIGH, text("\\u"), _LOW))


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one language writes values."""

    true: str = "true"
    false: str = "false"
    null: str = "null"
    quote: str = ""
    """Strings stand between these marks with nothing escaped, keys are bare; empty: quoted and escaped strings."""
    python: bool = False
    """Python's string literals: in either quotes, without ``\\/`` and ``\\u`` pairs."""

    avoid: tuple[str, ...] = ()
    """Markers that no string of a value may hold."""

    @property
    def quotes(self) -> str:
        return "\"'" if self.python else '"'


JSON = Spelling()
PYTHON = Spelling("True", "False", "None", python=True)


def quoted_spelling(quote: str) -> Spelling:
    return Spelling(quote=quote)


@lru_cache(maxsize=64)
def chars_in_quotes(spelling: Spelling, quote: str) -> tuple[Chars, tuple[Regex, ...]]:
    """The characters that stand for themselves between quotes, and all escapes: the same in every string."""
    pair = [] if spelling.python else [_SURROGATE_PAIR, text("\\/")]
    named = [text(escape) for char, escape in _NAMED_ESCAPES.items() if char != quote]
    return without(ANY_CHAR, _must_escape(quote)), (*named, text("\\" + quote), _UNICODE, *pair)


@lru_cache(maxsize=64)
def char_of_no_marker(spelling: Spelling, quote: str) -> Alt:
    plain, escapes = chars_in_quotes(spelling, quote)
    return Alt((without(plain, first_of_markers(spelling)), *escapes))


def first_of_markers(spelling: Spelling) -> Chars:
    return chars("".join(marker[0] for marker in spelling.avoid))


def _must_escape(quote: str) -> Chars:
    return chars(quote + "\\", ("\x00", "\x1f"))


def escaped_chars(found: Chars, quote: str) -> Regex:
    """The characters of a set as they stand between quotes: the one shortest spelling of each."""
    special = _must_escape(quote)
    plain = without(found, special)
    parts: list[Regex] = [plain] if plain.ranges else []
    for low, high in without(found, plain).ranges:
        parts += [text(_escape(chr(code), quote)) for code in range(low, high + 1)]
    return alt(*parts) if parts else found


def _escape(char: str, quote: str) -> str:
    if char == quote:
        return "\\" + quote
    return (_NAMED_ESCAPES.get(char) if char != '"' else None) or (f"\\u{ord(char):04x}" if ord(char) < 32 else char)


def quoted(value: str, quote: str) -> str:
    return quote + "".join(_escape(char, quote) for char in value) + quote
