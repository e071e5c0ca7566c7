"""Bounds as regular languages, against the arithmetic itself."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.grammar.numbers import decimal_between, decimals_at_most, integer_between
from paraserve.grammar.regex import Regex, is_empty, write


def compiled(regex: Regex) -> re.Pattern[str]:
    return re.compile("(?!)" if is_empty(regex) else write(regex, lambda code: f"\\U{code:08x}"))


bounds = st.none() | st.integers(-1200, 1200)


@given(bounds, bounds)
def test_an_integer_is_in_the_language_if_and_only_if_it_is_within_the_bounds(low: int | None, high: int | None):
    language = compiled(integer_between(low, high))
    for value in range(-1300, 1301):
        inside = (low is None or value >= low) and (high is None or value <= high)
        assert bool(language.fullmatch(str(value))) == inside, value


@pytest.mark.parametrize("step", [10, 100])
@given(bounds, bounds)
def test_a_power_of_ten_keeps_only_its_multiples(step: int, low: int | None, high: int | None):
    language = compiled(integer_between(low, high, step=step))
    for value in range(-1300, 1301):
        inside = (low is None or value >= low) and (high is None or value <= high) and value % step == 0
        assert bool(language.fullmatch(str(value))) == inside, value


decimals = st.none() | st.decimals(-30, 30, places=2)


@given(decimals, decimals, st.booleans(), st.booleans())
def test_a_decimal_is_in_the_language_if_and_only_if_it_is_within_the_bounds(
    low: Decimal | None, high: Decimal | None, open_low: bool, open_high: bool
):
    language = compiled(decimal_between(low, high, open_low=open_low, open_high=open_high))
    for thousandths in range(-31000, 31001, 7):
        for spelling in (f"{Decimal(thousandths) / 1000:f}", f"{Decimal(thousandths) / 1000:.4f}"):
            value = Decimal(spelling)
            if value == 0 and spelling.startswith("-"):
                continue
            above = low is None or value > low or (value == low and not open_low)
            below = high is None or value < high or (value == high and not open_high)
            assert bool(language.fullmatch(spelling)) == (above and below), spelling


@given(bounds, bounds)
def test_a_negative_power_of_ten_limits_the_decimals(low: int | None, high: int | None):
    language = compiled(decimals_at_most(2, low, high))
    for value in (Decimal(n) / 4 for n in range(-5000, 5000, 3)):
        inside = (low is None or value >= low) and (high is None or value <= high)
        assert bool(language.fullmatch(f"{value:f}")) == inside or value == 0, value
    assert not language.fullmatch("0.125")
