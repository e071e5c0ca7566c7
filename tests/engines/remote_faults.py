"""What an adapter makes of an HTTP engine that misbehaves: the same tests for every such adapter.

Like ``contract.py``, but these need a fake that can be told how to fail. A subclass gives the fixture ``remote``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from paraserve.engines.base import (
    Constraint,
    EngineChunk,
    EngineError,
    EngineRequest,
    RoutingHints,
    Sampling,
    TokenLogprob,
)
from paraserve.engines.http.client import HTTPTimeouts
from paraserve.engines.http.generation import EventDecoder
from paraserve.engines.http.remote import RemoteEngine
from paraserve.engines.vllm.engine import VLLMEngine
from tests.engines.contract import Chunks, collect, ids_of
from tests.fakes.sequences import EOS, LONG, SLOW, VOCAB, FakeModel
from tests.waiting import PATIENCE, until

PROMPT = [5, 6, 7, 8]
TIMEOUTS = HTTPTimeouts(PATIENCE, idle=PATIENCE, call=PATIENCE)
"""None that a busy machine runs into: a test that is about one shortens it (`Remote.silence_is`)."""

SCORE = TokenLogprob(5, -1.0)
LIES: list[dict[str, Any]] = [
    {"token_ids": [VOCAB], "logprobs": None},
    {"token_ids": [-1], "logprobs": None},
    {"token_ids": [2**70], "logprobs": None},
    {"prompt_tokens": -1},
    {"prompt_tokens": 2**70},
    {"cached_tokens": -1},
    {"cached_tokens": 2**70},
    {"logprobs": []},
    {"logprobs": [SCORE] * 50},
    {"logprobs": [TokenLogprob(VOCAB, -1.0)]},
    {"logprobs": [TokenLogprob(5, -1.0, [(5, -1.0), (-1, -2.0)])]},
    {"prompt_logprobs": [None]},
    {"prompt_logprobs": [None, *[TokenLogprob(VOCAB, -1.0)] * (len(PROMPT) - 1)]},
]
"""What a chunk of an engine may claim."""


@dataclass
class Remote:
    """A started adapter and the fake behind it (``requests``, ``headers``, ``aborts`` and a ``model``)."""

    engine: RemoteEngine
    fake: Any
    abort_name: Callable[[str], str]

    @property
    def model(self) -> FakeModel:
        model: FakeModel = self.fake.model
        return model

    def runs(self, request: EngineRequest) -> bool:
        """Whether the engine works on it, or has queued it."""
        return self.abort_name(request.request_id) in self.model.running

    async def aborted(self, request_ids: Sequence[str]) -> bool:
        """Whether exactly these requests were aborted, once each, and nothing runs any more."""
        wanted = sorted(map(self.abort_name, request_ids))
        await until(lambda: sorted(self.fake.aborts) == wanted and not self.model.running)
        await self.engine.stop()  # after which no abort comes any more
        return sorted(self.fake.aborts) == wanted

    def silence_is(self, seconds: float) -> None:
        """What the adapter takes for silence from now on."""
        self.engine.http._timeouts = replace(self.engine.http._timeouts, idle=seconds)


def ask(prompt: Sequence[int] = PROMPT, max_tokens: int = 12, **changes: Any) -> EngineRequest:
    sampling = changes.pop("sampling", Sampling(max_tokens=max_tokens, temperature=0.0))
    return EngineRequest(uuid4().hex, prompt, sampling, **changes)


def long(prompt: Sequence[int] = (LONG, 1)) -> EngineRequest:
    """A request that runs for longer than an abort may take."""
    return ask(prompt, 3000)


async def failure(remote: Remote, request: EngineRequest | None = None) -> tuple[list[int], EngineError]:
    """What came before the error, and the error."""
    ids: list[int] = []
    try:
        async with aclosing(Chunks(remote.engine, request or ask())) as chunks:
            async for chunk in chunks:
                ids += chunk.token_ids
    except EngineError as error:
        return ids, error
    raise AssertionError("the reply did not fail")


class RemoteFaults:
    """Inherit, and give the fixture ``remote``."""

    @pytest.mark.parametrize("framing", ["plain", "joined", "split", "drip"])
    async def test_reply_is_the_same_however_the_bytes_arrive(self, remote: Remote, framing: Any) -> None:
        remote.model.behaviour.framing = framing
        expected = remote.model.reply_ids(PROMPT)[:12]
        assert ids_of(await collect(remote.engine, ask())) == expected

    async def test_several_tokens_an_event_all_come_out(self, remote: Remote) -> None:
        remote.model.behaviour.tokens_per_event = (2, 1, 4, 3)
        chunks = await collect(remote.engine, ask(max_tokens=30, logprobs=2))
        assert ids_of(chunks) == remote.model.reply_ids(PROMPT)[:30]
        assert all(len(chunk.logprobs or ()) == len(chunk.token_ids) for chunk in chunks)

    async def test_end_token_is_the_last_id_and_is_named(self, remote: Remote) -> None:
        remote.model.behaviour.eos_after = 5
        chunks = await collect(remote.engine, ask())
        assert ids_of(chunks) == [*remote.model.reply_ids(PROMPT)[:5], EOS]
        assert chunks[-1].finish is not None
        assert (chunks[-1].finish.reason, chunks[-1].finish.matched) == ("stop", EOS)
        assert chunks[-1].token_ids[-1] == EOS

    async def test_finished_reply_is_not_aborted_and_its_connection_is_used_again(self, remote: Remote) -> None:
        for _ in range(3):
            await collect(remote.engine, ask())
        assert await remote.aborted([])

    # The six moments in which a client leaves. The sequences would run for a minute.

    async def test_leaving_while_queued_aborts_once(self, remote: Remote) -> None:
        remote.model.capacity = 1
        holder, queued = long(), long()
        async with aclosing(Chunks(remote.engine, holder)) as chunks:
            await anext(chunks)
            await self._cancel(remote, [queued])
            await until(lambda: remote.fake.aborts == [remote.abort_name(queued.request_id)])
        assert await remote.aborted([queued.request_id, holder.request_id])

    async def test_leaving_before_the_first_token_aborts_once(self, remote: Remote) -> None:
        request = long([SLOW, 1])
        await self._cancel(remote, [request])
        assert await remote.aborted([request.request_id])

    async def test_leaving_before_the_head_of_the_answer_aborts_once(self, remote: Remote) -> None:
        remote.model.behaviour.head_delay = PATIENCE
        request = long()
        await self._cancel(remote, [request])
        assert await remote.aborted([request.request_id])

    async def test_leaving_in_mid_stream_aborts_once(self, remote: Remote) -> None:
        request = long()
        begun = asyncio.Event()

        async def read() -> None:
            async with aclosing(Chunks(remote.engine, request)) as chunks:
                async for _ in chunks:
                    begun.set()

        waiting = asyncio.ensure_future(read())
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await remote.aborted([request.request_id])

    async def test_leaving_a_call_that_waits_for_the_whole_reply_aborts_once(self, remote: Remote) -> None:
        request = long()
        await self._cancel(remote, [request])
        assert await remote.aborted([request.request_id])

    async def test_leaving_with_three_choices_aborts_each_once(self, remote: Remote) -> None:
        requests = [long() for _ in range(3)]
        await self._cancel(remote, requests)
        assert await remote.aborted([request.request_id for request in requests])

    async def test_leaving_while_we_hold_the_first_chunk_aborts_once(self, remote: Remote) -> None:
        request = long()
        chunks = Chunks(remote.engine, request)
        await anext(chunks)
        await chunks.aclose()
        assert await remote.aborted([request.request_id])

    async def test_leaving_while_it_is_held_back_aborts_once(self, remote: Remote) -> None:
        """And nothing was pushed meanwhile, though others went on."""
        request = long()
        chunks = Chunks(remote.engine, request)
        await anext(chunks)
        chunks.pause()
        pushed = len(chunks.pushed)
        assert len(ids_of(await collect(remote.engine, ask()))) == 12
        assert (len(chunks.pushed), chunks.ends) == (pushed, [])
        chunks.close()
        assert await remote.aborted([request.request_id])
        assert chunks.breaches == []

    async def test_abort_survives_a_second_cancellation(self, remote: Remote) -> None:
        request = long()
        waiting = asyncio.ensure_future(collect(remote.engine, request))
        await until(lambda: remote.runs(request))
        for _ in range(5):
            waiting.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(waiting, return_exceptions=True)
        assert await remote.aborted([request.request_id])

    async def test_stop_lets_pending_aborts_out(self, remote: Remote) -> None:
        request = long()
        await self._cancel(remote, [request])
        await remote.engine.stop()
        assert remote.fake.aborts == [remote.abort_name(request.request_id)]

    async def _cancel(self, remote: Remote, requests: Sequence[EngineRequest]) -> None:
        """Leave when the engine has them."""
        waiting = [asyncio.ensure_future(collect(remote.engine, request)) for request in requests]
        await until(lambda: all(map(remote.runs, requests)))
        for each in waiting:
            each.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)

    # Failures.

    @pytest.mark.parametrize(("status", "ours"), [(400, 400), (429, 429), (500, 502), (503, 503), (504, 504)])
    async def test_refusal_before_the_stream_keeps_its_status(self, remote: Remote, status: int, ours: int) -> None:
        remote.model.behaviour.status = status
        ids, error = await failure(remote)
        assert (ids, error.status) == ([], ours)

    @pytest.mark.parametrize("after", [0, 1, 3])
    async def test_error_event_ends_the_stream_as_an_error(self, remote: Remote, after: int) -> None:
        behaviour = remote.model.behaviour
        behaviour.error_after, behaviour.error_status = after, 500
        ids, error = await failure(remote)
        assert ids == remote.model.reply_ids(PROMPT)[:after]
        assert error.status == 502

    async def test_error_event_of_a_client_mistake_is_a_400(self, remote: Remote) -> None:
        behaviour = remote.model.behaviour
        behaviour.error_after, behaviour.error_status, behaviour.message = 0, 400, "top_p must be in (0, 1]"
        _, error = await failure(remote)
        assert (error.status, error.param) == (400, "top_p")

    async def test_error_event_without_a_status_is_the_engines_fault(self, remote: Remote) -> None:
        behaviour = remote.model.behaviour
        behaviour.error_after, behaviour.error_status = 1, None
        _, error = await failure(remote)
        assert error.status == 502

    async def test_error_in_the_same_segment_as_the_first_chunk_comes_after_it(self, remote: Remote) -> None:
        behaviour = remote.model.behaviour
        behaviour.error_after, behaviour.framing = 1, "joined"
        ids, error = await failure(remote)
        assert ids == remote.model.reply_ids(PROMPT)[:1]
        assert error.status == 502

    @pytest.mark.parametrize("after", [0, 2])
    async def test_silence_is_a_timeout_and_aborts(self, remote: Remote, after: int) -> None:
        remote.silence_is(0.3)
        remote.model.behaviour.silent_after = after
        request = ask()
        ids, error = await failure(remote, request)
        assert ids in [remote.model.reply_ids(PROMPT)[:seen] for seen in range(after + 1)]
        assert (error.status, error.code) == (504, "engine_timeout")
        assert await remote.aborted([request.request_id])

    @pytest.mark.parametrize("after", [0, 2])
    async def test_garbage_is_an_error_and_never_text(self, remote: Remote, after: int) -> None:
        remote.model.behaviour.garbage_after = after
        ids, error = await failure(remote)
        assert ids == remote.model.reply_ids(PROMPT)[:after]
        assert error.status == 502

    @pytest.mark.parametrize("lie", LIES, ids=str)
    async def test_what_cannot_be_true_is_the_engines_error_and_reaches_nobody(
        self, remote: Remote, lie: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        honest = remote.engine.decoder

        def lying(request: EngineRequest) -> EventDecoder:
            decoder = honest(request)
            decode, seen = decoder.decode, 0

            def decoded(payload: bytes) -> EngineChunk | None:
                nonlocal seen
                chunk = decode(payload)
                if chunk is not None and chunk.token_ids and (seen := seen + 1) == 3:
                    for name, value in lie.items():
                        setattr(chunk, name, value)
                return chunk

            monkeypatch.setattr(type(decoder), "decode", lambda _, payload: decoded(payload))
            return decoder

        monkeypatch.setattr(remote.engine, "decoder", lying)
        request = ask(logprobs=2)
        ids, error = await failure(remote, request)
        assert ids == remote.model.reply_ids(PROMPT)[: len(ids)]
        assert 2 <= len(ids) < 12
        assert (error.status, error.code) == (502, "engine_error")
        assert await remote.aborted([request.request_id])

    @pytest.mark.parametrize("after", [0, 2])
    async def test_connection_cut_inside_an_event_is_an_error(self, remote: Remote, after: int) -> None:
        remote.model.behaviour.cut_after = after
        ids, error = await failure(remote)
        assert ids == remote.model.reply_ids(PROMPT)[:after]
        assert error.status == 502

    @pytest.mark.parametrize("after", [0, 2])
    async def test_stream_that_ends_without_a_finish_is_an_error(self, remote: Remote, after: int) -> None:
        remote.model.behaviour.end_after = after
        ids, error = await failure(remote)
        assert ids == remote.model.reply_ids(PROMPT)[:after]
        assert error.status == 502

    async def test_messages_of_failures_carry_no_address(self, remote: Remote) -> None:
        behaviour = remote.model.behaviour
        behaviour.status, behaviour.message = 400, f"bad thing at {remote.engine.http.base_url}/generate in /opt/x/y.py"
        _, error = await failure(remote)
        assert "127.0.0.1" not in error.message
        assert "/opt" not in error.message

    # Requests that are refused here.

    @pytest.mark.parametrize("bad", [VOCAB, -1, 1 << 40])
    async def test_id_outside_of_the_vocabulary_never_reaches_the_engine(self, remote: Remote, bad: int) -> None:
        _, error = await failure(remote, ask([1, bad, 2]))
        assert (error.status, error.param) == (400, "prompt")
        _, error = await failure(remote, ask(sampling=Sampling(4, logit_bias={bad: 1.0})))
        assert (error.status, error.param) == (400, "logit_bias")
        _, error = await failure(remote, ask(sampling=Sampling(4, stop_token_ids=(bad,))))
        assert (error.status, error.param) == (400, "stop_token_ids")
        assert remote.fake.requests == []
        assert not remote.model.dead

    async def test_empty_prompt_never_reaches_the_engine(self, remote: Remote) -> None:
        _, error = await failure(remote, ask([]))
        assert (error.status, error.param) == (400, "prompt")
        assert remote.fake.requests == []

    async def test_more_logprobs_than_the_engine_has_are_refused(self, remote: Remote) -> None:
        _, error = await failure(remote, ask(logprobs=remote.engine.info.max_logprobs + 1))
        assert (error.status, error.param) == (400, "top_logprobs")

    async def test_most_logprobs_that_the_engine_has_are_given(self, remote: Remote) -> None:
        chunks = await collect(remote.engine, ask(logprobs=remote.engine.info.max_logprobs))
        entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        assert len(entries) == 12
        likely = [entry for entry in entries if entry.token_id % 7]
        assert {len(entry.top) for entry in likely} == {remote.engine.info.max_logprobs}

    async def test_unlikely_sampled_token_is_not_among_the_most_likely(self, remote: Remote) -> None:
        chunks = await collect(remote.engine, ask(max_tokens=40, logprobs=3))
        entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        unlikely = [entry for entry in entries if entry.token_id % 7 == 0]
        assert unlikely
        for entry in unlikely:
            assert entry.logprob == -30.0
            assert [value for _, value in entry.top] == [-0.5, -1.5, -2.5]

    @pytest.mark.parametrize("schema", ["{", '{"$ref": "#/$defs/unknown"}'])
    async def test_schema_that_does_not_compile_is_a_400_of_the_response_format(
        self, remote: Remote, schema: str
    ) -> None:
        _, error = await failure(remote, ask(constraint=Constraint("json_schema", schema)))
        assert (error.status, error.code, error.param) == (400, "invalid_constraint", "response_format")

    async def test_constraint_that_the_engine_cannot_keep_out_of_the_reasoning_is_refused(self, remote: Remote) -> None:
        assert not remote.engine.info.defers_constraints
        _, error = await failure(remote, ask(constraint=Constraint("json_object"), in_reasoning=True))
        assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "response_format")
        assert remote.fake.requests == []

    async def test_routing_headers_are_passed_on_and_those_of_this_hop_are_not(self, remote: Remote) -> None:
        headers = {"x-smg-routing-key": "k", "Host": "evil", "X-Request-Id": "other", "Authorization": "Bearer x"}
        request = ask(routing=RoutingHints(headers=headers))
        await collect(remote.engine, request)
        (received,) = remote.fake.headers
        assert received["x-smg-routing-key"] == "k"
        assert received["host"] != "evil"
        assert "authorization" not in received

    async def test_requests_that_share_the_clients_id_have_names_of_their_own(self, remote: Remote) -> None:
        """SGLang gets the client's header as it is; vLLM names generations by that header, and gets our name in it."""
        hints = RoutingHints(headers={"X-Request-Id": "shared"})
        asked = [ask(routing=hints), ask(routing=hints)]
        for request in asked:
            await collect(remote.engine, request)
        names = [body.get("rid") or body.get("request_id") for body in remote.fake.requests]
        assert names == [request.request_id for request in asked]
        renames = isinstance(remote.engine, VLLMEngine)
        assert [headers["x-request-id"] for headers in remote.fake.headers] == (names if renames else ["shared"] * 2)

    async def test_leaving_one_of_two_that_share_the_clients_id_aborts_it_alone(self, remote: Remote) -> None:
        hints = RoutingHints(headers={"X-Request-Id": "shared"})
        stays, leaves = ask([LONG, 1], 40, routing=hints), ask([LONG, 2], 3000, routing=hints)
        staying = asyncio.ensure_future(collect(remote.engine, stays))
        await self._cancel(remote, [leaves])
        assert ids_of(await staying) == remote.model.reply_ids([LONG, 1])[:40]
        assert await remote.aborted([leaves.request_id])

    async def test_end_tokens_are_not_ignored_where_a_constraint_ends_the_reply(self, remote: Remote) -> None:
        """Both engines write on behind the end of the grammar."""
        sampling = Sampling(12, temperature=0.0, ignore_eos=True)
        await collect(remote.engine, ask(sampling=sampling, constraint=Constraint("regex", "a")))
        await collect(remote.engine, ask(sampling=sampling))
        assert [body["sampling_params"]["ignore_eos"] for body in remote.fake.requests] == [False, True]

    async def test_extras_are_passed_on_at_both_levels(self, remote: Remote) -> None:
        await collect(remote.engine, ask(extras={"x_custom": 1, "sampling_params": {"stream_interval": 2}}))
        (body,) = remote.fake.requests
        assert body["x_custom"] == 1
        assert body["sampling_params"]["stream_interval"] == 2
        assert body["sampling_params"]["temperature"] == 0.0

    @pytest.mark.parametrize("extras", [{"stream": False}, {"sampling_params": {"temperature": 9}}])
    async def test_extra_that_contradicts_the_request_is_refused(self, remote: Remote, extras: Any) -> None:
        _, error = await failure(remote, ask(extras=extras))
        assert error.status == 400
        assert remote.fake.requests == []
