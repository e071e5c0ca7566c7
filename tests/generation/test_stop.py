"""Stop strings over token edges."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.generation.stop import StopMatcher


def shown(strings: list[str], chunks: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(strings)
    text = ""
    for chunk in chunks:
        text += matcher.feed(chunk)
        if matcher.matched is not None:
            return text, matcher.matched
    return text + matcher.finish(), None


@pytest.mark.parametrize(
    ("strings", "chunks", "expected"),
    [
        (["beta gamma"], ["alpha be", "ta ga", "mma delta"], ("alpha ", "beta gamma")),
        (["beta gamma"], ["alpha ", "beta gam", "bit"], ("alpha beta gambit", None)),
        (["aab"], ["aaa", "b"], ("a", "aab")),
        (["xyz", "y"], ["wx", "yz"], ("wx", "y")),
        (["bc", "abc"], ["abc"], ("", "abc")),
        (["end"], ["the e", "n"], ("the en", None)),
    ],
)
def test_a_stop_string_is_found_over_edges_and_near_misses_are_shown(
    strings: list[str], chunks: list[str], expected: tuple[str, str | None]
) -> None:
    assert shown(strings, chunks) == expected


def test_text_that_cannot_become_a_stop_string_leaves_at_once() -> None:
    matcher = StopMatcher(["\n\nQ:"])
    assert matcher.feed("plain text") == "plain text"
    assert matcher.feed("a\n") == "a"
    assert matcher.feed("b") == "\nb"


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3), st.data())
def test_the_result_does_not_depend_on_how_the_text_was_cut(text: str, strings: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    chunks = [text[a:b] for a, b in pairwise(edges)]
    whole = shown(strings, [text])
    assert shown(strings, chunks) == whole
    assert shown(strings, list(text)) == whole
    if whole[1] is None:
        assert whole[0] == text
    else:
        assert text.startswith(whole[0] + whole[1])
