"""What SGLang makes of a request to ``/generate``, asked of a server: the same of the fake and of the real one.

``test_sglang_fake.py`` asks the fake, ``scripts/sglang_contract.py`` a running 0.5.23: a rule of the fake that a test
relies on is one of these. A subclass gives the fixture ``server``. Never uses the adapter, which keeps most of it away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from paraserve.engines.http.client import EngineHTTP
from paraserve.engines.http.sse import SSEReader

TAG = json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "yes"}})
GRAMMARS = {
    "json_schema": {"json_schema": '{"type": "boolean"}'},
    "regex": {"regex": "(yes|no)"},
    "ebnf": {"ebnf": 'root ::= "yes" | "no"'},
    "lark": {"ebnf": 'start: "yes" | "no"'},
    "structural_tag": {"structural_tag": TAG},
}
COMPILED = {
    "xgrammar": {"json_schema", "regex", "ebnf", "structural_tag"},
    # It reads EBNF too, by turning it into Lark, which it cannot with all of it.
    "llguidance": {"json_schema", "regex", "ebnf", "lark"},
}


@dataclass
class Answer:
    """What came of one request."""

    status: int = 200
    ids: list[int] = field(default_factory=list)
    finish: str | None = None
    matched: Any = None
    error: str = ""
    """Of an answer that is no stream, an error event, or a finish ``abort`` that has a reason."""
    code: int | None = None


@dataclass
class Served:
    """A running server.

    Args:
        context: tokens of the model's context, which SGLang does not tell.
    """

    http: EngineHTTP
    told: dict[str, Any]
    context: int

    async def ask(self, prompt: Sequence[int] = (5, 6, 7, 8), reply: int = 8, rid: str = "", **params: Any) -> Answer:
        params = {"max_new_tokens": reply, "temperature": 0.0, "ignore_eos": True, **params}
        body = {"rid": rid or uuid4().hex, "input_ids": list(prompt), "sampling_params": params, "stream": True}
        stream = await self.http.stream("/generate", msgspec.json.encode(body), {})
        if stream.status != 200:
            return Answer(stream.status, error=(await stream.body()).decode(), code=stream.status)
        answer, reader = Answer(), SSEReader()
        while received := await stream.read():
            for event in reader.feed(received):
                if event != b"[DONE]":
                    self._take(json.loads(event), answer)
        return answer

    def _take(self, event: dict[str, Any], answer: Answer) -> None:
        if "error" in event:
            answer.error, answer.code = event["error"]["message"], event["error"]["code"]
            return
        meta, new = event["meta_info"], event.get("output_ids", [])
        answer.ids = new if len(new) == meta["completion_tokens"] else answer.ids + new
        if (finish := meta["finish_reason"]) is not None:
            answer.finish, answer.matched = finish["type"], finish.get("matched")
            if finish.get("status_code"):
                answer.error, answer.code, answer.ids = finish["message"], finish["status_code"], []

    def room(self, prompt: int) -> int:
        """Tokens of the longest reply."""
        page, pool = self.told["page_size"], self.told["max_total_num_tokens"]
        pages = -(-prompt // page) + 1
        return max(0, min(self.longest + 4 - prompt, pool - pages * page - 1))

    @property
    def longest(self) -> int:
        refused: int = self.told["max_req_input_len"]
        return refused


class SGLangRules:
    """Inherit, and give the fixture ``server``."""

    async def test_prompt_of_max_req_input_len_is_refused(self, server: Served) -> None:
        answer = await server.ask([5] * server.longest, 1)
        assert answer.code == 400
        said = f"Input length ({server.longest} tokens) exceeds the maximum allowed length ({server.longest} tokens)."
        assert said in answer.error

    async def test_reply_is_cut_without_a_word_where_the_context_or_the_pool_ends(self, server: Served) -> None:
        for prompt in (server.longest - 49, server.longest - 60):
            room = server.room(prompt)
            for reply in (room, min(room + 6, server.context - prompt)):
                answer = await server.ask([5] * prompt, reply)
                assert (len(answer.ids), answer.finish, answer.error) == (room, "length", "")

    async def test_prompt_of_the_whole_context_is_refused_before_it_runs(self, server: Served) -> None:
        answer = await server.ask([5] * server.context, 1)
        assert answer.code == 400
        assert f"({server.context} tokens) is longer than the model's context length" in answer.error

    async def test_prompt_and_limit_over_the_context_are_refused(self, server: Served) -> None:
        answer = await server.ask([5] * 10, server.context - 9)
        assert answer.code == 400
        assert f"exceeds the model's maximum context length of {server.context} tokens" in answer.error

    async def test_stop_ids_are_not_looked_for_where_end_tokens_are_ignored(self, server: Served) -> None:
        free = (await server.ask()).ids
        stop = free[3]
        heeded = await server.ask(stop_token_ids=[stop], ignore_eos=False)
        assert (heeded.ids, heeded.finish, heeded.matched) == (free[: free.index(stop) + 1], "stop", stop)
        assert (await server.ask(stop_token_ids=[stop])).ids == free

    async def test_seeds_are_read_where_the_server_is_deterministic_only(self, server: Served) -> None:
        replies = [(await server.ask(temperature=1.0, sampling_seed=7)).ids for _ in range(2)]
        assert (replies[0] == replies[1]) is server.told["enable_deterministic_inference"]

    async def test_unknown_sampling_parameter_is_an_answer_and_no_stream(self, server: Served) -> None:
        assert (await server.ask(unknown_to_sglang=True)).status == 400

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -1.0), ("top_p", 0.0), ("top_p", 1.1), ("min_p", 2.0), ("frequency_penalty", 3.0),
            ("presence_penalty", -3.0), ("repetition_penalty", 0.0), ("repetition_penalty", 2.5),
            ("min_new_tokens", 9),
        ],
    )  # fmt: skip
    async def test_wrong_value_is_an_event_that_names_its_field(self, server: Served, name: str, value: float) -> None:
        answer = await server.ask(**{name: value})
        assert (answer.status, answer.code) == (200, 400)
        assert name in answer.error

    async def test_empty_prompt_is_refused(self, server: Served) -> None:
        answer = await server.ask([])
        assert (answer.code, answer.ids) == (400, [])

    async def test_one_grammar_is_the_most(self, server: Served) -> None:
        answer = await server.ask(**GRAMMARS["regex"], **GRAMMARS["ebnf"])
        assert (answer.code, "Only one of" in answer.error) == (400, True)

    @pytest.mark.parametrize("kind", GRAMMARS)
    async def test_grammars_are_those_of_the_backend_and_none_without_a_tokenizer(
        self, server: Served, kind: str
    ) -> None:
        compiled = () if server.told["skip_tokenizer_init"] else COMPILED[server.told["grammar_backend"]]
        answer = await server.ask(ignore_eos=False, **GRAMMARS[kind])
        if kind in compiled:
            assert answer.error == ""
        else:
            assert (answer.code, answer.ids) == (400, [])
            assert "grammar" in answer.error.lower()

    @pytest.mark.parametrize("bad", [{"json_schema": "{"}, {"json_schema": '{"$ref": "#/$defs/unknown"}'}])
    async def test_grammar_that_does_not_compile_is_refused(self, server: Served, bad: dict[str, str]) -> None:
        answer = await server.ask(**bad)
        assert (answer.code, answer.ids) == (400, [])
        assert "grammar" in answer.error.lower()

    async def test_end_tokens_are_held_back_by_a_tokenizer_only(self, server: Served) -> None:
        answer = await server.ask(min_new_tokens=4)
        if server.told["skip_tokenizer_init"]:
            assert (answer.code, "min_new_tokens" in answer.error) == (400, True)
        else:
            assert len(answer.ids) == 8

    async def test_limit_of_no_tokens_is_an_empty_reply(self, server: Served) -> None:
        answer = await server.ask(reply=0)
        assert (answer.ids, answer.finish, answer.error) == ([], "length", "")

    async def test_aborted_reply_ends_as_its_front_end_says_it(self, server: Served) -> None:
        rid = uuid4().hex
        running = asyncio.ensure_future(server.ask(reply=server.context - 100, rid=rid))
        while not running.done():
            await server.http.post("/abort_request", {"rid": rid})
            await asyncio.wait({running}, timeout=0.2)
        answer = running.result()
        if server.told.get("frontend") == "rust":
            assert (answer.code, answer.finish) == (499, None)
        else:
            assert (answer.finish, answer.code) == ("abort", None)
