"""Reads the keywords of strings and numbers into nodes, or refuses them by name.

Knows one schema object at a time, no references and no combinations. Invariant: a bound, length or pattern is in the
node as it is or tighter, or it has been refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from paraserve.grammar.emptiness import has_no_string
from paraserve.grammar.nodes import Const, GrammarError, Node, Number, String, one_of
from paraserve.grammar.numbers import within
from paraserve.grammar.pattern import PatternError, read_pattern
from paraserve.grammar.regex import Regex
from paraserve.grammar.string_formats import STRING_FORMATS

MOST_LISTED = 1000
"""Values of one enumeration."""
_FARTHEST, _FINEST = Decimal(10) ** 30, Decimal(10) ** -20


class ScalarReader:
    """``lenient`` drops what cannot be expressed instead of refusing it."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient

    def refuse(self, keyword: str, path: str, why: str = "is not supported in a constrained reply") -> None:
        if not self.lenient:
            raise GrammarError(f"the keyword {keyword!r} {why}", keyword=keyword, path=path)

    def broken(self, keyword: str, path: str, why: str) -> GrammarError:
        return GrammarError(f"the keyword {keyword!r} {why}", keyword=keyword, path=path)

    def string(self, schema: Mapping[str, Any], path: str) -> Node | None:
        least, most = self.count("minLength", schema, path) or 0, self.count("maxLength", schema, path)
        patterns: list[Regex] = []
        written = schema.get("pattern", [])
        for pattern in written if isinstance(written, list) else [written]:
            try:
                patterns.append(read_pattern(str(pattern)))
            except PatternError as error:
                self.refuse("pattern", path, f"cannot be expressed: {error}")
        known = STRING_FORMATS.get(str(schema.get("format")))
        if known is not None:
            patterns.append(read_pattern(known))
        node = String(least, most, tuple(patterns), path)
        return None if has_no_string(node.language) else node

    def number(self, schema: Mapping[str, Any], path: str, *, integer: bool) -> Node | None:
        low, open_low = self.bound(schema, "minimum", "exclusiveMinimum", path, max)
        high, open_high = self.bound(schema, "maximum", "exclusiveMaximum", path, min)
        places: int | None = None
        if "multipleOf" in schema:
            step = self.decimal("multipleOf", schema["multipleOf"], path)
            exponent = step.normalize().as_tuple()
            if exponent.digits == (1,) and isinstance(exponent.exponent, int):
                places = -exponent.exponent
                whole = all(end is None or end == int(end) for end in (low, high)) and not (open_low or open_high)
                if (places > 0 and not integer and not whole) or (places < 0 and not integer and not whole):
                    self.refuse("multipleOf", path, "is not supported beside fractional or exclusive bounds")
            else:
                values = self.multiples(step, low, high, open_low, open_high, path)
                if values is not None:
                    return one_of([Const(value) for value in values])
        node = Number(integer or (places is not None and places <= 0), low, high, open_low, open_high, places)
        return None if has_no_string(within(node)) else node

    def multiples(
        self, step: Decimal, low: Decimal | None, high: Decimal | None, open_low: bool, open_high: bool, path: str
    ) -> list[str] | None:
        if low is None or high is None or step <= 0 or (high - low) / step > MOST_LISTED:
            why = "is supported only for powers of ten or, with both bounds, for a short list of values"
            self.refuse("multipleOf", path, why)
            return None
        first, last = (
            int((low / step).to_integral_value("ROUND_CEILING")),
            int((high / step).to_integral_value("ROUND_FLOOR")),
        )
        values = [step * n for n in range(first, last + 1)]
        return [
            format(value.normalize(), "f")
            for value in values
            if not (open_low and value == low) and not (open_high and value == high)
        ]

    def bound(
        self, schema: Mapping[str, Any], closed: str, exclusive: str, path: str, tighter: Any
    ) -> tuple[Decimal | None, bool]:
        limit, is_open = None, False
        if closed in schema:
            limit, is_open = self.decimal(closed, schema[closed], path), schema.get(exclusive) is True
        value = schema.get(exclusive)
        if value is not None and not isinstance(value, bool):
            other = self.decimal(exclusive, value, path)
            if limit is None or other == tighter(other, limit):
                limit, is_open = other, True
        if limit is None:
            return None, False
        held = self.held(limit, upper=tighter is min, keyword=closed if closed in schema else exclusive, path=path)
        return held, is_open and held == limit

    def held(self, limit: Decimal, *, upper: bool, keyword: str, path: str) -> Decimal:
        """A bound of a size that a grammar can spell: a farther or finer one is drawn in."""
        if abs(limit) > _FARTHEST and (limit > 0) != upper:
            self.refuse(keyword, path, "is out of the range that can be enforced")
        with localcontext(prec=60):
            near = max(min(limit, _FARTHEST), -_FARTHEST)
            return near.quantize(_FINEST, ROUND_FLOOR if upper else ROUND_CEILING)

    def decimal(self, keyword: str, value: Any, path: str) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise self.broken(keyword, path, "must be a number")
        try:
            number = Decimal(str(value))
        except ValueError:  # an integer of more digits than Python writes
            raise self.broken(keyword, path, "is out of the range that can be enforced") from None
        if not number.is_finite():
            raise self.broken(keyword, path, "must be finite")
        return number

    def count(self, keyword: str, schema: Mapping[str, Any], path: str) -> int | None:
        value = schema.get(keyword)
        if value is None:
            return None
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or value < 0:
            raise self.broken(keyword, path, "must be a whole number that is not negative")
        return int(value)
