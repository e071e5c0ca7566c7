"""Delimiters from outside say "not yet" exactly where more text could change what they match."""

import itertools
import re

import pytest

from paraserve.formats.declared.anchors import AnchorSet, literal_anchor, pattern_anchor
from paraserve.formats.declared.expressions import UnsafePatternError
from tests.formats.formats_kit import steps_of

PATTERNS = [
    r"<a>",
    r"<a+>",
    r"<a+?b?>",
    r"<(?P<name>[ab]+)>",
    r"<a.*?>",
    r"<a.*>",
    r"<(?:a|ab)>",
    r"<(?:ab|a)b*",
    r"\s*<b>",
    r"<a>(?=b)",
    r"<a>(?!b)",
    r"<(?:(?!b).)*>",
    r"<a{2,3}>",
    r"<[^>a]?>",
    r"<b>|<b>a",
    r"<a(?: b)?>\s?",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_early_answer_is_the_answer_on_the_whole_text(pattern: str) -> None:
    anchor, plain = pattern_anchor(pattern), re.compile(pattern, re.DOTALL)
    for length in range(1, 6):
        for chars in itertools.product("<>ab ", repeat=length):
            text = "".join(chars)
            expected = plain.match(text)
            final = anchor.at(text, 0, final=True)
            assert (final and final.span()) == (expected and expected.span())  # type: ignore[union-attr]
            for cut in range(length + 1):
                early = anchor.at(text[:cut], 0)
                if early is None:
                    assert expected is None
                elif early is not True:
                    assert expected is not None
                    assert early.span() == expected.span()  # type: ignore[union-attr]
                    assert early.groupdict() == expected.groupdict()  # type: ignore[union-attr]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_literal_end_is_seen_with_its_last_character(pattern: str) -> None:
    anchor = pattern_anchor(pattern)
    assert anchor.pattern.match(anchor.example, 0) is not None or "(?=" in pattern
    assert literal_anchor(["</think>"]).at("</think>", 0) is not True
    assert literal_anchor(["<b>", "<b>c"]).at("<b>", 0) is True


def test_the_first_delimiter_wins_and_of_two_the_longer() -> None:
    anchors = AnchorSet([(text, literal_anchor([text])) for text in ("<a", "<ab", "b")])
    found, start = anchors.search("..<ab", 0)
    assert found is not None
    assert (found[0], start) == ("<ab", 2)
    assert anchors.search("..<a", 0) == (None, 2)
    found, _ = anchors.search("..<a", 0, final=True)
    assert found is not None
    assert found[0] == "<a"


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a+)+b", r"(?:a|b)*", r"a++", "a{400}", r"<.*?a.*?b.*?c>"),
        *(r"^a", r"\bfoo", r"(?<!a)b", r"(a)\1", r"(?i:a)", r"<(?>a)>", r"(?=(?P<n>a))b"),
        *(r".*a", r"[\s\S]+x", "["),
    ],
)
def test_what_could_run_away_is_refused(pattern: str) -> None:
    with pytest.raises(UnsafePatternError):
        pattern_anchor(pattern)


def test_the_work_grows_with_the_text_and_no_faster() -> None:
    anchors = AnchorSet([("x", pattern_anchor(r"<c>(?P<name>[\w.-]+).*?<m>"))])

    def cost(times: int) -> int:
        return steps_of(lambda: anchors.search("<c>abcdefgh" * times, 0, final=True))

    assert cost(400) < 4.1 * cost(100)
