"""Patterns of schemas as languages of whole strings, against Python's own engine."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.grammar.pattern import PatternError, read_pattern
from paraserve.grammar.regex import ANY_CHAR, avoiding, chars, never_spelling, other_than, text, union, without, write

PATTERNS = ["^a+$", "b", "^(ab|c)*d?$", "^a|b$", r"\d{2,3}", r"^[^a-c\d]$", "a{2}", "^(?:x|(?<n>y))z$", "^[a-]+$", "^$"]
PATTERNS += [r"^\.\x41\u0062$", r"\\", r"^\$a$"]


def compiled(regex: object) -> re.Pattern[str]:
    return re.compile(write(regex, lambda code: f"\\U{code:08x}"), re.DOTALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(value=st.text(alphabet="abcdxyzA1234.$\\-\n", max_size=6))
def test_a_string_is_in_the_language_if_and_only_if_the_pattern_is_found_in_it(pattern: str, value: str):
    python = pattern.replace("(?<", "(?P<").replace("$", r"\Z") if "\\$" not in pattern else r"^\$a\Z"
    assert bool(compiled(read_pattern(pattern)).fullmatch(value)) == bool(re.search(python, value))


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)",
        "(?!a)b",
        "(?<=a)b",
        r"(a)\1",
        r"\bword\b",
        "a^b",
        "(a",
        "a)",
        "*a",
        "[b-a]",
        r"\p{L}",
        "a{3,2}",
        "[a",
        "\\",
    ],
)
def test_what_no_grammar_can_say_is_an_error(pattern: str):
    with pytest.raises(PatternError):
        read_pattern(pattern)


@given(value=st.text(alphabet="<>/ab|t", max_size=12))
def test_text_that_avoids_words_holds_none_of_them(value: str):
    words = ["</a>", "<|t|>", "<|t|>ab", "<a"]
    language = compiled(avoiding(words, ANY_CHAR))
    assert bool(language.fullmatch(value)) == (not any(word in value for word in words))


@given(value=st.text(alphabet="ab", max_size=5))
def test_other_than_leaves_out_the_words_and_the_empty_string_only(value: str):
    language = compiled(other_than(chars("ab"), ["a", "ab", "bba"]))
    assert bool(language.fullmatch(value)) == (value not in ("", "a", "ab", "bba"))


def test_a_pattern_that_could_spell_a_marker_loses_a_character_of_it_or_is_given_up():
    smaller = never_spelling(read_pattern("^[a-z</>]+$"), "</v>")
    assert smaller is not None
    language = compiled(smaller)
    assert not language.fullmatch("a</v>")
    assert language.fullmatch("av")
    assert never_spelling(text("</v>"), "</v>") is None


RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=8
)


@given(RANGES, RANGES)
def test_sets_of_characters_are_joined_and_taken_away_as_sets_are(base: list[Any], removed: list[Any]) -> None:
    def members(ranges: Any) -> set[int]:
        return {point for low, high in ranges for point in range(low, high + 1)}

    left = without(union(base), union(removed)).ranges
    assert members(union(base).ranges) == members(base)
    assert members(left) == members(base) - members(removed)
    assert list(left) == sorted(left)


def test_a_class_of_many_letters_is_read_in_n_log_n() -> None:
    """Nine thousand took eight seconds, as often as it stood there."""
    letters = "".join(chr(0x4E00 + 2 * place) for place in reversed(range(9_000)))
    assert compiled(read_pattern(f"^[{letters}]$")).fullmatch(letters[0])
    assert len(union((ord(c), ord(c)) for c in letters).ranges) == 9_000
    many = union((place, place) for place in range(0, 400_000, 2))  # in the square of it this would not end
    assert len(without(ANY_CHAR, many).ranges) > 190_000
