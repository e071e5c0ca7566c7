"""SGLang's events made incremental, without a server."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Sampling
from paraserve.engines.http.generation import DONE
from paraserve.engines.http.refusals import refusal
from paraserve.engines.sglang.stream import SGLangStream, count_items, last_ids


def stream_of(logprobs: int | None = None) -> SGLangStream:
    request = EngineRequest("r", [1, 2, 3], Sampling(max_tokens=8), logprobs=logprobs)
    return SGLangStream(request, lambda status, message, request: refusal(status, message, request.constraint))


def event(ids: list[int], completed: int | None, finish: str | None = None, **meta: Any) -> bytes:
    info = {"finish_reason": {"type": finish} if finish else None, "completion_tokens": completed, **meta}
    return json.dumps({"text": "x" * len(ids), "output_ids": ids, "meta_info": info}, separators=(",", ":")).encode()


def read(stream: SGLangStream, events: list[bytes]) -> list[int]:
    chunks = [chunk for payload in events if (chunk := stream.decode(payload)) is not None]
    return [token for chunk in chunks for token in chunk.token_ids]


def batches(reply: list[list[int]], *, with_length: bool = True) -> tuple[list[bytes], list[bytes], list[int]]:
    """The same reply as cumulative and as incremental events."""
    cumulative, incremental, ids = [], [], []
    for index, new in enumerate(reply):
        ids = ids + new
        finish = "length" if index == len(reply) - 1 else None
        told = {"output_token_logprobs_length": len(ids)} if with_length else {}
        lists = {"output_token_logprobs": [[-1.5, token, None] for token in ids]}
        tops = {"output_top_logprobs": [[[-0.5, 1, None], [-1.5, token, None]] for token in ids]}
        cumulative.append(event(ids, len(ids), finish, **lists, **tops, **told))
        lists = {"output_token_logprobs": [[-1.5, token, None] for token in new]}
        tops = {"output_top_logprobs": [[[-0.5, 1, None], [-1.5, token, None]] for token in new]}
        incremental.append(event(new, len(ids), finish, **lists, **tops, **told))
    return cumulative, incremental, ids


REPLIES = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=12)


@given(REPLIES)
def test_both_kinds_of_stream_give_the_same_ids(reply: list[list[int]]) -> None:
    cumulative, incremental, ids = batches(reply)
    assert read(stream_of(), cumulative) == ids
    assert read(stream_of(), incremental) == ids


@given(REPLIES, st.booleans())
def test_both_kinds_of_stream_give_each_id_its_log_probability(reply: list[list[int]], with_length: bool) -> None:
    cumulative, incremental, ids = batches(reply, with_length=with_length)
    for events in (cumulative, incremental):
        stream = stream_of(logprobs=2)
        chunks = [chunk for payload in events if (chunk := stream.decode(payload)) is not None]
        entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        assert [entry.token_id for entry in entries] == ids
        assert all(entry.top == ((1, -0.5), (entry.token_id, -1.5)) for entry in entries)


def test_spelling_of_the_json_does_not_matter() -> None:
    cumulative, incremental, ids = batches([[7, 8], [9], [7], [7, 7]])
    for events in (cumulative, incremental):
        spaced = [json.dumps(json.loads(payload), indent=1).encode() for payload in events]
        assert read(stream_of(logprobs=2), spaced) == ids


@pytest.mark.parametrize("text", [None, '"],["', "]],[[", "],[", "null,["])
@pytest.mark.parametrize("top", [None, [], [[-0.5, 1, None]]])
def test_log_probabilities_are_right_whatever_the_items_hold(text: str | None, top: list[Any] | None) -> None:
    values = [[-1.0 - token, token, text] for token in range(6)]
    tops = [[[-0.25, token + 1, text]] if token % 2 else top for token in range(6)]
    stream, entries = stream_of(logprobs=1), []
    for count in (1, 2, 3, 6):
        lists = {"output_token_logprobs": values[:count], "output_top_logprobs": tops[:count]}
        payload = event(list(range(count)), count, **lists, output_token_logprobs_length=count)
        chunk = stream.decode(payload)
        assert chunk is not None
        entries += chunk.logprobs or ()
    assert [(entry.token_id, entry.logprob) for entry in entries] == [(token, -1.0 - token) for token in range(6)]
    even = ((1, -0.5),) if top else ()
    assert [entry.top for entry in entries] == [((t + 1, -0.25),) if t % 2 else even for t in range(6)]


def test_log_probabilities_of_other_tokens_are_refused() -> None:
    with pytest.raises(EngineError):
        stream_of(logprobs=0).decode(event([5], 1, output_token_logprobs=[[-1.0, 6, None]]))
    with pytest.raises(EngineError):
        stream_of(logprobs=0).decode(event([5], 1))


def test_missing_log_probability_is_the_apis_sentinel() -> None:
    chunk = stream_of(logprobs=0).decode(event([5], 1, output_token_logprobs=[[None, 5, None]]))
    assert chunk is not None
    assert [entry.logprob for entry in chunk.logprobs or ()] == [-9999.0]


def test_list_that_runs_ahead_of_its_count_is_still_cumulative() -> None:
    """The server shares the growing list with events that it has not sent yet."""
    events = [event([4], 1), event([4, 5, 6], 2), event([4, 5, 6], 3), event([4, 5, 6, 7], 4, "length")]
    assert read(stream_of(), events) == [4, 5, 6, 7]


def test_stream_without_a_count_is_recognised_by_its_ids() -> None:
    assert read(stream_of(), [event([4], None), event([4, 5], None), event([4, 5, 6], None, "length")]) == [4, 5, 6]
    assert read(stream_of(), [event([4], None), event([5], None), event([45], None, "length")]) == [4, 5, 45]
    assert read(stream_of(), [event([4], None), event([45, 5], None), event([6], None, "length")]) == [4, 45, 5, 6]


def test_repeated_token_is_no_repeated_event() -> None:
    assert read(stream_of(), [event([4], 1), event([4], 2), event([4], 3, "length")]) == [4, 4, 4]
    assert read(stream_of(), [event([4], 1), event([4, 4], 2), event([4, 4, 4], 3, "length")]) == [4, 4, 4]


def test_cumulative_list_that_shrinks_is_an_error() -> None:
    stream = stream_of()
    read(stream, [event([4], 1), event([4, 5], 2)])
    with pytest.raises(EngineError):
        stream.decode(event([4], 1))


def test_events_without_anything_new_are_no_chunks() -> None:
    stream = stream_of()
    assert stream.decode(event([], 0)) is None
    assert read(stream, [event([4], 1), event([4], 1), event([4, 5], 2, "stop")]) == [4, 5]


@pytest.mark.parametrize(
    ("finish", "reason", "matched"),
    [
        ({"type": "stop", "matched": 2}, "stop", 2),
        ({"type": "stop", "matched": [7, 2]}, "stop", 2),
        ({"type": "stop", "matched": "NaN happened"}, "stop", None),
        ({"type": "length", "length": 5}, "length", None),
        ({"type": "abort", "message": "Aborted", "status_code": None}, "abort", None),
    ],
)
def test_finish_reasons(finish: dict[str, Any], reason: str, matched: int | None) -> None:
    payload = json.dumps({"output_ids": [2], "meta_info": {"finish_reason": finish, "completion_tokens": 1}}).encode()
    chunk = stream_of().decode(payload)
    assert chunk is not None
    assert chunk.finish is not None
    assert (chunk.finish.reason, chunk.finish.matched) == (reason, matched)


@pytest.mark.parametrize(
    "payload",
    [
        DONE,
        b"",
        b"null",
        b"[]",
        b'{"output_ids": [1]}',
        b'{"output_ids": ["a"], "meta_info": {"completion_tokens": 1}}',
        b'{"output_ids": [1], "meta_info": {"finish_reason": {"type": "surprise"}}}',
        b"\xff\xfe",
        b'{"output_ids": [1',
    ],
)
def test_what_is_not_the_protocol_is_an_error_of_the_engine(payload: bytes) -> None:
    with pytest.raises(EngineError) as caught:
        stream_of().decode(payload)
    assert caught.value.status == 502


@pytest.mark.parametrize("body", ['"text only"', '{"message": "m"}', '{"message": "m", "code": "prefill_error"}'])
def test_error_event_without_a_status_is_a_502(body: str) -> None:
    with pytest.raises(EngineError) as caught:
        stream_of().decode(b'{"error": ' + body.encode() + b"}")
    assert caught.value.status == 502


def test_prefill_sides_cached_tokens_are_reported_when_both_are_there() -> None:
    """The decode side counts what it took over as cached: a hit of 100 % that nobody had."""
    counts = {"prompt_tokens": 100, "cached_tokens": 100}
    for prefill, reported in (({"cached_tokens": 32}, 32), ({"cached_tokens": 0}, 0), (None, None)):
        chunk = stream_of().decode(event([4], 1, prefill_meta_info=prefill, **counts))
        assert chunk is not None
        assert (chunk.prompt_tokens, chunk.cached_tokens) == (100, reported)


def test_lists_are_counted_and_cut_without_decoding() -> None:
    assert [count_items(raw) for raw in (b"[]", b"[ ]", b"[1]", b"[1, 2]", b"[1,22,333]")] == [0, 0, 1, 2, 3]
    assert [last_ids(b"[1,22, 333]", wanted) for wanted in (0, 1, 2)] == [[], [333], [22, 333]]


@pytest.mark.parametrize("logprobs", [None, 2])
def test_of_a_cumulative_event_only_what_is_new_is_decoded(logprobs: int | None) -> None:
    ids = list(range(100000, 108192))
    lists = {
        "output_token_logprobs": [[-1.5, token, None] for token in ids],
        "output_top_logprobs": [[[-0.5, 1, None], [-1.5, token, None]] for token in ids],
    }
    payload = event(ids, len(ids), output_token_logprobs_length=len(ids), **(lists if logprobs else {}))
    stream = stream_of(logprobs)

    stream._seen, stream._cumulative = len(ids) - 1, True

    def memory(work: Callable[[], object]) -> int:
        tracemalloc.start()
        work()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    chunks: list[EngineChunk | None] = []
    assert memory(lambda: chunks.append(stream.decode(payload))) < 0.5 * memory(lambda: msgspec.json.decode(payload))
    assert [chunk and list(chunk.token_ids) for chunk in chunks] == [ids[-1:]]
