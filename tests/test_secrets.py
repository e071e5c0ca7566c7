"""Laws of what is taken out of texts: nothing of a key is left, and it costs no more than is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.secrets import (
    LONGEST_TEXT,
    MOST_SPELLINGS,
    REDACTED,
    WITHHELD,
    Presented,
    client_text,
    keys_in_force,
    presented,
    spellings,
)

KEY = "correct horse/battery"
GUESS = "wrong-horse-battery"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    known, tried = keys_in_force.set(()), presented.set(Presented())
    yield
    keys_in_force.reset(known)
    presented.reset(tried)


@given(before=st.integers(0, 60), after=st.integers(0, 60), limit=st.integers(20, 60))
def test_no_half_of_a_key_is_left_where_a_text_is_cut(before: int, after: int, limit: int) -> None:
    keys_in_force.set(spellings([KEY]))
    presented.set(Presented([f"Bearer {GUESS}"]))
    for key in (KEY, GUESS):
        shown = client_text("." * before + key + "." * after, limit)
        assert len(shown) <= limit + len(REDACTED) + 3
        assert key[:4] not in shown


def test_a_key_that_holds_another_is_taken_out_whole() -> None:
    inner, outer = "horse-battery", "correct-horse-battery-staple"
    for keys in ([inner, outer], [outer, inner]):
        keys_in_force.set(spellings(keys))
        assert client_text(f"a {outer} and {inner}") == f"a {REDACTED} and {REDACTED}"
        keys_in_force.set(())
        presented.set(Presented([" ".join(keys)]))
        assert client_text(f"a {outer} and {inner}") == f"a {REDACTED} and {REDACTED}"
        presented.set(Presented())


def test_a_text_is_cut_before_it_is_looked_through() -> None:
    presented.set(Presented([f"Bearer {GUESS}"]))
    shown = client_text("x" * 50 * LONGEST_TEXT)
    assert LONGEST_TEXT - 100 < len(shown) <= LONGEST_TEXT + 3
    assert shown.endswith("...")


def test_more_credentials_than_are_looked_for_leave_nothing_to_show() -> None:
    few = " ".join(f"{i:08d}" for i in range(MOST_SPELLINGS))
    presented.set(Presented([few]))
    assert client_text("0 00000007 0") == f"0 {REDACTED} 0"
    presented.set(Presented([f"{few} another-word"]))
    assert [client_text("0 00000007 0") for _ in range(2)] == [WITHHELD] * 2
    presented.set(Presented(['""""""""' + "\\" * i for i in range(MOST_SPELLINGS // 2)]))
    assert client_text("0") == WITHHELD, "each of them is spelled in many ways"


def test_spellings_are_found_out_once() -> None:
    sent = Presented([f"Bearer {GUESS}"])
    assert sent.spelled is sent.spelled
    assert sent.spelled == [GUESS]
