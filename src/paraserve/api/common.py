"""What chat and text completions do alike on their way in."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.encoders.usage import UsageShape
from paraserve.api.errors import as_request_error
from paraserve.api.observed import REQUEST_ID_HEADER, record_of
from paraserve.api.replies import ReplyOptions
from paraserve.api.traced import trace_headers
from paraserve.engines.base import EngineError, RoutingHints, Sampling
from paraserve.generation.limits import check_min_tokens, output_limit
from paraserve.generation.sampling import resolve_sampling
from paraserve.policies.base import PolicyLedger, ReplyRules
from paraserve.prompt.errors import PromptError
from paraserve.protocol.body import decode_body
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.protocol.sampling import SamplingFields
from paraserve.secrets import client_text

if TYPE_CHECKING:
    from paraserve.deployment import Deployment

log = logging.getLogger(__name__)

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_value = msgspec.json.Decoder(Any)

ROUTING_HEADERS = ("x-smg-routing-key", "x-data-parallel-rank", "traceparent", "tracestate")
"""Headers of a client or router that say where a request should run, or which trace it belongs to; they go on to the
engine as they are."""


_ROUTING = frozenset(name.encode() for name in ROUTING_HEADERS)


def deployment_of(request: Request) -> Deployment:
    deployment: Deployment = request.app.state.deployment
    return deployment


def json_response(value: object, *, order: Literal["deterministic"] | None = None) -> Response:
    """Args:
    order: sets and mappings are sorted.
    """
    return Response(msgspec.json.encode(value, order=order), media_type="application/json")


def reply_id(prefix: str) -> str:
    """An id of our own for one reply (OpenAI's prefixes: ``chatcmpl``, ``cmpl``); the engine sees it too."""
    return f"{prefix}-{os.urandom(16).hex()}"


@contextmanager
def attributed(ledger: PolicyLedger, rules: ReplyRules) -> Iterator[None]:
    """A failure inside names the policies that had changed the request, as the reply would have. An engine that counts
    a prompt longer than we did is told like our own count."""
    try:
        yield
    except (RequestError, EngineError, PromptError) as error:
        failure = as_request_error(error)
        if isinstance(error, EngineError) and error.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED:
            ledger.used("overflow_status", failure.status, rules.overflow_status)
            failure.status = rules.overflow_status
        failure.headers.update(ledger.headers)
        raise failure from error


def usage_shape(deployment: Deployment, rules: ReplyRules) -> UsageShape:
    return UsageShape(
        report_cached=deployment.settings.enable_cache_report, reasoning_in_details=rules.reasoning_in_details
    )


def wants_usage(fields: SamplingFields, rules: ReplyRules) -> bool:
    """Whether a stream ends with usage: when it was asked for; by policy also when it was not declined."""
    asked = None if fields.stream_options is None else fields.stream_options.include_usage
    return bool(asked) if asked is not None or rules.stream_usage == "requested" else True


def wants_continuous_usage(fields: SamplingFields) -> bool:
    return fields.stream_options is not None and bool(fields.stream_options.continuous_usage_stats)


def check_stream_options(fields: SamplingFields, deployment: Deployment) -> None:
    """``stream_options`` without a stream is an error, as at OpenAI, unless the operator chose to ignore it."""
    misplaced = fields.stream_options is not None and not fields.stream
    if misplaced and deployment.settings.stream_options_without_stream == "reject":
        raise RequestError(
            "stream_options: only allowed when stream is true", param="stream_options", code="invalid_value"
        )


def check_token_ids(token_ids: Sequence[int], deployment: Deployment, param: str) -> None:
    """Every id must be one of the vocabulary: an engine may die of another."""
    beyond = deployment.tokenizer.vocab_size
    if any(token_id >= beyond for token_id in token_ids):
        raise RequestError(f"{param}: token ids must be below {beyond}", param=param, code="invalid_value")


def limited_sampling(
    deployment: Deployment,
    fields: SamplingFields,
    rules: ReplyRules,
    ledger: PolicyLedger,
    *,
    prompt_tokens: int,
    requested: int | None,
    default: int | None,
    param: str = "max_tokens",
    prompt_param: str = "messages",
) -> Sampling:
    """Every sampling value of a reply to one prompt, its limit included; what a policy made of the limit is noted.

    Args:
        requested, default, param, prompt_param: as `limits.output_limit` has them.

    Raises:
        RequestError: the prompt or the limit does not fit, or a value is wrong.
    """
    if prompt_tokens >= deployment.context_length:
        ledger.used("overflow_status", 400, rules.overflow_status)
    limit = output_limit(
        prompt_tokens=prompt_tokens,
        context_length=deployment.context_length,
        requested=requested,
        default=default,
        at_least=fields.min_tokens or 0,
        clamp=rules.clamp_max_tokens,
        overflow_status=rules.overflow_status,
        param=param,
        prompt_param=prompt_param,
    )
    if requested is None:
        ledger.used("default_max_tokens", deployment.context_length - prompt_tokens, limit)
    else:
        ledger.used("clamp_max_tokens", requested, limit)
    check_min_tokens(fields.min_tokens, limit)
    return resolve_sampling(
        fields, max_tokens=limit, defaults=deployment.sampling_defaults, vocab_size=deployment.tokenizer.vocab_size
    )


def check_logprobs(wanted: int | None, deployment: Deployment, param: str) -> None:
    most = deployment.engine.info.max_logprobs
    if wanted is not None and wanted > most:
        raise RequestError(f"{param}: this engine gives at most {most}", param=param, code="invalid_value")


def engine_extras(body: bytes, fields: SamplingFields, deployment: Deployment) -> dict[str, Any]:
    """The fields that the operator lets through to the engine. What is left out is named in the log at debug."""
    passed = deployment.settings.engine_extra_fields
    debug = log.isEnabledFor(logging.DEBUG)
    if not passed and not debug:
        return {}
    sent = decode_body(_raw_fields, body)
    unknown = sent.keys() - {*fields.__struct_fields__, *passed}
    if unknown:
        log.debug("fields that no stage reads: %s", client_text(", ".join(sorted(unknown)))[:200])
    return {name: decode_body(_any_value, bytes(sent[name])) for name in passed if name in sent}


def routing_hints(fields: SamplingFields, request: Request) -> RoutingHints:
    """What the client or a router said about where to run, handed on and never invented."""
    return RoutingHints(
        priority=fields.priority,
        lora=fields.lora_path,
        cache_salt=fields.cache_salt or None,
        data_parallel_rank=fields.data_parallel_rank,
        bootstrap_host=fields.bootstrap_host,
        bootstrap_port=fields.bootstrap_port,
        bootstrap_room=fields.bootstrap_room,
        headers={
            REQUEST_ID_HEADER: record_of(request.scope).id,
            **{
                name.decode(): value.decode("latin-1")
                for name, value in reversed(request.scope["headers"])  # the first of several wins
                if name in _ROUTING
            },
            **trace_headers(request.scope),
        },
    )


def _note_reply_rules(fields: SamplingFields, rules: ReplyRules, ledger: PolicyLedger) -> None:
    """What the policies will do to the reply's form, noted before its head is written."""
    shows_usage = not fields.stream or wants_usage(fields, rules) or wants_continuous_usage(fields)
    if shows_usage:
        ledger.used("reasoning_in_details", False, rules.reasoning_in_details)
    if fields.stream and (fields.stream_options is None or fields.stream_options.include_usage is None):
        ledger.used("stream_usage", "requested", rules.stream_usage)


def reply_options(
    deployment: Deployment, fields: SamplingFields, rules: ReplyRules, ledger: PolicyLedger
) -> ReplyOptions:
    return ReplyOptions(
        rules=rules,
        ledger=ledger,
        note_rules=partial(_note_reply_rules, fields, rules, ledger),
        keep_alive=deployment.settings.keep_alive_interval,
    )
