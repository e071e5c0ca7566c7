"""One push-down reader for JSON and for what families write in its place: Python literals, JSON with other quotes.

Text goes in as it comes, JSON text comes out: what has come out is always a prefix of one valid JSON value, and a
whole value when `LiteralReader.closed`. JSON itself passes through as it was written; only what JSON forbids inside a
string and a model means literally (a raw line break, an unknown escape) is escaped. Numbers keep their text.
Strings come out as they arrive; numbers and constants when they are whole. It never recurses, so depth costs memory
only, and it reads each character once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from paraserve.formats.reading.pythonic import begins_set, closes_string
from paraserve.formats.reading.strings import PlainRun, encode_string, escape, escaped_delta, raw_delta

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^ \t\r\n,:\[\]{}()=\"'<]*")
_BARE_KEY = re.compile(r"[^:={}\[\]()\"',<]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PYTHON_NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?")
_NUMBER_START = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?)?")
_JSON_WORDS = {word: word for word in ("true", "false", "null")}
_PYTHON_WORDS = _JSON_WORDS | {"True": "true", "False": "false", "None": "null"}
_JSON_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_JSON_ESCAPE_PART = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_PYTHON_ESCAPE = re.compile(
    r"\\(?:\n|[\\'\"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|[0-7]{1,3})"
)
_PYTHON_ESCAPE_PART = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-7]{1,2})?\Z")
_PYTHON_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""}
_CLOSERS = {"{": "}", "[": "]", "(": ")", "t": ")", "s": "}"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family writes values."""

    quotes: tuple[str, ...] = ('"',)
    """What opens and closes a string; a longer one before a shorter one that begins it."""
    python: bool = False
    """Python's escapes, constants, tuples and trailing commas."""
    loose: bool = False
    """A quote inside a string may stand without an escape: it ends one only where what follows can only follow one."""
    bare: bool = False
    """Keys without quotes, strings without escapes, unknown words are strings."""

    @property
    def passes_through(self) -> bool:
        return not self.python and not self.bare

    def raw_between(self, first: str) -> bool:
        """Whether nothing is escaped in a string whose quote begins like this."""
        return self.bare and self.quotes[0][0] == first


JSON = Dialect()
PYTHON = Dialect(quotes=('"""', "'''", '"', "'"), python=True)
LOOSE_PYTHON = replace(PYTHON, loose=True)


def bare_dialect(quote: str) -> Dialect:
    """Models write the quotes of JSON and of Python too, with escapes between them."""
    return Dialect(quotes=(quote, '"', "'"), bare=True)


class Enders(Protocol):
    def at(self, text: str, position: int) -> object | None: ...
    def may_begin(self, text: str, position: int) -> bool: ...


_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT = range(6)
_KEYS = (_KEY, _FIRST_KEY)


