"""``POST /v1/chat/completions``: one function for each step of a request's way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp

from paraserve.api.body import read_body
from paraserve.api.common import (
    attributed,
    check_logprobs,
    check_stream_options,
    deployment_of,
    engine_extras,
    limited_sampling,
    reply_id,
    reply_options,
    routing_hints,
    usage_shape,
    wants_continuous_usage,
    wants_usage,
)
from paraserve.api.encoders.chat import ChatFold, ChatReplyShape, ChatStream
from paraserve.api.observed import record_of
from paraserve.api.replies import check_admission, streamed, whole
from paraserve.engines.base import Constraint, Sampling
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.generation.constraint import Wanted
from paraserve.generation.plan import PromptPlan, ReplyPlan, plan_runs
from paraserve.generation.run import run_reply
from paraserve.policies.base import PolicyLedger, ReplyRules
from paraserve.prompt.chat import ChatPromptRequest, PreparedPrompt
from paraserve.protocol.chat import ChatCompletionRequest, decode_chat
from paraserve.protocol.errors import RequestError
from paraserve.protocol.tools import CHOICE_WORDS, check_tools, tool_choice_in_force
from paraserve.protocol.unserved import check_served

if TYPE_CHECKING:
    from paraserve.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A chat request on its way: as the policies left it, with what the later steps need to know."""

    deployment: Deployment
    request: ChatCompletionRequest
    rules: ReplyRules
    ledger: PolicyLedger
    tools: Sequence[ToolSpec]
    """Empty where the model shall not call any (``tool_choice: none``)."""
    choice: str
    """``auto``, ``required``, ``none`` or the name of a function."""


async def create_chat_completion(request: Request) -> ASGIApp:
    deployment = deployment_of(request)
    body = await read_body(request, deployment.settings.max_body_size)
    sent = decode_chat(body)
    record = record_of(request.scope)
    record.read(deployment.asked_model(sent.model), stream=bool(sent.stream))
    model = deployment.model_name(sent.model)
    check_stream_options(sent, deployment)
    check_admission(request)
    turn = begin_turn(deployment, sent)
    with attributed(turn.ledger, turn.rules):
        prompt = await prepare_prompt(turn)
        sampling = _sampling(turn, prompt)
        constraint = await _constraint(turn, prompt)
        plan = _plan(turn, prompt, request, body)
        prompts = [
            PromptPlan(
                token_ids=prompt.token_ids,
                sampling=sampling,
                start=prompt.start,
                prefill=prompt.prefill,
                media=prompt.media,
                constraint=constraint,
            )
        ]
        n = turn.request.n or 1
        runs = plan_runs(plan, prompts, n=n, vocabulary=deployment.vocabulary)
        shape = _shape(turn, plan.request_id, model, len(prompt.token_ids))
        options = reply_options(deployment, turn.request, turn.rules, turn.ledger)
        turn.ledger.log(plan.request_id)
        record.begin(plan.request_id, runs, turn.ledger, normalizations=prompt.normalizations)
        run = partial(run_reply, deployment.engine, runs)
        if turn.request.stream:
            return await streamed(request, run, ChatStream(shape, n), options)
        return await whole(request, run, ChatFold(shape, n), options)


def begin_turn(deployment: Deployment, sent: ChatCompletionRequest) -> ChatTurn:
    """The request as the policies in force want it."""
    check_served(sent, deployment.settings.engine_extra_fields)
    policies = deployment.policies.on("chat")
    request, ledger = policies.apply(sent)
    with attributed(ledger, policies.rules):
        functions = check_tools(request.tools)
        choice = tool_choice_in_force(request.tool_choice, functions)
    strictness = deployment.settings.tool_strictness
    tools = [
        ToolSpec(f.name, f.parameters or {}, strictness == "always" or (strictness == "requested" and bool(f.strict)))
        for f in functions
    ]
    return ChatTurn(deployment, request, policies.rules, ledger, tools if choice != "none" else [], choice)


