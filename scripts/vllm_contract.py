"""The engine contract, and vLLM's own facts, against a real vLLM server: ``pytest scripts/vllm_contract.py``.

``PARASERVE_VLLM_URL`` says where it listens, ``PARASERVE_VLLM_GREEDY`` names a JSON file of prompts and the ids that
another program made of the same weights (``scripts/greedy_reference.py``). ``scripts/e2e-vllm.sh`` makes all of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from uuid import uuid4

import pytest

from paraserve.engines.base import Constraint, EngineError, EngineRequest, RoutingHints, Sampling
from paraserve.engines.http.remote import EventDecoder, ModelFacts
from paraserve.engines.llama_cpp.embedded import default_model_path
from paraserve.engines.vllm.engine import VLLMEngine
from paraserve.formats.registry import get_format
from paraserve.formats.types import ToolSpec
from paraserve.generation.plan import engine_name
from paraserve.grammar import tool_call_constraint
from paraserve.tokenizers.gguf import gguf_tokenizer
from tests.engines.contract import EngineCase, EngineContract, collect, idle, ids_of
from tests.engines.remote_faults import ask

URL = os.environ["PARASERVE_VLLM_URL"]
REFERENCE = json.loads(Path(os.environ["PARASERVE_VLLM_GREEDY"]).read_text())
VOCAB: int = REFERENCE["vocab_size"]
EOS: int = REFERENCE["eos_token_id"]
REPLIES: list[dict[str, list[int]]] = REFERENCE["replies"]


@pytest.fixture
async def case() -> AsyncIterator[EngineCase]:
    engine = VLLMEngine(URL, ModelFacts(VOCAB, eos_token_ids=frozenset({EOS})))
    await engine.start()

    async def running() -> int:
        told = (await engine.http.get("/metrics")).body.decode()
        found = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([0-9.e+]+)$", told, re.MULTILINE)
        assert found
        return int(sum(map(float, found)))

    yield EngineCase(
        engine,
        prompts=[reply["prompt"] for reply in REPLIES[:3]],
        running=running,
        bad_constraints=[Constraint("json_schema", "{"), Constraint("structural_tag", "no"), Constraint("regex", "(")],
        concurrency=16,
        seconds=300,
    )
    await engine.stop()


class TestRealVLLM(EngineContract):
    pass


async def test_greedy_replies_are_those_of_the_reference(case: EngineCase) -> None:
    """Token by token, up to the first place where the two best are closer than float32 tells apart."""
    for reply in REPLIES:
        wanted = reply["ids"]
        chunks = await collect(case.engine, ask(reply["prompt"], len(wanted), logprobs=2))
        got = ids_of(chunks)
        entries = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        differs = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), None)
        print(f"{len(wanted)} tokens, first difference: {differs}")
        if differs is not None:
            (_, best), (_, second) = entries[differs].top
            assert best - second < 1e-3, (differs, entries[differs])


async def test_end_token_is_the_last_id_and_is_named(case: EngineCase) -> None:
    reply = next(reply for reply in REPLIES if reply["ids"][-1] == EOS)
    chunks = await collect(case.engine, ask(reply["prompt"], len(reply["ids"]) + 50))
    assert chunks[-1].finish is not None
    assert (chunks[-1].finish.reason, chunks[-1].finish.matched) == ("stop", EOS)
    assert chunks[-1].token_ids[-1] == EOS


async def test_repeated_prompt_is_cached_and_never_whole(case: EngineCase) -> None:
    prompt = [token for reply in REPLIES for token in reply["prompt"]] * 4
    await collect(case.engine, ask(prompt, 2))
    *_, last = await collect(case.engine, ask(prompt, 2))
    assert last.prompt_tokens == len(prompt)
    assert last.cached_tokens is not None
    assert 0 < last.cached_tokens < len(prompt)


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("json_object"),
        Constraint("json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'),
        Constraint("regex", "(yes|no)"),
        Constraint("ebnf", 'root ::= "yes" | "no"'),
        Constraint(
            "structural_tag",
            '{"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": '
            '{"type": "regex", "pattern": "(yes|no)"}, "end": "</a>"}}',
        ),
    ],
    ids=lambda constraint: constraint.kind,
)
async def test_constraint_is_obeyed(case: EngineCase, constraint: Constraint) -> None:
    """Obeyed is: other tokens than without it, and an end within the grammar or the limit."""
    prompt = REPLIES[0]["prompt"]
    free = ids_of(await collect(case.engine, ask(prompt, 40)))
    chunks = await collect(case.engine, ask(prompt, 40, constraint=constraint))
    assert ids_of(chunks)[: len(free)] != free
    assert chunks[-1].finish is not None
    if constraint.kind not in ("json_object", "json_schema"):
        assert chunks[-1].finish.reason == "stop"
        assert len(ids_of(chunks)) < 20


class Watched(VLLMEngine):
    """Keeps the decoders, which know the names that vLLM gave."""

    def __init__(self) -> None:
        super().__init__(URL, ModelFacts(VOCAB, eos_token_ids=frozenset({EOS})))
        self.decoders: list[EventDecoder] = []

    def decoder(self, request: EngineRequest) -> EventDecoder:
        self.decoders.append(super().decoder(request))
        return self.decoders[-1]


async def test_abort_finds_one_of_two_generations_whose_clients_share_an_id(case: EngineCase) -> None:
    """By the name that vLLM gives, which has its prefix, ours and the client's id. No other one does anything, though
    it is answered 200."""
    engine = Watched()
    await engine.start()
    hints = RoutingHints(headers={"x-request-id": "job_7"})
    sampling = Sampling(1500, temperature=0.0, ignore_eos=True)
    names = [engine_name(f"chatcmpl-{uuid4().hex}", 0, "job_7") for _ in range(2)]
    requests = [EngineRequest(name, REPLIES[0]["prompt"], sampling, routing=hints) for name in names]
    async with aclosing(engine.generate(requests[0])) as stays, aclosing(engine.generate(requests[1])) as leaves:
        await asyncio.gather(anext(stays), anext(leaves))
        assert [decoder.name for decoder in engine.decoders] == [f"generate-tokens-{name}" for name in names]
        await engine.http.post(engine.abort_path, {"request_ids": [*names, "job_7", "generate-tokens-job_7"]})
        await asyncio.gather(anext(stays), anext(leaves))
        assert await case.running() == 2
        await engine.http.post(engine.abort_path, engine.abort_body(engine.name(requests[1])))
        ends = [chunk.finish async for chunk in leaves if chunk.finish is not None]
        assert [end.reason for end in ends] == ["abort"]
        for _ in range(50):  # the metric lags behind
            await anext(stays)
            if await case.running() == 1:
                break
        assert await case.running() == 1
    assert await idle(case)
    await engine.stop()


async def test_unknown_model_is_the_clients_error(case: EngineCase) -> None:
    with pytest.raises(EngineError) as caught:
        await collect(case.engine, ask(REPLIES[0]["prompt"], routing=RoutingHints(lora="nobody")))
    assert (caught.value.status, caught.value.param) == (404, "model")


async def test_a_call_is_forced_by_ebnf_as_behind_a_router_that_drops_structural_tags(case: EngineCase) -> None:
    """SGLang has the same compiler behind its ``ebnf``; there it is used where no structural tag gets through."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    tools = [ToolSpec("get_weather", {**schema, "additionalProperties": False})]
    grammar = tool_call_constraint(get_format("hermes"), tools, "required", target="ebnf", parallel=False)
    assert grammar is not None
    chunks = await collect(case.engine, ask(REPLIES[0]["prompt"], 80, constraint=Constraint("ebnf", grammar)))
    text = gguf_tokenizer(default_model_path()).decode(ids_of(chunks), skip_special_tokens=True).strip()
    call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert call["name"] == "get_weather"
    assert call["arguments"].keys() == {"city"}


async def test_a_prompt_is_cached_for_its_own_salt_only(case: EngineCase) -> None:
    prompt = [token for reply in REPLIES for token in reply["prompt"]] * 4
    mine, other = uuid4().hex, uuid4().hex
    cached = []
    for salt in (mine, mine, other):
        *_, last = await collect(case.engine, ask(prompt, 2, routing=RoutingHints(cache_salt=salt)))
        cached.append(last.cached_tokens or 0)
    assert cached[0] == cached[2] == 0 < cached[1]