class LiteralReader:
    """Reads one value. With ``keywords`` it reads ``key=value, …`` up to (not including) the closing parenthesis, or
    one of ``enders``.

    It is an `arguments.ArgumentReader` where the arguments are one value of a dialect.
    """

    name: str | None = None

    def __init__(self, dialect: Dialect = JSON, *, keywords: bool = False, enders: Enders | None = None) -> None:
        self._enders = enders
        self._dialect = dialect
        self._raw = dialect.passes_through
        self._stack: list[str] = ["("] if keywords else []
        self._expect = _FIRST_KEY if keywords else _VALUE
        self._quote = ""
        self._in_key = False
        self._comma = False
        self._scalar: list[str] | None = None
        self.out: list[str] = ["{"] if keywords else []
        self.rest = ""
        """When broken or cut: text that was taken and not given out."""
        self.closed = False
        self.broken = False

    def read(self, text: str, position: int, *, final: bool = False) -> int:
        """Take from ``text`` what can be taken; returns where it stopped. What is needed again is not taken.

        ``final`` says that nothing follows the text: a number at its end is whole.
        """
        end = len(text)
        while position < end and not (self.closed or self.broken):
            if self._quote:
                after = self._in_string(text, position, final)
            elif self._scalar is not None:
                after = self._more_scalar(text, position)
            else:
                after = space_end(text, position)
                if after == position:
                    after = self._token(text, position, final)
                elif self._raw:
                    self.out.append(text[position:after])
            if after < 0:
                break
            position = after
        if final and self._scalar is not None and not self.broken:
            self._end_scalar()
        return position

    @property
    def whole(self) -> bool:
        return self.closed

    @property
    def run(self) -> PlainRun | None:
        """None outside of strings."""
        if not self._quote or self.broken:
            return None
        return PlainRun(_stop(self._quote[0], self._dialect).search, raw_delta if self._raw else escaped_delta)

    def finish(self, text: str = "", position: int = 0, *, ended: bool = False) -> None:
        """The reply was cut: give out what is held, as far as it is still a prefix of valid JSON."""
        if self._quote and self._dialect.loose and text.startswith(self._quote, position):
            self.read(text, position, final=True)
        if not self._quote and text.startswith("{", position):
            self.rest = text[position:]  # a set or a dict: nothing has said which
        if self._scalar is None or self.broken:
            return
        text = "".join(self._scalar)
        if not self._in_key and (_NUMBER_START.fullmatch(text) or any(word.startswith(text) for word in _JSON_WORDS)):
            self.out.append(text)
        else:
            self.rest = text

    def _token(self, text: str, position: int, final: bool) -> int:
        """Take one token outside of strings; negative when it is not whole yet."""
        char, expect = text[position], self._expect
        if self._enders is not None and len(self._stack) == 1 and expect not in (_COLON, _VALUE):
            if self._enders.at(text, position):
                self._next(_CLOSERS[self._stack[0]], position)
                return position
            if not final and self._enders.may_begin(text, position):
                return -1
        if expect == _COLON:
            if char not in (":=" if self._dialect.bare else "=" if self._stack[-1] == "(" else ":"):
                return self._fail(position)
            self.out.append(":" if self._raw else ": ")
            self._expect = _VALUE
            return position + 1
        if expect == _NEXT or (char in "]})" and (self._comma or expect in (_FIRST_VALUE, _FIRST_KEY))):
            return self._next(char, position)
        for quote in self._dialect.quotes:
            if text.startswith(quote, position):
                return self._begin_string(quote, position)
            if not final and quote.startswith(text[position : position + len(quote)]):
                return -1
        if expect in _KEYS:
            return self._fail(position) if self._raw else self._begin_scalar(text, position)
        if char in "{[" or (char == "(" and self._dialect.python):
            is_set = self._dialect.python and char == "{" and begins_set(text, position, final=final)
            return -1 if is_set is None else self._open("s" if is_set else "t" if char == "(" else char, position)
        return self._begin_scalar(text, position)

    def _open(self, kind: str, position: int) -> int:
        """A container of this kind."""
        self._begin_item()
        self.out.append("{" if kind == "{" else "[")
        self._stack.append(kind)
        self._expect = _FIRST_KEY if kind == "{" else _FIRST_VALUE
        return position + 1

    def _next(self, char: str, position: int) -> int:
        """A comma, or the end of the container that we are in."""
        top = self._stack[-1]
        if char == "," and self._expect == _NEXT:
            if self._raw:
                self.out.append(",")
            self._comma = not self._raw  # held back, since a trailing one is no JSON
            self._expect = _KEY if top in "{(" else _VALUE
            return position + 1
        if char != _CLOSERS[top]:
            return self._fail(position)
        self._comma = False
        self._stack.pop()
        self.out.append("}" if top in "{(" else "]")
        self._end_value()
        return position if top == "(" else position + 1

    def _begin_item(self) -> None:
        if self._comma:
            self.out.append(", ")
            self._comma = False

    def _end_value(self) -> None:
        self._expect = _NEXT
        self.closed = not self._stack

    def _fail(self, position: int) -> int:
        self.broken, self.rest = True, "," if self._comma else ""
        return position

    def _begin_scalar(self, text: str, position: int) -> int:
        self._in_key = self._expect in _KEYS
        self._scalar = []
        return self._more_scalar(text, position)

    def _more_scalar(self, text: str, position: int) -> int:
        after = (_BARE_KEY if self._in_key else _SCALAR).match(text, position).end()  # type: ignore[union-attr]
        self._scalar.append(text[position:after])  # type: ignore[union-attr]
        if after < len(text):
            self._end_scalar()
        return after

    def _end_scalar(self) -> None:
        taken = "".join(self._scalar or ())
        word = taken.strip()
        self._scalar = None
        if self._in_key and word:
            self._begin_item()
            self.out.append(encode_string(word))
            self._expect = _COLON
            return
        written = None if self._in_key else self._written(word)
        if written is None:
            self.broken, self.rest = True, ("," if self._comma else "") + taken
            return
        self._begin_item()
        self.out.append(written)
        self._end_value()

    def _written(self, word: str) -> str | None:
        """The JSON text of a number or constant; None when it is neither."""
        if _NUMBER.fullmatch(word):
            return word
        if self._raw:
            return word if word in _JSON_WORDS else None
        if word in _PYTHON_WORDS:
            return _PYTHON_WORDS[word]
        if self._dialect.python and _PYTHON_NUMBER.fullmatch(word):
            return _plain_number(word)
        return encode_string(word) if self._dialect.bare and word else None

    def _begin_string(self, quote: str, position: int) -> int:
        self._begin_item()
        self._in_key = self._expect in _KEYS
        self._quote = quote
        self.out.append('"')
        return position + len(quote)

    def _in_string(self, text: str, position: int, final: bool) -> int:
        """Take a run of a string, or the one special thing that stands here; negative when that is not whole yet."""
        quote = self._quote
        after = _run(quote[0], self._dialect).match(text, position).end()  # type: ignore[union-attr]
        if after > position:
            run = text[position:after]
            self.out.append(run if self._raw else escape(run))
            return after
        if text.startswith(quote, position):
            if self._dialect.loose and not final and len(quote) == 1:
                closes = closes_string(text, position + 1, inside=self._stack[-1], is_key=self._in_key)
                if not closes:
                    self.out += [escape(quote)] * (closes is False)
                    return -1 if closes is None else position + 1
            self._quote = ""
            self.out.append('"')
            if self._in_key:
                self._expect = _COLON
            else:
                self._end_value()
            return position + len(quote)
        if not final and quote.startswith(text[position : position + len(quote)]):
            return -1
        if text[position] == "\\" and not self._dialect.raw_between(quote[0]):
            return self._escaped(text, position, final)
        self.out.append(escape(text[position]))
        return position + 1

    def _escaped(self, text: str, position: int, final: bool) -> int:
        whole, part = (_JSON_ESCAPE, _JSON_ESCAPE_PART) if self._raw else (_PYTHON_ESCAPE, _PYTHON_ESCAPE_PART)
        match = whole.match(text, position)
        if not final and part.match(text, position):
            return -1
        if match is None:
            self.out.append("\\\\")
            return position + 1
        self.out.append(match[0] if self._raw else _unescaped(match[0][1:]))
        return match.end()


