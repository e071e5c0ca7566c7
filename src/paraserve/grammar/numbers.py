"""Numbers within bounds, as regular languages over their decimal spelling.

Knows bounds and digits only. Every string of a language made here is a JSON number whose value lies within the bounds;
bounded numbers are spelled without an exponent and never as ``-0``, so some spellings of a value are left out.
"""

from __future__ import annotations

from decimal import Decimal

from paraserve.grammar.nodes import Number
from paraserve.grammar.regex import DIGIT, EMPTY, Alt, Cat, Chars, Regex, Repeat, alt, chars, optional, text

_DIGITS = Repeat(DIGIT, 0, None)
_ZEROS = Repeat(chars("0"), 0, None)
_POSITIVE_TAIL = Cat((_ZEROS, chars(("1", "9")), _DIGITS))
_NOTHING: Regex = Chars(())
_UNSIGNED = Alt((chars("0"), Cat((chars(("1", "9")), _DIGITS))))
_SIGN = optional(chars("-"))

INTEGER: Regex = Cat((_SIGN, _UNSIGNED))
NUMBER: Regex = Cat(
    (
        _SIGN,
        _UNSIGNED,
        optional(Cat((chars("."), Repeat(DIGIT, 1, None)))),
        optional(Cat((chars("eE"), optional(chars("+-")), Repeat(DIGIT, 1, None)))),
    )
)


def within(node: Number) -> Regex:
    """The numbers that a schema admits."""
    low, high, places = node.low, node.high, node.places
    if node.integer:
        bottom = None if low is None else int(low.to_integral_value("ROUND_CEILING"))
        top = None if high is None else int(high.to_integral_value("ROUND_FLOOR"))
        bottom = bottom + 1 if bottom is not None and node.open_low and bottom == low else bottom
        top = top - 1 if top is not None and node.open_high and top == high else top
        return integer_between(bottom, top, step=10 ** max(-(places or 0), 0))
    if places is not None:
        return decimals_at_most(places, None if low is None else int(low), None if high is None else int(high))
    return decimal_between(low, high, open_low=node.open_low, open_high=node.open_high)


