"""Half a surrogate pair in a body: read as U+FFFD, and nothing else of the body is touched."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.protocol.body import decode_body, with_whole_characters
from paraserve.protocol.errors import RequestError

ANY = msgspec.json.Decoder()


@pytest.mark.parametrize(
    ("spelled", "text"),
    [
        (rb"\ud83d", "\ufffd"),
        (rb"\uDE00", "\ufffd"),
        (rb"cut \uD83d.", "cut \ufffd."),
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\ud83d\ude00\ude00", "\U0001f600\ufffd"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d\\ude00", "\ufffd\\ude00"),
        (rb"\\ud83d \ud83d", "\\ud83d \ufffd"),
        (rb"\\\ud83d", "\\\ufffd"),
        (rb"\\\\ud83d\ud83d", "\\\\ud83d\ufffd"),
        (rb"\ud83d\n\"\u00e9", '\ufffd\n"\u00e9'),
    ],
)
def test_half_a_pair_is_the_replacement_character(spelled: bytes, text: str) -> None:
    assert decode_body(ANY, b'{"a": ["' + spelled + b'"]}') == {"a": [text]}
    assert decode_body(ANY, b'{"' + spelled + b'": 1}') == {text: 1}


@given(st.text(st.characters(codec=None) | st.sampled_from('\\"u\ud83d\ude00d8')))
def test_any_text_that_json_can_spell_is_read_as_utf_16_would_be(text: str) -> None:
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert decode_body(ANY, json.dumps([text]).encode()) == [whole]


@given(st.text(st.characters(codec="utf-8")))
def test_a_body_without_halves_stays_as_it_is(text: str) -> None:
    for ascii_only in (True, False):
        body = json.dumps({"a": text}, ensure_ascii=ascii_only).encode()
        assert with_whole_characters(body) == body


@pytest.mark.parametrize(
    "body", [b"", b"{", b'"\\ud83', b'"\\ud83d', b'"\\u12"', b'{"a": "\\ud83d"', b'["\\ud83d", ]', b'"\\x"', b'"\xc3"']
)
def test_what_is_no_json_is_refused_as_before(body: bytes) -> None:
    with pytest.raises(RequestError, match="not valid JSON") as refused:
        decode_body(ANY, body)
    assert refused.value.code == "invalid_json"


def test_a_long_body_of_halves_is_read_in_one_pass() -> None:
    assert decode_body(ANY, b'"' + rb"\ud83d" * 500_000 + b'"') == "\ufffd" * 500_000