@cache
def _run(first: str, dialect: Dialect) -> re.Pattern[str]:
    """What needs no look inside a string: anything but `_stop`."""
    return re.compile(f"[^{_stop(first, dialect).pattern[1:-1]}]*")


@cache
def _stop(first: str, dialect: Dialect) -> re.Pattern[str]:
    """What needs a look inside a string: the quote, escapes, and (in JSON) control characters."""
    stops = (
        re.escape(first)
        + ("" if dialect.raw_between(first) else "\\\\")
        + ("\\x00-\\x1f" if dialect.passes_through else "")
    )
    return re.compile(f"[{stops}]")


def space_end(text: str, position: int) -> int:
    """Where the whitespace that begins here ends."""
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches everywhere


def _unescaped(body: str) -> str:
    """JSON string text for a Python escape without its backslash."""
    if body[0] in "xuU" or body[0].isdigit():
        code = int(body, 8) if body[0].isdigit() else int(body[1:], 16)
        return f"\\u{code:04x}" if 0xD800 <= code <= 0xDFFF else escape(chr(code))
    return escape(_PYTHON_SIMPLE.get(body, body))


def _plain_number(word: str) -> str | None:
    """A Python number in JSON's spelling."""
    text = word.replace("_", "").lstrip("+")
    mantissa, mark, exponent = text.lower().partition("e")
    sign, digits = ("-", mantissa[1:]) if mantissa.startswith("-") else ("", mantissa)
    whole, point, fraction = digits.partition(".")
    text = f"{sign}{whole.lstrip('0') or '0'}{point}{fraction or ('0' if point else '')}{mark}{exponent}"
    return text if _NUMBER.fullmatch(text) else None


def convert(text: str, dialect: Dialect = JSON) -> str | None:
    """The JSON text of one whole value in the dialect; None when it is none."""
    reader = LiteralReader(dialect)
    end = reader.read(text, 0, final=True)
    if not reader.closed or reader.broken or text[end:].strip():
        return None
    return "".join(reader.out).strip()


def cut_literal(text: str, *, python: bool = True) -> tuple[str, str] | None:
    """What can be told in JSON of a literal (JSON's or Python's) that a cut may have shortened, and what of it cannot:
    half a word. None when the text begins no literal."""
    for dialect in (JSON, PYTHON) if python else (JSON,):
        if (whole := convert(text, dialect)) is not None:
            return whole, ""
        reader = LiteralReader(dialect)
        end = reader.read(text, 0)
        reader.finish()
        if not reader.broken and not (reader.closed and text[end:].strip()) and _may_be_scalar(reader.rest, dialect):
            return "".join(reader.out), reader.rest
    return None


def _may_be_scalar(text: str, dialect: Dialect) -> bool:
    """Whether a word may begin like this that JSON would write in another way (nothing at all may)."""
    words = _PYTHON_WORDS if dialect.python else ()
    return any(word.startswith(text.strip()) for word in words) if text else True