def integer_between(low: int | None, high: int | None, *, step: int = 1) -> Regex:
    """Integers in ``[low, high]`` that are multiples of ``step``, a power of ten."""
    if step > 1:
        zeros = text("0" * (len(str(step)) - 1))
        scaled = integer_between(
            None if low is None else -(-low // step), None if high is None else high // step, step=1
        )
        nonzero = _nonzero(scaled, low, high, step)
        return alt(*([chars("0")] if (low or 0) <= 0 <= (high or 0) else []), Cat((nonzero, zeros)))
    if low is None and high is None:
        return INTEGER
    branches: list[Regex] = []
    if high is None or high >= 0:
        branches.append(_natural(max(low or 0, 0), high))
    if low is None or low < 0:
        least = max(1, -high) if high is not None and high < 0 else 1
        branches.append(Cat((chars("-"), _natural(least, None if low is None else -low))))
    return alt(*branches)


def _nonzero(scaled: Regex, low: int | None, high: int | None, step: int) -> Regex:
    ends = (None if low is None else -(-low // step), None if high is None else high // step)
    branches = []
    if ends[1] is None or ends[1] >= 1:
        branches.append(integer_between(max(ends[0] or 1, 1), ends[1]))
    if ends[0] is None or ends[0] <= -1:
        branches.append(integer_between(ends[0], min(-1 if ends[1] is None else ends[1], -1)))
    return alt(*branches) if branches else _NOTHING


def _natural(low: int, high: int | None) -> Regex:
    """Integers in ``[low, high]``, both at least 0, without leading zeros."""
    if high is not None and high < low:
        return _NOTHING
    first, branches = str(low), []
    last_length = len(first) if high is None else len(str(high))
    for length in range(len(first), last_length + 1):
        bottom = first if length == len(first) else "1" + "0" * (length - 1)
        top = str(high) if high is not None and length == len(str(high)) else "9" * length
        branches.append(_same_length(bottom, top))
    if high is None:
        branches.append(Cat((chars(("1", "9")), Repeat(DIGIT, last_length, None))))
    return alt(*branches)


def _same_length(low: str, high: str) -> Regex:
    """Digit strings from ``low`` to ``high``, all of their one length."""
    if not low:
        return EMPTY
    rest = len(low) - 1
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        return Cat((chars((low[0], high[0])), Repeat(DIGIT, rest, rest)))
    if low[0] == high[0]:
        return Cat((chars(low[0]), _same_length(low[1:], high[1:])))
    branches = [Cat((chars(low[0]), _same_length(low[1:], "9" * rest)))]
    if ord(high[0]) - ord(low[0]) > 1:
        between = (chr(ord(low[0]) + 1), chr(ord(high[0]) - 1))
        branches.append(Cat((chars(between), Repeat(DIGIT, rest, rest))))
    branches.append(Cat((chars(high[0]), _same_length("0" * rest, high[1:]))))
    return Alt(tuple(branches))


def decimal_between(
    low: Decimal | None, high: Decimal | None, *, open_low: bool = False, open_high: bool = False
) -> Regex:
    """Numbers from ``low`` to ``high``; an open end leaves its own value out."""
    if low is None and high is None:
        return NUMBER
    branches: list[Regex] = []
    if high is None or high > 0 or (high == 0 and not open_high):
        floor = low if low is not None and low > 0 else Decimal(0)
        branches.append(_unsigned(floor, high, open_low=open_low and low == floor, open_high=open_high))
    if low is None or low < 0:
        least = -high if high is not None and high < 0 else Decimal(0)
        least_open = open_high if high is not None and high < 0 else True
        magnitude = _unsigned(least, None if low is None else -low, open_low=least_open, open_high=open_low)
        branches.append(Cat((chars("-"), magnitude)))
    return alt(*branches) if branches else _NOTHING


def decimals_at_most(places: int, low: int | None, high: int | None) -> Regex:
    """Multiples of a negative power of ten: at most ``places`` decimals, between integer bounds."""
    fraction = optional(Cat((chars("."), Repeat(DIGIT, 1, places))))
    zeros = optional(Cat((chars("."), Repeat(chars("0"), 1, places))))
    branches: list[Regex] = []
    if high is None or high >= 0:
        floor = max(low or 0, 0)
        if high is None or high > floor:
            branches.append(Cat((_natural(floor, None if high is None else high - 1), fraction)))
        if high is not None and high >= floor:
            branches.append(Cat((text(str(high)), zeros)))
    if low is None or low < 0:
        floor = max(-high, 1) if high is not None and high < 0 else 1
        if high is None or high >= 0:
            branches.append(Cat((text("-0."), Repeat(DIGIT, 1, places))))
        top = None if low is None else -low
        if top is None or top > floor:
            branches.append(Cat((chars("-"), _natural(floor, None if top is None else top - 1), fraction)))
        if top is not None and top >= floor:
            branches.append(Cat((chars("-"), text(str(top)), zeros)))
    return alt(*branches) if branches else _NOTHING


def _unsigned(low: Decimal, high: Decimal | None, *, open_low: bool, open_high: bool) -> Regex:
    low_int, low_digits = _split(low)
    at_low = _fraction(_above(low_digits, open_low), zero=not open_low and not low_digits)
    any_fraction = optional(Cat((chars("."), Repeat(DIGIT, 1, None))))
    if high is None:
        return Alt((Cat((text(str(low_int)), at_low)), Cat((_natural(low_int + 1, None), any_fraction))))
    high_int, high_digits = _split(high)
    if high_int < low_int:
        return _NOTHING
    if high_int == low_int:
        inside = _between(low_digits, high_digits, open_low=open_low, open_high=open_high)
        zero = not low_digits and not open_low and (bool(high_digits) or not open_high)
        return Cat((text(str(low_int)), _fraction(inside, zero=zero)))
    at_high = _fraction(_below(high_digits, open_high), zero=bool(high_digits) or not open_high)
    return Alt(
        (
            Cat((text(str(low_int)), at_low)),
            Cat((_natural(low_int + 1, high_int - 1), any_fraction)),
            Cat((text(str(high_int)), at_high)),
        )
    )


def _split(value: Decimal) -> tuple[int, str]:
    whole = int(value)
    digits = format(value - whole, "f").partition(".")[2].rstrip("0")
    return whole, digits


def _fraction(digits: Regex, *, zero: bool) -> Regex:
    """``.`` and digits; ``zero`` says that a bare integer is in bounds too."""
    point = Cat((chars("."), digits))
    return optional(point) if zero else point


def _above(bound: str, is_open: bool) -> Regex:
    """One or more digits whose value as a fraction is at least (or above) ``bound``."""
    if not bound:
        return _POSITIVE_TAIL if is_open else Repeat(DIGIT, 1, None)
    branches: list[Regex] = []
    if bound[0] < "9":
        branches.append(Cat((chars((chr(ord(bound[0]) + 1), "9")), _DIGITS)))
    if len(bound) > 1:
        branches.append(Cat((chars(bound[0]), _above(bound[1:], is_open))))
    else:
        branches.append(Cat((chars(bound[0]), _POSITIVE_TAIL if is_open else _DIGITS)))
    return alt(*branches)


def _below(bound: str, is_open: bool) -> Regex:
    """One or more digits whose value as a fraction is at most (or below) ``bound``."""
    if not bound:
        return _NOTHING if is_open else Repeat(chars("0"), 1, None)
    branches: list[Regex] = []
    if bound[0] > "0":
        branches.append(Cat((chars(("0", chr(ord(bound[0]) - 1))), _DIGITS)))
    rest = _below(bound[1:], is_open)
    # The digits may end here: less than the bound if more of it follows, equal to it if not.
    ends_here = len(bound) > 1 or not is_open
    branches.append(Cat((chars(bound[0]), optional(rest) if ends_here else rest)))
    return alt(*branches)


def _between(low: str, high: str, *, open_low: bool, open_high: bool) -> Regex:
    if not low:
        if not open_low:
            return _below(high, open_high)
        width = len(high)
        return _NOTHING if not high else _between("0" * width, high, open_low=True, open_high=open_high)
    if not high:
        return _NOTHING
    if low[0] == high[0]:
        if len(low) == 1 and len(high) == 1:
            return _NOTHING if open_low or open_high else Cat((chars(low[0]), _ZEROS))
        if len(low) == 1 and not open_low:
            return Cat((chars(low[0]), optional(_below(high[1:], open_high))))
        rest = _between(low[1:], high[1:], open_low=open_low, open_high=open_high)
        return Cat((chars(low[0]), rest))
    if low[0] > high[0]:
        return _NOTHING
    at_low: Regex = _above(low[1:], open_low)
    if len(low) == 1:
        at_low = _POSITIVE_TAIL if open_low else _DIGITS
    branches: list[Regex] = [Cat((chars(low[0]), at_low))]
    if ord(high[0]) - ord(low[0]) > 1:
        branches.append(Cat((chars((chr(ord(low[0]) + 1), chr(ord(high[0]) - 1))), _DIGITS)))
    rest = _below(high[1:], open_high)
    ends_here = len(high) > 1 or not open_high
    branches.append(Cat((chars(high[0]), optional(rest) if ends_here else rest)))
    return alt(*branches)
