"""What vLLM makes of a request to ``/inference/v1/generate``: the same asked of the fake and of the real one.

``test_vllm_fake.py`` asks the fake, ``scripts/vllm_contract.py`` a running 0.32: a rule of the fake that a test relies
on is one of these. A subclass gives the fixture ``server``. Never uses the adapter, which keeps most of it away.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from paraserve.engines.http.client import EngineHTTP
from paraserve.engines.http.sse import SSEReader
from tests.fakes.vllm_checks import Limits


@dataclass
class Answer:
    status: int = 200
    ids: list[int] = field(default_factory=list)
    finish: str | None = None
    stop: Any = None
    error: str = ""
    """Of an answer that is no stream, or of an error event."""


@dataclass
class Served:
    http: EngineHTTP
    limits: Limits

    async def ask(self, prompt: Sequence[int] = (5, 6, 7, 8), reply: int = 8, **params: Any) -> Answer:
        params = {"max_tokens": reply, "temperature": 0.0, "ignore_eos": True, "detokenize": False, **params}
        body = {"request_id": uuid4().hex, "token_ids": list(prompt), "sampling_params": params, "stream": True}
        stream = await self.http.stream("/inference/v1/generate", msgspec.json.encode(body), {})
        if stream.status != 200:
            return Answer(stream.status, error=(await stream.body()).decode())
        answer, reader = Answer(), SSEReader()
        while received := await stream.read():
            for event in reader.feed(received):
                if event != b"[DONE]":
                    self._take(json.loads(event), answer)
        return answer

    def _take(self, event: dict[str, Any], answer: Answer) -> None:
        if "error" in event:
            assert event["error"]["code"] == 400
            answer.error = event["error"]["message"]
        for choice in event.get("choices", ()):
            answer.ids += choice["token_ids"] or []
            if choice["finish_reason"]:
                answer.finish, answer.stop = choice["finish_reason"], choice["stop_reason"]


class VLLMRules:
    """Inherit, and give the fixture ``server``."""

    async def test_prompt_of_the_whole_context_or_more_is_an_event(self, server: Served) -> None:
        longest = server.limits.max_model_len
        for prompt in (longest, longest + 1):
            answer = await server.ask([5] * prompt, 1)
            assert (answer.status, answer.ids) == (200, [])
            assert f"longer than the maximum model length of {longest}" in answer.error
        assert len((await server.ask([5] * (longest - 1), 1)).ids) == 1

    async def test_limit_beyond_the_context_is_taken_and_cut_without_a_word(self, server: Served) -> None:
        answer = await server.ask([5] * (server.limits.max_model_len - 20), 100)
        assert (len(answer.ids), answer.finish, answer.error) == (20, "length", "")

    async def test_stop_ids_hold_where_end_tokens_are_ignored(self, server: Served) -> None:
        free = (await server.ask()).ids
        stop = free[3]
        answer = await server.ask(stop_token_ids=[stop])
        assert (answer.ids, answer.finish, answer.stop) == (free[: free.index(stop) + 1], "stop", stop)

    async def test_seed_repeats_a_reply(self, server: Served) -> None:
        replies = [(await server.ask(temperature=1.0, seed=seed)).ids for seed in (7, 7, 8)]
        assert replies[0] == replies[1] != replies[2]

    async def test_unknown_sampling_parameter_is_ignored(self, server: Served) -> None:
        assert len((await server.ask(unknown_to_vllm=True)).ids) == 8

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -1.0), ("temperature", 2.5), ("top_p", 0.0), ("top_p", 1.1), ("min_p", 2.0),
            ("frequency_penalty", 3.0), ("presence_penalty", -3.0), ("repetition_penalty", 0.0), ("min_tokens", 9),
            ("max_tokens", 0), ("structured_outputs", {"regex": "a", "json": "{}"}),
        ],
    )  # fmt: skip
    async def test_wrong_value_is_answered_with_400(self, server: Served, name: str, value: Any) -> None:
        answer = await server.ask(**{name: value})
        assert answer.status == 400
        assert name.partition("_")[0] in answer.error

    @pytest.mark.parametrize("prompt", [[], [5, -1]])
    async def test_prompt_that_is_none_is_answered_with_400(self, server: Served, prompt: list[int]) -> None:
        assert (await server.ask(prompt)).status == 400

    async def test_ids_beyond_the_vocabulary_and_too_many_alternatives_are_events(self, server: Served) -> None:
        beyond = server.limits.vocab
        for answer in (
            await server.ask([5, beyond]),
            await server.ask(stop_token_ids=[beyond]),
            await server.ask(logit_bias={str(beyond): 1.0}),
            await server.ask(logprobs=server.limits.max_logprobs + 1),
        ):
            assert (answer.status, answer.ids) == (200, [])
            assert answer.error

    @pytest.mark.parametrize("bad", [{"json": "{"}, {"json": '{"$ref": "#/$defs/unknown"}'}, {"structural_tag": "no"}])
    async def test_grammar_that_does_not_compile_is_an_event(self, server: Served, bad: dict[str, str]) -> None:
        answer = await server.ask(structured_outputs=bad)
        assert (answer.status, answer.ids) == (200, [])
        assert "grammar" in answer.error.lower()
