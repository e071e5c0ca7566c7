"""What every real engine is held to: the contract, greedy replies, the cache, and every kind of constraint it claims.

A subclass gives the fixture ``case``. ``PARASERVE_GREEDY`` names a JSON file of prompts and the ids that another
program made of the same weights (``scripts/greedy_reference.py``). The scripts ``e2e-*.sh`` make all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from paraserve.engines.base import Constraint, ConstraintKind, Engine, RoutingHints, Sampling
from paraserve.engines.llama_cpp.embedded import default_model_path
from paraserve.formats.registry import get_format
from paraserve.formats.types import ToolSpec
from paraserve.grammar import GrammarTarget, tool_call_constraint
from paraserve.tokenizers.gguf import gguf_tokenizer
from tests.engines.contract import EngineCase, EngineContract, collect, ids_of
from tests.engines.remote_faults import ask

REFERENCE = json.loads(Path(os.environ["PARASERVE_GREEDY"]).read_text())
VOCAB: int = REFERENCE["vocab_size"]
EOS: int = REFERENCE["eos_token_id"]
REPLIES: list[dict[str, list[int]]] = REFERENCE["replies"]
ENDED = [reply for reply in REPLIES if reply["ids"][-1] == EOS]
"""A model of random weights has none."""
AGAIN = [token for reply in REPLIES for token in reply["prompt"]] * 4

CONSTRAINTS: dict[ConstraintKind, str] = {
    "json_object": "",
    "json_schema": '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
    "regex": "(yes|no)",
    "ebnf": 'root ::= "yes" | "no"',
    "lark": 'start: "yes" | "no"',
    "structural_tag": '{"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "content": '
    '{"type": "regex", "pattern": "(yes|no)"}, "end": "</a>"}}',
}
BAD: dict[ConstraintKind, str] = {"json_schema": "{", "structural_tag": "no", "regex": "("}
TARGETS: tuple[GrammarTarget, ...] = ("structural_tag", "lark", "ebnf")


def case_of(engine: Engine, running: Callable[[], Awaitable[int]]) -> EngineCase:
    """What the contract asks a real engine."""
    return EngineCase(
        engine,
        prompts=[reply["prompt"] for reply in REPLIES[:3]],
        running=running,
        bad_constraints=[Constraint(kind, value) for kind, value in BAD.items() if kind in engine.info.constraints],
        concurrency=16,
        seconds=300,
    )


class RealEngineContract(EngineContract):
    async def test_greedy_replies_are_those_of_the_reference(self, case: EngineCase) -> None:
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

    @pytest.mark.skipif(not ENDED, reason="no reply of this model ends")
    async def test_end_token_is_the_last_id_and_is_named(self, case: EngineCase) -> None:
        reply = ENDED[0]
        chunks = await collect(case.engine, ask(reply["prompt"], len(reply["ids"]) + 50))
        assert chunks[-1].finish is not None
        assert (chunks[-1].finish.reason, chunks[-1].finish.matched) == ("stop", EOS)
        assert chunks[-1].token_ids[-1] == EOS

    async def test_repeated_prompt_is_cached_for_its_own_salt_and_never_whole(self, case: EngineCase) -> None:
        mine, other = uuid4().hex, uuid4().hex
        cached = []
        for salt in (mine, mine, other):
            chunks = await collect(case.engine, ask(AGAIN, 2, routing=RoutingHints(cache_salt=salt)))
            assert {chunk.prompt_tokens for chunk in chunks} - {None} == {len(AGAIN)}
            cached.append(max(chunk.cached_tokens or 0 for chunk in chunks))
        assert cached[0] == cached[2] == 0 < cached[1] < len(AGAIN)

    @pytest.mark.parametrize("ignore_eos", [False, True])
    @pytest.mark.parametrize("kind", CONSTRAINTS)
    async def test_constraint_of_a_claimed_kind_is_obeyed(
        self, case: EngineCase, kind: ConstraintKind, ignore_eos: bool
    ) -> None:
        """Obeyed is: other tokens than without it, and an end within the grammar or the limit."""
        if kind not in case.engine.info.constraints:
            return
        free = ids_of(await collect(case.engine, ask(REPLIES[0]["prompt"], 40)))
        sampling = Sampling(40, temperature=0.0, ignore_eos=ignore_eos)
        constraint = Constraint(kind, CONSTRAINTS[kind])
        chunks = await collect(case.engine, ask(REPLIES[0]["prompt"], sampling=sampling, constraint=constraint))
        assert ids_of(chunks)[: len(free)] != free
        if kind not in ("json_object", "json_schema"):
            assert chunks[-1].finish is not None
            assert chunks[-1].finish.reason == "stop"
            text = gguf_tokenizer(default_model_path()).decode(ids_of(chunks), skip_special_tokens=True)
            assert text.strip() in ("yes", "no", "<a>yes</a>", "<a>no</a>")

    @pytest.mark.parametrize("target", TARGETS)
    async def test_a_call_is_forced_in_every_claimed_language(self, case: EngineCase, target: GrammarTarget) -> None:
        """EBNF is used where a router in front of SGLang drops structural tags."""
        if target not in case.engine.info.constraints:
            return
        parameters = {"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"]}
        tools = [ToolSpec("get_weather", {**parameters, "additionalProperties": False})]
        tokens = gguf_tokenizer(default_model_path()).added_tokens
        grammar = tool_call_constraint(
            get_format("hermes"), tools, "required", target=target, parallel=False, tokens=tokens
        )
        assert grammar is not None
        constraint = Constraint(target, grammar)
        chunks = await collect(case.engine, ask(REPLIES[0]["prompt"], 80, constraint=constraint))
        text = gguf_tokenizer(default_model_path()).decode(ids_of(chunks), skip_special_tokens=True).strip()
        call = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert (call["name"], call["arguments"].keys()) == ("get_weather", {"wet"})
