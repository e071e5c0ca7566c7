"""The incremental reader of server-sent events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.engines.http.sse import SSEOverflow, SSEReader

STREAM = (
    b': a comment\n\nevent: x\nid: 7\ndata: {"a": 1}\n\ndata:{"b": 2}\r\n\r\ndata: first\ndata: second\r\rdata\n\n'
    b"data:   two spaces stay\n\nretry: 5\n\ndata: [DONE]\n\n"
)
PAYLOADS = [b'{"a": 1}', b'{"b": 2}', b"first\nsecond", b"", b"  two spaces stay", b"[DONE]"]


def read(*chunks: bytes) -> list[bytes]:
    reader = SSEReader()
    return [event for chunk in chunks for event in reader.feed(chunk)]


def test_whole_stream_gives_the_data_fields_and_nothing_else() -> None:
    assert read(STREAM) == PAYLOADS


def test_every_single_byte_split_gives_the_same_payloads() -> None:
    assert read(*(STREAM[i : i + 1] for i in range(len(STREAM)))) == PAYLOADS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_any_split_gives_the_same_payloads(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in pairwise(edges))) == PAYLOADS


def test_an_event_that_is_cut_comes_when_it_is_whole() -> None:
    reader = SSEReader()
    assert reader.feed(b'data: {"a": 1}\n\ndata: {"b') == [b'{"a": 1}']
    assert reader.feed(b'": 2}\n\n') == [b'{"b": 2}']


def test_a_line_that_never_ends_is_refused_at_the_limit() -> None:
    reader = SSEReader(max_event_bytes=100)
    reader.feed(b"data: " + b"x" * 50)
    with pytest.raises(SSEOverflow):
        reader.feed(b"x" * 60)


@pytest.mark.parametrize("line", [b"data:\n", b"data\n", b"data: \n"])
def test_an_endless_event_of_empty_lines_is_refused_at_the_limit(line: bytes) -> None:
    reader = SSEReader(max_event_bytes=100)
    for _ in range(100):
        reader.feed(line)
    with pytest.raises(SSEOverflow):
        reader.feed(line)


def test_many_small_events_never_reach_the_limit() -> None:
    reader = SSEReader(max_event_bytes=100)
    for _ in range(50):
        assert reader.feed(b"data: 0123456789\n\n") == [b"0123456789"]


def test_an_endless_event_of_many_lines_is_refused_at_the_limit() -> None:
    reader = SSEReader(max_event_bytes=100)
    for _ in range(10):
        reader.feed(b"data: 0123456789\n")
    with pytest.raises(SSEOverflow):
        reader.feed(b"data: 0123456789\n")
