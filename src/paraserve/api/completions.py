"""``POST /v1/completions``, the legacy text endpoint."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial

from starlette.requests import Request
from starlette.types import ASGIApp

from paraserve.api.body import read_body
from paraserve.api.common import (
    attributed,
    check_logprobs,
    check_stream_options,
    check_token_ids,
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
from paraserve.api.encoders.completions import CompletionFold, CompletionReplyShape, CompletionStream, EchoedPrompt
from paraserve.api.observed import record_of
from paraserve.api.replies import check_admission, streamed, whole
from paraserve.deployment import Deployment
from paraserve.generation.constraint import Wanted
from paraserve.generation.plan import PromptPlan, ReplyPlan, may_reason, plan_runs
from paraserve.generation.run import run_reply
from paraserve.policies.base import PolicyLedger, ReplyRules
from paraserve.protocol.completions import DEFAULT_MAX_TOKENS, CompletionRequest, decode_completion
from paraserve.protocol.errors import RequestError
from paraserve.protocol.unserved import check_served

MAX_CHOICES = 1024
"""The most choices (prompts times ``n``) of one request."""


async def create_completion(request: Request) -> ASGIApp:
    deployment = deployment_of(request)
    body = await read_body(request, deployment.settings.max_body_size)
    sent = decode_completion(body)
    record = record_of(request.scope)
    record.read(deployment.asked_model(sent.model), stream=bool(sent.stream))
    model = deployment.model_name(sent.model)
    check_stream_options(sent, deployment)
    check_admission(request)
    check_served(sent, deployment.settings.engine_extra_fields)
    policies = deployment.policies.on("completions")
    asked, ledger = policies.apply(sent)
    with attributed(ledger, policies.rules):
        n = asked.n or 1
        if len(asked.prompts) * n > MAX_CHOICES:
            raise RequestError(
                f"prompt: more than {MAX_CHOICES} choices in one request", param="prompt", code="invalid_value"
            )
        prompts = [
            await _prompt_plan(deployment, asked, token_ids, policies.rules, ledger)
            for token_ids in await _prompt_ids(deployment, asked)
        ]
        plan = _reply_plan(deployment, asked, policies.rules, request, body)
        runs = plan_runs(plan, prompts, n=n, vocabulary=deployment.vocabulary)
        shape = _shape(deployment, asked, plan.request_id, model, prompts, policies.rules)
        if asked.stop_strings and any(may_reason(deployment.format, prompt.start) for prompt in prompts):
            ledger.used("stop_in_reasoning", True, policies.rules.stop_in_reasoning)
        options = reply_options(deployment, asked, policies.rules, ledger)
        ledger.log(plan.request_id)
        record.begin(plan.request_id, runs, ledger, prompts=len(prompts))
        run = partial(run_reply, deployment.engine, runs, prompts=len(prompts))
        if asked.stream:
            return await streamed(request, run, CompletionStream(shape, len(runs)), options)
        return await whole(request, run, CompletionFold(shape, len(runs)), options)


async def _prompt_ids(deployment: Deployment, request: CompletionRequest) -> list[list[int]]:
    """Each prompt as token ids; a text gets what the tokenizer puts around a text (a BOS, where it has one)."""
    found = []
    for prompt in request.prompts:
        ids = await deployment.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise RequestError(
                "prompt: is empty, and this model has no token to start from", param="prompt", code="invalid_value"
            )
        check_token_ids(ids, deployment, "prompt")
        found.append(ids)
    return found


async def _prompt_plan(
    deployment: Deployment,
    request: CompletionRequest,
    token_ids: Sequence[int],
    rules: ReplyRules,
    ledger: PolicyLedger,
) -> PromptPlan:
    sampling = limited_sampling(
        deployment,
        request,
        rules,
        ledger,
        prompt_tokens=len(token_ids),
        requested=request.max_tokens,
        default=DEFAULT_MAX_TOKENS,
        prompt_param="prompt",
    )
    start = deployment.start_of_text(token_ids)
    wanted = Wanted(response_format=request.response_format, regex=request.regex, ebnf=request.ebnf, start=start)
    constraint = await deployment.constraints.build(wanted)
    return PromptPlan(token_ids=token_ids, sampling=sampling, start=start, constraint=constraint)


def _reply_plan(
    deployment: Deployment,
    request: CompletionRequest,
    rules: ReplyRules,
    http: Request,
    body: bytes,
) -> ReplyPlan:
    check_logprobs(request.logprobs, deployment, "logprobs")
    scored = bool(request.echo) and request.logprobs is not None
    if scored and not deployment.engine.info.prompt_logprobs:
        raise RequestError(
            "logprobs: this engine gives no log probabilities of the prompt, which echo asks for",
            param="logprobs",
            code="unsupported_parameter",
        )
    return ReplyPlan(
        request_id=reply_id("cmpl"),
        client_id=record_of(http.scope).id,
        format=deployment.format,
        raw=True,
        stop=request.stop_strings,
        stop_in_reasoning=rules.stop_in_reasoning,
        skip_special_tokens=request.skip_special_tokens is not False,
        logprobs=request.logprobs,
        prompt_logprobs=scored,
        routing=routing_hints(request, http),
        extras=engine_extras(body, request, deployment),
    )


def _shape(
    deployment: Deployment,
    request: CompletionRequest,
    request_id: str,
    model: str,
    prompts: Sequence[PromptPlan],
    rules: ReplyRules,
) -> CompletionReplyShape:
    echoed = [
        _echoed(deployment, request, sent, prompt.token_ids)
        for sent, prompt in zip(request.prompts, prompts, strict=True)
        if request.echo
    ]
    return CompletionReplyShape(
        id=request_id,
        model=model,
        created=int(time.time()),
        prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
        usage=usage_shape(deployment, rules),
        token_bytes=deployment.tokenizer.token_bytes,
        logprobs=request.logprobs is not None,
        echo=[prompt for prompt in echoed for _ in range(request.n or 1)],
        include_usage=wants_usage(request, rules),
        continuous_usage=wants_continuous_usage(request),
    )


def _echoed(
    deployment: Deployment, request: CompletionRequest, prompt: str | list[int], token_ids: Sequence[int]
) -> EchoedPrompt:
    """A text as it was sent, special tokens in it included; ids as the text that they stand for.

    With log probabilities a text is that of its tokens, which then join to it: a tokenizer may normalize.
    """
    if isinstance(prompt, str) and request.logprobs is None:
        return EchoedPrompt(prompt, ())
    hides = not isinstance(prompt, str) and request.skip_special_tokens is not False
    detokenizer = deployment.vocabulary.detokenizer(hides)
    pieces = [detokenizer.feed((token_id,)) for token_id in token_ids]
    pieces[-1] += detokenizer.finish()
    if isinstance(prompt, str):
        _hide_added(pieces, token_ids, deployment.tokenizer.special_ids, prompt)
    return EchoedPrompt("".join(pieces), pieces)


def _hide_added(pieces: list[str], token_ids: Sequence[int], special_ids: Collection[int], prompt: str) -> None:
    """What the tokenizer put around the text (a BOS) is no part of it."""
    for at, wrote in ((0, prompt.startswith), (-1, prompt.endswith)):
        if token_ids[at] in special_ids and not wrote(pieces[at]):
            pieces[at] = ""
