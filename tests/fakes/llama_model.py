"""A real small model behind a fake SGLang server: the embedded llama.cpp makes the tokens.

For what needs replies that mean something (the server's end-to-end suite) in front of SGLang's wire or its router.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from paraserve.engines.base import Constraint, ConstraintKind, EngineError, EngineRequest, Sampling, TokenLogprob
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from tests.engines.contract import Chunks
from tests.fakes.sequences import FakeModel, Step

_KINDS: tuple[ConstraintKind, ...] = ("json_schema", "regex", "ebnf", "structural_tag")


@dataclass(kw_only=True)
class LlamaModel(FakeModel):
    """``params`` of a sequence are SGLang's sampling parameters, and its ``return_logprob`` and the like."""

    engine: LlamaCppEngine

    async def _run(self, prompt: list[int], params: dict[str, Any], steps: asyncio.Queue[Step]) -> None:
        ids: list[int] = []
        scored: list[TokenLogprob] = []
        scored_prompt: Sequence[TokenLogprob | None] | None = None
        cached: int | None = None
        try:
            async with aclosing(Chunks(self.engine, request_of(prompt, params))) as chunks:
                async for chunk in chunks:
                    scored_prompt = chunk.prompt_logprobs or scored_prompt
                    cached = chunk.cached_tokens if cached is None else cached
                    ids, new = [*ids, *chunk.token_ids], list(chunk.token_ids)
                    scored = [*scored, *(chunk.logprobs or ())]
                    reason = chunk.finish.reason if chunk.finish else None
                    step = Step(new, ids, reason, chunk.finish.matched if chunk.finish else None)
                    step.scored, step.scored_prompt, step.cached = scored, scored_prompt, cached
                    steps.put_nowait(step)
        except asyncio.CancelledError:
            steps.put_nowait(Step([], ids, "abort"))
        except EngineError as error:
            steps.put_nowait(Step([], ids, refused=(error.status, error.message)))


def request_of(prompt: Sequence[int], params: dict[str, Any]) -> EngineRequest:
    scored = bool(params.get("return_logprob"))
    return EngineRequest(
        uuid4().hex,
        prompt,
        Sampling(
            params["max_tokens"],
            temperature=params["temperature"],
            top_p=params["top_p"],
            top_k=max(params["top_k"], 0),
            min_p=params["min_p"],
            presence_penalty=params["presence_penalty"],
            frequency_penalty=params["frequency_penalty"],
            repetition_penalty=params["repetition_penalty"],
            seed=params.get("seed"),
            stop_token_ids=tuple(params["stop_token_ids"]),
            logit_bias={int(token): bias for token, bias in (params.get("logit_bias") or {}).items()},
            ignore_eos=params["ignore_eos"],
            min_tokens=params["min_new_tokens"],
        ),
        constraint_of(params),
        logprobs=params["top_logprobs_num"] if scored else None,
        prompt_logprobs=scored and params["logprob_start_len"] == 0,
    )


def constraint_of(params: dict[str, Any]) -> Constraint | None:
    kind = next((kind for kind in _KINDS if params.get(kind)), None)
    if kind == "structural_tag":
        return Constraint("ebnf", _Flat().text(json.loads(params[kind])["format"]))
    return None if kind is None else Constraint(kind, params[kind])


class _Flat:
    """A structural tag as one EBNF grammar. Free text holds no first character of what it must not hold."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def text(self, node: dict[str, Any]) -> str:
        root = self.expression(node)
        return "\n".join([f"root ::= {root}", *self.lines])

    def expression(self, node: dict[str, Any]) -> str:
        match node:
            case {"type": "const_string", "value": value}:
                return json.dumps(value, ensure_ascii=False)
            case {"type": "grammar", "grammar": grammar}:
                return self.imported(grammar)
            case {"type": "any_text", "excludes": words}:
                firsts = "".join(f"\\u{ord(word[0]):04x}" for word in words)
                return f"[^{firsts}]*"
            case {"type": "sequence", "elements": items}:
                return " ".join(map(self.expression, items))
            case {"type": "or", "elements": items}:
                return "(" + " | ".join(map(self.expression, items)) + ")"
            case {"type": "optional" | "star" | "plus" as many, "content": item}:
                return f"({self.expression(item)})" + {"optional": "?", "star": "*", "plus": "+"}[many]
            case {"type": "repeat", "min": least, "max": most, "content": item}:
                return f"({self.expression(item)}){{{least},{'' if most < 0 else most}}}"
        raise AssertionError(f"no such node: {node}")

    def imported(self, grammar: str) -> str:
        """The rules of another grammar under names of their own; the name of its root."""
        prefix = f"g{len(self.lines)}"
        token = r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{[\d,]*\}|[A-Za-z]\w*'
        for line in grammar.splitlines():
            self.lines.append(
                re.sub(token, lambda found: found[0] if not found[0][0].isalpha() else prefix + found[0], line)
            )
        return f"{prefix}root"
