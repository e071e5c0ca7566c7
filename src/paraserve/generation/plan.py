"""From prompts and options to the engine requests of one reply: one run for each choice of each prompt.

The one place that joins what the prompt, the output format and the engine need to agree on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paraserve.engines.base import Constraint, EngineRequest, MediaItem, RoutingHints, Sampling
from paraserve.formats.output import parser_for
from paraserve.formats.reading.calls import Undeclared
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.generation.choice import Choice, RawText
from paraserve.generation.detokenize import ReplyVocabulary
from paraserve.generation.run import EngineRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPlan:
    """One prompt, where it leaves the model, and the sampling values that fit it."""

    token_ids: Sequence[int]
    sampling: Sampling
    start: ReplyStart = ReplyStart.HEADER
    prefill: str = ""
    media: Sequence[MediaItem] = ()
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPlan:
    """What all choices of a request share.

    Args:
        client_id: the id of the client's request (``X-Request-Id``), for the engine's log.
        tools: declared functions; calls are looked for only when there are any.
        call_index_offset: tool calls that the conversation already has.
        raw: show the text as it is (completions); reasoning is still counted.
        logprobs: alternatives a token, None for none wanted.
    """

    request_id: str
    format: Format
    client_id: str = ""
    tools: Sequence[ToolSpec] = ()
    parallel_tool_calls: bool = True
    call_index_offset: int = 0
    undeclared: Undeclared = "content"
    raw: bool = False
    stop: Sequence[str] = ()
    stop_in_reasoning: bool = True
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: bool = False
    routing: RoutingHints = field(default_factory=RoutingHints)
    extras: Mapping[str, Any] = field(default_factory=dict)


def plan_runs(
    plan: ReplyPlan, prompts: Sequence[PromptPlan], *, n: int, vocabulary: ReplyVocabulary
) -> list[EngineRun]:
    """Runs in the order of their choices: prompt by prompt, ``n`` each.

    A request's seed is moved by one for each further choice of a prompt, so that they differ and still repeat.
    """
    return [
        _run(plan, prompt, index, index % n, vocabulary)
        for index, prompt in enumerate(prompt for prompt in prompts for _ in range(n))
    ]


def _run(plan: ReplyPlan, prompt: PromptPlan, index: int, of_prompt: int, vocabulary: ReplyVocabulary) -> EngineRun:
    sampling = prompt.sampling
    if sampling.seed is not None and of_prompt:
        sampling = replace(sampling, seed=(sampling.seed + of_prompt) % 2**32)
    request = EngineRequest(
        request_id=engine_name(plan.request_id, index, plan.client_id),
        token_ids=prompt.token_ids,
        sampling=sampling,
        constraint=prompt.constraint,
        logprobs=plan.logprobs,
        prompt_logprobs=plan.prompt_logprobs,
        in_reasoning=may_reason(plan.format, prompt.start),
        media=prompt.media,
        routing=plan.routing,
        extras=plan.extras,
    )
    parser = parser_for(plan.format)(
        plan.format,
        tools=plan.tools,
        start=prompt.start,
        prefill=prompt.prefill,
        parse_tool_calls=bool(plan.tools) and not plan.raw,
        parallel_tool_calls=plan.parallel_tool_calls,
        call_index_offset=plan.call_index_offset,
        undeclared=plan.undeclared,
    )
    choice = Choice(
        index,
        detokenizer=vocabulary.detokenizer(plan.skip_special_tokens, before=prompt.token_ids[-1]),
        parser=RawText(parser) if plan.raw else parser,
        end_ids=vocabulary.end_ids.union(sampling.stop_token_ids) if sampling.stop_token_ids else vocabulary.end_ids,
        max_tokens=sampling.max_tokens,
        stop=plan.stop,
        stop_in_reasoning=plan.stop_in_reasoning,
        closers=closing_markers(plan.format) if plan.stop else (),
        logprobs=plan.logprobs is not None,
    )
    return EngineRun(request, choice)


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:-]+|__+")


def engine_name(reply_id: str, index: int, client_id: str) -> str:
    """What a generation is called in its engine: the reply's id, the choice's number, and the client's own id.

    Ours is in front, unique and of one length, because clients may share an id, SGLang aborts whatever begins with a
    given name, and a name that begins as its health probes do is not answered. Of the client's id, what vLLM's
    connectors would read as an address (between runs of underscores) and anything odd becomes a dash.
    """
    ours = f"{reply_id}-{index:04}"
    return f"{ours}.{_NOT_IN_NAMES.sub('-', client_id)}" if client_id else ours


def closing_markers(format: Format) -> frozenset[str]:
    """What ends a call of this format, or the section of calls."""
    texts = (text.strip() for calls in format.calls for text in (calls.close, calls.section_close))
    return frozenset(text for text in texts if text)


def may_reason(format: Format, start: ReplyStart) -> bool:
    """Whether the reply starts inside reasoning or may still open it."""
    if format.reasoning is None and format.channels is None:
        return False
    return start is not ReplyStart.CONTENT
