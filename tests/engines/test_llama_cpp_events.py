"""llama.cpp's events: ids that it leaves out are put back, and nothing that is no token counts as one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paraserve.engines.base import EngineError, Finish
from paraserve.engines.llama_cpp.events import CompletionEvents, Piece
from paraserve.engines.llama_cpp.token_fragments import TokenFragments, ends_inside_character

# One token for every byte, then some longer ones, then a control token.
VOCABULARY: list[bytes] = [bytes([byte]) for byte in range(256)]
VOCABULARY += [b"\xf0\x9f", b"\xf0\x9f\xa6", b" \xf0\x9f", "é".encode(), b"<|end|>"]
BIRD = "🦜".encode()  # f0 9f a6 9c
END = 260


def reader() -> CompletionEvents:
    return CompletionEvents(TokenFragments(len(VOCABULARY), VOCABULARY.__getitem__), len(VOCABULARY))


def event(content: str, token: int, count: int, *, raw: bytes | None = None, **more: Any) -> bytes:
    body: dict[str, Any] = {"content": content, "tokens": [token], "stop": False, "tokens_predicted": count} | more
    if raw is not None:
        body["completion_probabilities"] = [
            {"id": token, "token": "", "bytes": list(raw), "logprob": -0.5, "top_logprobs": []}
        ]
    return f"data: {json.dumps(body)}\n\n".encode()


def read(*events: bytes) -> list[Piece]:
    return list(reader().feed(b"".join(events)))


@pytest.mark.parametrize(
    ("text", "inside"),
    [(b"", False), (b"a", False), (b"\xc3", True), (b"\xc3\xa9", False), (b"\xf0\x9f\xa6", True), (BIRD, False)],
)
def test_the_end_inside_a_character_is_seen(text: bytes, inside: bool) -> None:
    assert ends_inside_character(text) is inside


def test_plain_tokens_come_one_by_one() -> None:
    assert [piece.ids for piece in read(event("a", 97, 1), event("b", 98, 2))] == [[97], [98]]


@pytest.mark.parametrize(
    ("lost", "last"),
    [([256, 0xA6], 0x9C), ([257], 0x9C), ([0xF0, 0x9F, 0xA6], 0x9C)],
)
def test_tokens_that_end_inside_a_character_are_found_again(lost: list[int], last: int) -> None:
    pieces = read(event("a", 97, 1), event("🦜", last, 2 + len(lost)), event("b", 98, 3 + len(lost)))
    assert [piece.ids for piece in pieces] == [[97], [*lost, last], [98]]


def test_a_blank_before_the_character_can_be_in_the_lost_token() -> None:
    assert read(event(" 🦜", 0x9C, 3))[0].ids == [258, 0xA6, 0x9C]


def test_bytes_that_are_no_text_are_found_by_the_bytes_that_the_server_tells() -> None:
    assert read(event("�a", ord("a"), 2, raw=b"\xc3a"))[0].ids == [0xC3, ord("a")]
    # The server holds the text to be inside a character for as long as its first byte is among the last three.
    assert read(event("� xy", ord("y"), 4, raw=b"\xf0 xy"))[0].ids == [0xF0, ord(" "), ord("x"), ord("y")]
    assert read(event("�xy", ord("y"), 3, raw=b"\xf0\x9fxy"))[0].ids == [256, ord("x"), ord("y")]


def test_ids_that_cannot_be_found_are_an_error_and_not_a_shorter_reply() -> None:
    with pytest.raises(EngineError) as caught:
        read(event("�x", ord("x"), 2))
    assert caught.value.status == 502


def test_speculation_that_counts_ahead_of_its_events_loses_nothing() -> None:
    pieces = read(event("a", 97, 3), event("b", 98, 3), event("é", 259, 3))
    assert [piece.ids for piece in pieces] == [[97], [98], [259]]


def test_a_control_token_has_no_text_and_is_one_token() -> None:
    assert read(event("a", 97, 1), event("", END, 2))[1].ids == [END]


def test_progress_is_no_token_and_tells_the_cache() -> None:
    pieces = read(event("", 0, 0, prompt_progress={"cache": 7, "total": 9}), event("a", 97, 1))
    assert [(piece.ids, piece.cached) for piece in pieces] == [([97], 7)]


def test_logprobs_are_the_tokens_own() -> None:
    (piece,) = read(event("a", 97, 1, raw=b"a"))
    assert [(entry.token_id, entry.logprob) for entry in piece.logprobs] == [(97, -0.5)]


@pytest.mark.parametrize(("kind", "finish"), [("limit", Finish("length")), ("eos", Finish("stop"))])
def test_the_servers_end_is_a_finish(kind: str, finish: Finish) -> None:
    pieces = read(event("a", 97, 1), b'data: {"stop": true, "stop_type": "%s", "tokens": []}\n\n' % kind.encode())
    assert pieces[-1].finish == finish
    assert pieces[-1].ids == []


def test_an_error_in_the_stream_is_kept_with_its_status() -> None:
    (piece,) = read(b'data: {"error": {"code": 500, "message": "x", "type": "server_error"}}\n\n')
    assert piece.error is not None
    assert piece.error.status == 500


def test_what_is_no_event_is_an_error() -> None:
    with pytest.raises(EngineError):
        read(b"data: {nonsense\n\n")


def test_a_piece_that_is_cut_keeps_the_logprobs_of_what_is_left() -> None:
    (piece,) = read(event("🦜", 0x9C, 2, raw=BIRD))
    piece.keep(1)
    assert (piece.ids, piece.logprobs) == ([257], [])


@pytest.mark.parametrize("tokens", [[-1], [len(VOCABULARY)], [2**70], [97, 98]])
def test_tokens_that_cannot_be_are_the_engines_error(tokens: list[int]) -> None:
    with pytest.raises(EngineError) as refused:
        read(event("a", 97, 1, tokens=tokens))
    assert (refused.value.status, refused.value.code) == (502, "engine_error")