async def prepare_prompt(turn: ChatTurn) -> PreparedPrompt:
    """The prompt that the model reads. Raises `PromptError` or `RequestError`."""
    request, chat = turn.request, turn.deployment.chat
    if chat is None:
        raise RequestError(
            "This model has no chat template: use /v1/completions, or start the server with --chat-template.",
            code="chat_template_missing",
        )
    return await chat.prepare_async(
        ChatPromptRequest(
            messages=request.messages,
            tools=request.tools if turn.tools else None,
            template_kwargs=request.chat_template_kwargs or {},
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=bool(request.continue_final_message),
            reasoning_effort=request.reasoning_effort,
            documents=request.documents,
        )
    )


def _sampling(turn: ChatTurn, prompt: PreparedPrompt) -> Sampling:
    param, requested = turn.request.output_limit
    return limited_sampling(
        turn.deployment,
        turn.request,
        turn.rules,
        turn.ledger,
        prompt_tokens=len(prompt.token_ids),
        requested=requested,
        default=turn.rules.default_max_tokens,
        param=param,
    )


async def _constraint(turn: ChatTurn, prompt: PreparedPrompt) -> Constraint | None:
    """What the reply must match. Raises `RequestError` where it cannot be enforced."""
    request = turn.request
    wanted = Wanted(
        response_format=request.response_format,
        regex=request.regex,
        ebnf=request.ebnf,
        tools=turn.tools,
        choice=turn.choice,
        parallel=request.parallel_tool_calls is not False,
        start=prompt.start,
    )
    constraint = await turn.deployment.constraints.build(wanted)
    if constraint is not None and _answer_begun(turn.deployment.format, prompt):
        raise RequestError(
            f"continue_final_message: the answer has begun, and {constraint.param} can only be enforced from its start",
            param="continue_final_message",
            code="unsupported_parameter",
        )
    return constraint


def _answer_begun(format: Format, prompt: PreparedPrompt) -> bool:
    """Whether the prompt already holds a part of the answer: more than reasoning."""
    if not prompt.prefill.strip() or prompt.start is ReplyStart.REASONING:
        return False
    return format.reasoning is None or not prompt.prefill.rstrip().endswith(format.reasoning.close.strip())


def _plan(turn: ChatTurn, prompt: PreparedPrompt, http: Request, body: bytes) -> ReplyPlan:
    deployment, request, rules = turn.deployment, turn.request, turn.rules
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    check_logprobs(logprobs, deployment, "top_logprobs")
    if request.stop_strings and prompt.thinking.enabled:
        turn.ledger.used("stop_in_reasoning", True, rules.stop_in_reasoning)
    return ReplyPlan(
        request_id=reply_id("chatcmpl"),
        client_id=record_of(http.scope).id,
        format=deployment.format,
        tools=turn.tools,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        call_index_offset=sum(len(message.get("tool_calls") or ()) for message in request.messages),
        undeclared=deployment.settings.undeclared_tools,
        stop=request.stop_strings,
        stop_in_reasoning=rules.stop_in_reasoning,
        skip_special_tokens=request.skip_special_tokens is not False,
        logprobs=logprobs,
        routing=routing_hints(request, http),
        extras=engine_extras(body, request, deployment),
    )


def _shape(turn: ChatTurn, request_id: str, model: str, prompt_tokens: int) -> ChatReplyShape:
    deployment, request, rules = turn.deployment, turn.request, turn.rules
    return ChatReplyShape(
        id=request_id,
        model=model,
        created=int(time.time()),
        prompt_tokens=prompt_tokens,
        usage=usage_shape(deployment, rules),
        token_bytes=deployment.tokenizer.token_bytes,
        logprobs=bool(request.logprobs),
        named_tool=deployment.settings.named_tool_finish_reason == "stop" and turn.choice not in CHOICE_WORDS,
        include_usage=wants_usage(request, rules),
        usage_in_last_choice=rules.stream_usage == "last-choice" and wants_usage(request, rules),
        continuous_usage=wants_continuous_usage(request),
    )
