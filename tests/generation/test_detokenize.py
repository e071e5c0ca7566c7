"""Tokens to text without half characters."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import ClassVar

import pytest

from paraserve.formats.spec import Format, Reasoning
from paraserve.generation.detokenize import Detokenizer, reply_vocabulary
from paraserve.tokenizers.token_table import BlankPrefix

TEXT = "naïve 北京 🌤️ e\u0301"


def byte_token(token_id: int) -> bytes:
    return bytes([token_id])


def test_no_half_character_is_ever_shown() -> None:
    detokenizer = Detokenizer(byte_token, frozenset())
    pieces = [detokenizer.feed((byte,)) for byte in TEXT.encode()]
    assert "".join(pieces) == TEXT
    assert "\ufffd" not in "".join(pieces)
    assert detokenizer.finish() == ""


def test_any_grouping_gives_the_same_text() -> None:
    rng = random.Random(5)
    raw = list(TEXT.encode())
    for _ in range(50):
        detokenizer, out, at = Detokenizer(byte_token, frozenset()), "", 0
        while at < len(raw):
            step = rng.randint(1, 5)
            out += detokenizer.feed(raw[at : at + step])
            at += step
        assert out + detokenizer.finish() == TEXT


def test_an_incomplete_tail_is_released_once() -> None:
    detokenizer = Detokenizer(byte_token, frozenset())
    assert detokenizer.feed(list("é".encode())[:1]) == ""
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_bytes_that_are_no_text_do_not_raise() -> None:
    detokenizer = Detokenizer(byte_token, frozenset())
    assert detokenizer.feed([0xFF, 0x41]) == "\ufffdA"


class _Vocabulary:
    added_tokens: ClassVar = {"<eos>": 1, "<|call|>": 2, "<|pad|>": 3, "<tool>": 4}
    special_ids = frozenset({1, 2, 3})
    eos_token_ids = frozenset({1})
    blank_prefix = BlankPrefix()
    token_bytes = staticmethod(byte_token)


def test_special_tokens_are_hidden_but_never_a_marker_of_the_format() -> None:
    format = Format("f", reasoning=Reasoning("<|call|>x", "</x>"), stop_tokens=("<|pad|>", "<|gone|>"))
    vocabulary = reply_vocabulary(_Vocabulary(), format, end_ids={9})
    assert vocabulary.hidden == {1, 3}
    assert vocabulary.end_ids == {1, 3, 9}
    assert vocabulary.detokenizer(True).feed([1, 2, 65, 3]) == "\x02A"
    assert vocabulary.detokenizer(False).feed([1, 2, 65, 3]) == "\x01\x02A\x03"


@pytest.mark.parametrize("skip_special_tokens", [True, False])
@pytest.mark.parametrize("before", [None, 4, 65])
@pytest.mark.parametrize(
    "prefix", [BlankPrefix(), BlankPrefix(at_start=True), BlankPrefix(True, frozenset({3, 4}))], ids=repr
)
def test_the_short_way_of_whole_characters_gives_what_the_long_one_gives(
    prefix: BlankPrefix, before: int | None, skip_special_tokens: bool
) -> None:
    vocabulary = replace(reply_vocabulary(_Vocabulary(), Format("f")), blank_prefix=prefix)
    vocabulary.detokenizer(skip_special_tokens, 65).feed(range(1, 128))  # an earlier reply made all texts known
    rng = random.Random(5)
    for _ in range(200):
        ids = rng.choices((3, 4, 32, 32, 65, 66), k=8)
        long, short = (vocabulary.detokenizer(skip_special_tokens, before) for _ in range(2))
        for at in range(0, len(ids), 2):
            some = ids[at : at + 2]
            assert (short.whole(some) or short.feed(some)) == long.feed(some), (ids, at)
