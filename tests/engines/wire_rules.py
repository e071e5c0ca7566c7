"""What the schedulers of engines do not survive, do not check, or answer with an error that says nothing: never sent.

Asked of the adapters before fakes and, by ``scripts/*_wire_contract.py``, before the real ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paraserve.engines.base import Constraint, Engine, EngineRequest, RoutingHints, Sampling
from tests.engines.contract import EngineCase
from tests.engines.remote_faults import ask
from tests.fakes.sequences import SLOW


def played_case(engine: Engine, running: Callable[[], Awaitable[int]]) -> EngineCase:
    """What the contract asks an adapter whose scheduler is played."""
    return EngineCase(
        engine,
        prompts=[[1, 2, 3], [4, 5, 6], [7, 8, 9]],
        running=running,
        slow_prompt=[SLOW, 1],
        capacity=32,
        bad_constraints=[
            Constraint("json_schema", "{"),
            Constraint("structural_tag", "no"),
            Constraint("regex", "("),
        ],
        concurrency=32,
    )


def deadly(vocab: int, context: int) -> list[tuple[EngineRequest, str]]:
    """Requests to any engine, each with the field that is to blame."""
    return [
        (ask([]), "prompt"),
        (ask([1, vocab, 2]), "prompt"),
        (ask([-1]), "prompt"),
        (ask([1] * context, 1), "prompt"),
        (ask([1] * 4 * context), "prompt"),
        (ask([1] * (context - 96), 97), "max_tokens"),
        (ask(sampling=Sampling(4, stop_token_ids=(vocab,))), "stop_token_ids"),
        (ask(sampling=Sampling(4, logit_bias={vocab: 1.0})), "logit_bias"),
        (ask(sampling=Sampling(4, min_tokens=5)), "min_tokens"),
        (ask(sampling=Sampling(4, min_tokens=-1)), "min_tokens"),
        (ask(sampling=Sampling(4, temperature=-0.5)), "temperature"),
        (ask(sampling=Sampling(4, temperature=float("nan"))), "temperature"),
        (ask(sampling=Sampling(4, temperature=float("inf"))), "temperature"),
        (ask(sampling=Sampling(4, top_p=0.0)), "top_p"),
        (ask(sampling=Sampling(4, top_k=-2)), "top_k"),
        (ask(sampling=Sampling(4, min_p=1.5)), "min_p"),
        (ask(sampling=Sampling(4, presence_penalty=-3.0)), "presence_penalty"),
        (ask(sampling=Sampling(4, frequency_penalty=3.0)), "frequency_penalty"),
        (ask(sampling=Sampling(4, repetition_penalty=0.0)), "repetition_penalty"),
        (ask(sampling=Sampling(4, repetition_penalty=float("inf"))), "repetition_penalty"),
        (ask(sampling=Sampling(4, seed=2**63)), "seed"),
        (ask(logprobs=21), "top_logprobs"),
        (ask(routing=RoutingHints(data_parallel_rank=1)), "data_parallel_rank"),
        (ask(constraint=Constraint("lark", "start: x")), "response_format"),
    ]


def deadly_to_vllm(vocab: int, context: int) -> list[tuple[EngineRequest, str]]:
    return [
        *deadly(vocab, context),
        (ask(sampling=Sampling(0)), "max_tokens"),
        (ask(sampling=Sampling(4, temperature=2.5)), "temperature"),
        (ask(prompt_logprobs=True, logprobs=0), "echo"),
        (ask(constraint=Constraint("ebnf", " ")), "response_format"),
        (ask(constraint=Constraint("structural_tag", "")), "response_format"),
        (ask(constraint=Constraint("regex", "a\0")), "response_format"),
        (ask(constraint=Constraint("json_schema", '{"a":' * 70 + "1" + "}" * 70)), "response_format"),
        (ask(constraint=Constraint("json_schema", "[" * 100_000)), "response_format"),
    ]
