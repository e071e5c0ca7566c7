"""A request that generates, from its body to its response: its steps are the methods of one class.

An endpoint is a small `Turn`: how a body is read, what its prompts are, how its reply is written. Another API's
endpoint decodes into the request of one that is there and writes the same events with an encoder of its own: there is
one way to a prompt and one to an engine. Never knows a wire format or how text becomes events. Invariant: what
policies' rules made of a request is noted here (`Turn.note_prompt`, `note_form`, `told`) and nowhere else.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import ClassVar, Generic, Self, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from paraserve.api.body import deployment_of, read_body
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.engine_fields import engine_extras, routing_hints
from paraserve.api.errors import as_request_error
from paraserve.api.observed import record_of
from paraserve.api.replies import RunReply, StreamedReply, admitted, check_admission, prepared
from paraserve.api.streams import EventStream, unless_gone
from paraserve.engines.base import Constraint, EngineError, EngineRequest, Sampling
from paraserve.formats.types import ToolSpec
from paraserve.generation.choice import Choice, TextParser
from paraserve.generation.constraint import AskedGrammar, Wanted
from paraserve.generation.events import ReplyEvent
from paraserve.generation.limits import check_min_tokens, check_prompts, output_limit
from paraserve.generation.plan import closing_markers, engine_name, may_reason
from paraserve.generation.run import EngineRun, run_reply
from paraserve.generation.sampling import alternatives, resolve_sampling
from paraserve.generation.thinking_budget import ThinkingBudget
from paraserve.policies.base import Endpoint
from paraserve.preparation import BYTES_OF_A_CHOICE, SMALL_BODY
from paraserve.prompt.chat import PreparedPrompt
from paraserve.prompt.errors import PromptError
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.completions import CompletionRequest
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.unserved import check_served

NORMALIZATIONS_HEADER = "x-paraserve-normalizations"

T = TypeVar("T")
Asked = TypeVar("Asked", bound=ChatCompletionRequest | CompletionRequest)


def reply_id(prefix: str) -> str:
    """An id of our own for one reply (OpenAI's prefixes: ``chatcmpl``, ``cmpl``); the engine sees it too."""
    return f"{prefix}-{os.urandom(16).hex()}"


class Turn(ABC, Generic[Asked]):
    """One request and all that its steps know of it. It begins as the policies in force want it.

    Args:
        sent: the decoded body.
        body: as it came, for the fields that go to the engine as they are.
        generates: False where only the prompt is asked for.

    Raises:
        RequestError: the model is not served here, a field is not, there is no room, or a policy refuses the request.
    """

    policies: ClassVar[Endpoint]
    """Whose policies hold."""
    id_prefix: ClassVar[str]
    prompt_param: ClassVar[str] = "messages"
    """The field to blame for a prompt that does not fit."""

    tools: Sequence[ToolSpec] = ()
    """Those that the model may call."""
    choice = "none"
    """``auto``, ``required``, ``none`` or the name of a function."""
    parallel_calls = True
    """Whether it may call more than one."""
    notes: tuple[str, ...] = ()
    """Names of what was adapted on the way to the prompt (docs/prompt.md)."""
    kept_size: int = 0
    """Bytes of what it goes on from, beside its body."""

    def __init__(self, http: Request, sent: Asked, body: bytes = b"", *, generates: bool = True) -> None:
        self.http = http
        self.body = body
        self.deployment = deployment_of(http)
        self.record = record_of(http.scope)
        self.record.read(self.deployment.asked_model(sent.model), stream=generates and bool(sent.stream))
        self.model = self.deployment.model_name(sent.model)
        if generates:
            self._check_stream_options(sent)
            check_admission(http)
        check_served(sent, self.deployment.settings.engine_extra_fields)
        in_force = self.deployment.policies.on(self.policies)
        self.rules = in_force.rules
        applied, self.ledger = in_force.apply(sent)
        self.request: Asked = applied
        self.id = reply_id(self.id_prefix)
        self._size = len(body) + self.kept_size + BYTES_OF_A_CHOICE * (self.choices - 1)
        self.small = self._size <= SMALL_BODY

    # What an endpoint says.

    @classmethod
    @abstractmethod
    def read(cls, http: Request, body: bytes) -> Self:
        """The turn that a body asks for. Raises `RequestError`."""

    @abstractmethod
    async def prompts(self) -> Sequence[PreparedPrompt]:
        """What the model reads; each has ``n`` choices. Raises `PromptError` or `RequestError`."""

    @property
    @abstractmethod
    def default_limit(self) -> int | None:
        """Tokens of a reply to a request that sets no limit, if there is room for them; None: all the room."""

    @abstractmethod
    def parser(self, prompt: PreparedPrompt) -> TextParser:
        """What reads the text of one choice."""

    @abstractmethod
    def fold(self, shape: ReplyShape) -> Fold:
        """What makes a whole response of the reply's events."""

    @abstractmethod
    def encoder(self, shape: ReplyShape) -> StreamEncoder:
        """What makes a stream of them."""

    # A request's way.

    @classmethod
    async def respond(cls, http: Request) -> ASGIApp:
        """The endpoint."""
        body = await read_body(http)
        read = partial(cls.read, http, body)
        turn = read() if len(body) <= SMALL_BODY else await prepared(http, len(body), read)
        with turn:
            return await turn.reply()

    async def reply(self) -> ASGIApp:
        """The response. Raises what any step raises."""
        prompts = await self.prompts()
        settle: partial[list[Sampling]] = partial(list, map(self.sampling, prompts))
        samplings = settle() if self.small else await self.prepared(settle)
        constraints = [await self.constraint(prompt) for prompt in prompts]
        budgets = [await self.thinking_budget(prompt) for prompt in prompts]
        sampled = list(zip(prompts, samplings, constraints, budgets, strict=True))
        runs = self.runs(sampled) if self.small else await self.prepared(partial(self.runs, sampled))
        shape = self.shape(prompts, len(runs))
        self.ledger.log(self.id)
        self.notes = (*self.notes, *prompts[0].normalizations, *self._unused(sampled[0][1]))
        self.record.begin(self.id, runs, self.ledger, prompts=len(prompts), normalizations=self.notes)
        run = partial(run_reply, self.deployment.engine, runs, prompts=len(prompts))
        if self.request.stream:
            return await self._streamed(run, self.encoder(shape))
        return await self._whole(run, self.fold(shape))

    async def prepared(self, work: Callable[[], T]) -> T:
        """The result of a step, off the event loop where the request is not small: its body, or what it asks for."""
        return work() if self.small else await prepared(self.http, self._size, work)

    @property
    def choices(self) -> int:
        """How many it asks for."""
        return self.request.n or 1

    def sampling(self, prompt: PreparedPrompt) -> Sampling:
        """Every sampling value of a prompt's replies, the limit included.

        Raises:
            RequestError: the prompt or the limit does not fit, or a value is wrong.
        """
        param, requested = self.request.output_limit
        limit = output_limit(
            prompt_tokens=len(prompt.token_ids),
            context_length=self.deployment.context_length,
            longest_prompt=self.deployment.engine.info.max_prompt_tokens,
            requested=requested,
            default=self.default_limit,
            at_least=self.request.min_tokens or 0,
            clamp=self.rules.clamp_max_tokens,
            overflow_status=self.rules.overflow_status,
            param=param,
            prompt_param=self.prompt_param,
        )
        self.note_prompt(prompt, limit)
        check_min_tokens(self.request.min_tokens, limit)
        return resolve_sampling(
            self.request,
            max_tokens=limit,
            defaults=self.deployment.sampling_defaults,
            vocab_size=self.deployment.tokenizer.vocab_size,
            end_ids=self.deployment.vocabulary.end_ids,
        )

    def _unused(self, sampling: Sampling) -> Sequence[str]:
        """Names of the sampling values that the engine has no use for, and that would make a difference."""
        seeded = sampling.seed is not None and sampling.temperature > 0
        return () if self.deployment.engine.info.seeds or not seeded else ("seed_not_used",)

    async def constraint(self, prompt: PreparedPrompt) -> Constraint | None:
        """What a reply must match. Raises `RequestError` where it cannot be enforced."""
        wanted = Wanted(
            response_format=self.request.response_format,
            regex=self.request.regex,
            ebnf=self.request.ebnf,
            tools=self.tools,
            choice=self.choice,
            parallel=self.parallel_calls,
            start=prompt.start,
        )
        asked_of = self.deployment.constraints.asked
        asked = asked_of(wanted) if self.small else await self.prepared(partial(asked_of, wanted))
        if not isinstance(asked, AskedGrammar):
            return asked
        in_thread = partial(prepared, self.http, max(self._size, SMALL_BODY + 1))
        return await self.deployment.constraints.written(asked, in_thread)

    async def thinking_budget(self, prompt: PreparedPrompt) -> ThinkingBudget | None:
        """How many tokens a reply's reasoning may take; None: as many as the model wants."""
        return None

    def runs(
        self, asked: Sequence[tuple[PreparedPrompt, Sampling, Constraint | None, ThinkingBudget | None]]
    ) -> list[EngineRun]:
        """One for each choice, prompt by prompt.

        A request's seed is moved by one for each further choice of a prompt, so that they differ and still repeat.
        """
        if self.choices > 1:
            check_prompts(sum(len(each[0].token_ids) for each in asked) * (self.request.n or 1))
        scope, settings = self.http.scope, self.deployment.settings
        logprobs = alternatives(self.request, self.deployment.engine.info)
        routing = routing_hints(self.request, scope, settings)
        extras = engine_extras(self.body, self.request, scope, settings)
        runs: list[EngineRun] = []
        for prompt, sampling, constraint, budget in asked:
            for of_prompt in range(self.request.n or 1):
                if of_prompt and sampling.seed is not None:
                    sampling = replace(sampling, seed=(sampling.seed + 1) % 2**32)
                request = EngineRequest(
                    request_id=engine_name(self.id, len(runs), self.record.id),
                    token_ids=prompt.token_ids,
                    sampling=sampling,
                    constraint=constraint,
                    logprobs=logprobs,
                    prompt_logprobs=self.request.scores_prompt,
                    in_reasoning=may_reason(self.deployment.format, prompt.start),
                    media=prompt.media,
                    routing=routing,
                    extras=extras,
                )
                runs.append(EngineRun(request, self._choice(len(runs), prompt, sampling), budget))
        return runs

    def _choice(self, index: int, prompt: PreparedPrompt, sampling: Sampling) -> Choice:
        vocabulary, stop = self.deployment.vocabulary, self.request.stop_strings
        ends = vocabulary.end_ids.union(sampling.stop_token_ids) if sampling.stop_token_ids else vocabulary.end_ids
        hides = self.request.skip_special_tokens is not False
        return Choice(
            index,
            detokenizer=vocabulary.detokenizer(hides, before=prompt.token_ids[-1]),
            parser=self.parser(prompt),
            end_ids=ends,
            max_tokens=sampling.max_tokens,
            stop=stop,
            stop_in_reasoning=self.rules.stop_in_reasoning,
            closers=closing_markers(self.deployment.format) if stop else (),
            logprobs=self.request.alternatives[1] is not None,
        )

    def shape(self, prompts: Sequence[PreparedPrompt], choices: int) -> ReplyShape:
        """What the request and the policies say about the response's form."""
        options, rules = self.request.stream_options, self.rules
        return ReplyShape(
            id=self.id,
            model=self.model,
            created=int(time.time()),
            prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts),
            choices=choices,
            token_bytes=self.deployment.tokenizer.token_bytes,
            logprobs=self.request.alternatives[1] is not None,
            include_usage=self._includes_usage,
            usage_in_last_choice=self._includes_usage and rules.stream_usage == "last-choice",
            continuous_usage=options is not None and bool(options.continuous_usage_stats),
            report_cached=self.deployment.settings.enable_cache_report,
            reasoning_in_details=rules.reasoning_in_details,
        )

    @property
    def _includes_usage(self) -> bool:
        """Whether a stream ends with usage: when it was asked for; by policy also when it was not declined."""
        asked = None if self.request.stream_options is None else self.request.stream_options.include_usage
        return self.rules.stream_usage != "requested" if asked is None else asked

    async def _whole(self, run: RunReply, fold: Fold) -> Response:
        """The response once the last event is there. Raises `EngineError` when the run failed, `RequestError` when
        there is no room for it, and `ClientGone`."""

        def take(events: Sequence[ReplyEvent]) -> None:
            for event in events:
                fold.take(event)

        leave = await admitted(self.http)
        try:
            await unless_gone(self.http, run(take))
        finally:
            leave()
        body = fold.response()
        self.note_form()
        return Response(body, media_type="application/json", headers=self.headers)

    async def _streamed(self, run: RunReply, encoder: StreamEncoder) -> EventStream:
        """The response that sends events as they come.

        Raises:
            RequestError: there is no room for it.
            EngineError: only where the preflight holds the head.
            ClientGone: the client left while the head was held.
        """
        reply = StreamedReply(run, encoder, self.record)
        async with AsyncExitStack() as stack:
            stack.callback(await admitted(self.http))
            stack.push_async_callback(reply.aclose)
            if self.rules.preflight:
                await unless_gone(self.http, reply.first(self.rules.preflight_seconds))
            close = stack.pop_all().aclose
        self.note_form()
        return EventStream(
            reply.write_to,
            close=close,
            failure=encoder.failure,
            headers=self.headers,
            keep_alive=self.deployment.settings.stream_comment_interval,
            sign=encoder.keep_alive,
        )

    # What the policies' rules made of it.

    def note_prompt(self, prompt: PreparedPrompt, limit: int) -> None:
        """The limit that came out for a prompt, and stop strings that its reasoning may have."""
        requested, rules = self.request.output_limit[1], self.rules
        if requested is None:
            self.ledger.used("default_max_tokens", self.deployment.context_length - len(prompt.token_ids), limit)
        else:
            self.ledger.used("clamp_max_tokens", requested, limit)
        if self.request.stop_strings and prompt.thinks:
            self.ledger.used("stop_in_reasoning", True, rules.stop_in_reasoning)

    @property
    def headers(self) -> dict[str, str]:
        """What a reply's head says of its way: policies and normalizations that made a difference."""
        headers = self.ledger.headers
        return {**headers, NORMALIZATIONS_HEADER: ", ".join(self.notes)} if self.notes else headers

    def note_form(self) -> None:
        """The form of a reply, before its head is written."""
        options, stream = self.request.stream_options, self.request.stream
        if not stream or self._includes_usage or (options is not None and options.continuous_usage_stats):
            self.ledger.used("reasoning_in_details", False, self.rules.reasoning_in_details)
        if stream and (options is None or options.include_usage is None):
            self.ledger.used("stream_usage", "requested", self.rules.stream_usage)

    def __enter__(self) -> Self:
        """What fails inside is told as `told` says."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RequestError | EngineError | PromptError):
            raise self.told(error) from error

    def told(self, error: RequestError | EngineError | PromptError) -> RequestError:
        """A failure, with the policies that had changed the request, as the reply would have named them. A prompt
        that cannot fit, or that an engine counts longer than we did, is told like our own count."""
        failure = as_request_error(error)
        if isinstance(error, EngineError) and self.request.stream:  # only the preflight brings it here
            self.ledger.used("preflight", False, self.rules.preflight)
        if failure.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED:
            if not isinstance(error, RequestError):
                failure.status = self.rules.overflow_status
            self.ledger.used("overflow_status", 400, failure.status)
        failure.headers.update(self.ledger.headers)
        return failure

    # What is checked and handed on as it is.

    def _check_stream_options(self, sent: Asked) -> None:
        """``stream_options`` without a stream is an error, as at OpenAI, unless the operator chose to ignore it."""
        misplaced = sent.stream_options is not None and not sent.stream
        if misplaced and self.deployment.settings.stream_options_without_stream == "reject":
            raise field_error("stream_options", "only allowed when stream is true")
