"""Whatever an engine writes into a stream: chunks that can be true, or its error, and nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Sampling, TokenLogprob
from paraserve.engines.checks import check_chunk
from paraserve.engines.http.generation import DONE, EventDecoder
from paraserve.engines.http.refusals import refusal
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.llama_cpp.events import CompletionEvents
from paraserve.engines.llama_cpp.token_fragments import TokenFragments
from paraserve.engines.sglang.stream import SGLangStream
from paraserve.engines.vllm.engine import VLLMEngine, VLLMStream
from tests.fuzz import changed, damaged

SEEDS = range(300)
VOCAB = 300
PROMPT = [1, 2, 3]
Chunks = Iterator[EngineChunk]


def request() -> EngineRequest:
    return EngineRequest("r", PROMPT, Sampling(max_tokens=8, stop_token_ids=(7,)), logprobs=2, prompt_logprobs=True)


def sglang_events() -> list[Any]:
    told: list[Any] = []
    events: list[Any] = []
    for count in range(1, 5):
        told.append([-0.5 * count, count, None])
        meta: dict[str, Any] = {
            "finish_reason": {"type": "length"} if count == 4 else None,
            "prompt_tokens": 3,
            "cached_tokens": 1,
        }
        meta |= {"completion_tokens": count, "output_token_logprobs_length": count, "output_token_logprobs": [*told]}
        meta |= {"output_top_logprobs": [[[-0.1, 5, None], one] for one in told]}
        meta |= {
            "input_token_logprobs": [[None, 1, None], [-1.0, 2, None], [-2.0, 3, None]],
            "input_top_logprobs": None,
        }
        meta["input_top_logprobs"] = [None, [[-1.0, 2, None]], [[-1.5, 4, None]]]
        events.append({"text": "x", "output_ids": list(range(1, count + 1)), "meta_info": meta})
    return events


def vllm_events() -> list[Any]:
    tops = [{"token_id": 5, "logprob": -0.1, "rank": 1}, {"token_id": 6, "logprob": None}]
    events: list[Any] = []
    for token in range(1, 5):
        content = [{"token_id": token, "logprob": -0.5, "top_logprobs": tops}]
        choice = {
            "token_ids": [token],
            "logprobs": {"content": content},
            "finish_reason": "stop" if token == 4 else None,
        }
        events.append({"request_id": "r", "choices": [choice | {"stop_reason": 4 if token == 4 else None}]})
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}
    return [*events, {"request_id": "r", "choices": [], "usage": usage}]


def llama_cpp_events() -> list[Any]:
    def event(text: str, token: int, count: int) -> dict[str, Any]:
        top = [{"id": token, "logprob": -0.5}, {"id": 5, "logprob": -1.0}]
        told = {"id": token, "logprob": -0.5, "bytes": list(text.encode()), "top_logprobs": top}
        return {"content": text, "tokens": [token], "tokens_predicted": count, "completion_probabilities": [told]}

    begun = {"content": "", "tokens": [0], "prompt_progress": {"cache": 1}}
    written = [event("a", 97, 1), event("\U0001f99c", 0x9C, 5), event("b", 98, 6)]
    return [begun, *written, {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 6}]


def of_events(decoder: EventDecoder, payloads: list[bytes]) -> Chunks:
    for payload in [*payloads, DONE]:
        if (chunk := decoder.decode(payload)) is not None:
            yield chunk
        if decoder.ended:
            return


def sglang(payloads: list[bytes]) -> Chunks:
    return of_events(SGLangStream(request(), lambda status, message, _: refusal(status, message)), payloads)


def vllm(payloads: list[bytes]) -> Chunks:
    return of_events(VLLMStream(request(), VLLMEngine("http://engine", ModelFacts(VOCAB))), payloads)


def llama_cpp(payloads: list[bytes]) -> Chunks:
    def spelled(number: int) -> bytes:
        if number >= 256:
            raise ValueError(number)
        return bytes([number])

    events = CompletionEvents(TokenFragments(VOCAB, spelled), VOCAB)
    for payload in payloads:
        for piece in events.feed(b"data: " + payload + b"\n\n"):
            if piece.error is not None:
                raise refusal(piece.error.status, "")
            scored = [TokenLogprob(0, -1.0)] * (len(piece.ids) - len(piece.logprobs))  # the engine asks for them
            yield EngineChunk(piece.ids, [*scored, *piece.logprobs], piece.finish, cached_tokens=piece.cached)


ENGINES: dict[str, tuple[Callable[[list[bytes]], Chunks], Callable[[], list[Any]]]] = {
    "sglang": (sglang, sglang_events),
    "vllm": (vllm, vllm_events),
    "llama.cpp": (llama_cpp, llama_cpp_events),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_honest_stream_is_read_whole(engine: str) -> None:
    read, events = ENGINES[engine]
    chunks = list(read([json.dumps(event).encode() for event in events()]))
    for chunk in chunks:
        check_chunk(chunk, len(PROMPT), VOCAB)
    assert sum(len(chunk.token_ids) for chunk in chunks) >= 4
    assert chunks[-1].finish is not None


@pytest.mark.parametrize("engine", ENGINES)
def test_what_cannot_be_read_or_be_true_is_the_engines_error(engine: str) -> None:
    read, events = ENGINES[engine]
    errors = []
    for seed in SEEDS:
        lot = random.Random(f"{engine} {seed}")
        sent = changed(events(), lot) if lot.random() < 0.8 else events()
        payloads = [json.dumps(event).encode() for event in (sent if isinstance(sent, list) else [sent])]
        if payloads and lot.random() < 0.3:
            at = lot.randrange(len(payloads))
            payloads[at] = damaged(payloads[at], lot)
        try:
            for chunk in read(payloads):
                check_chunk(chunk, len(PROMPT), VOCAB)
        except EngineError as error:
            errors.append(error)
    assert len(SEEDS) / 10 < len(errors) < len(SEEDS)
    assert all(400 <= error.status < 600 for error in errors)
    assert max(len(error.message) for error in errors) < 1_000


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("before", [b"", b'{"error":', b'{"meta_info":', b'{"x":', b'{"choices":'])
def test_nesting_without_end_is_the_engines_error(engine: str, before: bytes) -> None:
    read, _ = ENGINES[engine]
    for inner in (b"[", b'{"error":'):
        with pytest.raises(EngineError):
            list(read([before + inner * 50_000]))


def test_what_may_have_been_lost_is_looked_for_within_bounds() -> None:
    """A count of tokens that nobody has made, and pieces that can be put together in many ways, none of them right."""
    tokens = [b"\xc3", b"\xc3\xc3", b"\xc3\xc3\xc3", b"x"]
    fragments = TokenFragments(len(tokens), tokens.__getitem__)
    assert fragments.lost(b"\xc3" * 3 + b"x", 3, 2**60) == [0, 0, 0]
    assert fragments.lost(b"\xc3" * 100 + b"\xc4" + b"x", 3, 90) is None
    assert fragments.lost(b"\xc3" * 10_000 + b"x", 3, 20_000) is None
