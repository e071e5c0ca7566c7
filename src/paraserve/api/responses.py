"""``POST /v1/responses`` and ``POST /v1/responses/input_tokens``: OpenAI's Responses API over the chat turn."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from paraserve.admission import Admission, Leave
from paraserve.api.background import BackgroundReply
from paraserve.api.body import json_response, read_body
from paraserve.api.chat import ChatTurn
from paraserve.api.decoders.response_tools import INPUT, custom_parameters
from paraserve.api.decoders.responses import SEALED, responses_form
from paraserve.api.encoders.response_items import ItemForm
from paraserve.api.encoders.responses import ResponseForm, ResponsesFold, ResponsesStream
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.keys import caller_of
from paraserve.api.observed import observe_behind
from paraserve.api.replies import RunReply, prepared
from paraserve.api.sealed import Seal
from paraserve.api.shelf import Kept, Shelf
from paraserve.api.streams import EventStream
from paraserve.engines.base import Constraint, EngineError, Sampling
from paraserve.formats.types import ToolSpec
from paraserve.generation.run import Take
from paraserve.prompt.chat import PreparedPrompt
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.responses import (
    InputTokensRequest,
    Reasoning,
    ResponseInputTokens,
    ResponseObject,
    ResponsesRequest,
    TextFormat,
    TextOptions,
    decode_input_tokens,
    decode_responses,
)

T = TypeVar("T")

GRAMMAR_NOT_ENFORCED = "custom_grammar_not_enforced"
OLDEST_DROPPED = "oldest_turns_dropped"
LEAST_ROOM = 16
"""One part in so many of the context is left for a reply whose limit is not said, before the oldest turns stay."""


class ResponsesTurn(ChatTurn):
    id_prefix = "resp"
    prompt_param = "input"

    def __init__(
        self,
        http: Request,
        sent: InputTokensRequest,
        kept: Kept,
        body: bytes = b"",
        *,
        generates: bool = True,
    ) -> None:
        seal: Seal = http.app.state.seal
        self.sent = msgspec.structs.replace(sent, input=kept.resolved(sent.input))
        self._kept = kept
        self.kept_size = kept.size
        self._seal = seal
        self._shelf = Shelf.of(http)
        self._form = responses_form(self.sent, seal.open, kept.items())
        self.names = self._form.names
        super().__init__(http, self._form.request, body, generates=generates)
        self.id = self.id.replace("-", "_")
        self.notes = (*self._form.notes, *self.fit_effort())
        self.rules = replace(self.rules, clamp_max_tokens=True)
        self._plain_tools = self.tools
        self._enforce_grammars()
        self._sampled = Sampling(max_tokens=0)

    @classmethod
    async def respond(cls, http: Request) -> ASGIApp:
        body = await read_body(http)
        sent = await prepared(http, len(body), partial(decode_responses, body))
        if sent.background and sent.stream:
            raise field_error("stream", "not for a response in the background", ErrorCode.UNSUPPORTED_PARAMETER)
        kept = await kept_for(http, sent, len(body))
        turn = await prepared(http, len(body) + kept.size, partial(cls, http, sent, kept, body))
        with turn:
            return await turn.reply()

    # What custom tools want.

    def _enforce_grammars(self) -> None:
        """Custom tools whose grammar the engine can be made to obey, in their one argument."""
        if self.deployment.settings.tool_strictness == "off":
            return
        self.tools = list(map(self._with_grammar, self.tools))

    def _with_grammar(self, tool: ToolSpec) -> ToolSpec:
        grammar = self._form.tools[tool.name].grammar
        if grammar is None:
            return tool
        pattern = self.deployment.constraints.argument_pattern(grammar.syntax, grammar.definition)
        if pattern is None:
            self._note(GRAMMAR_NOT_ENFORCED)
            return tool
        return replace(tool, parameters=custom_parameters(pattern), strict=True)

    async def constraint(self, prompt: PreparedPrompt) -> Constraint | None:
        """As for chat; a grammar of a custom tool that cannot be enforced in the model's own syntax is none."""
        try:
            return await super().constraint(prompt)
        except RequestError as error:
            if error.code != ErrorCode.UNSUPPORTED_SCHEMA or f"properties.{INPUT}" not in (error.param or ""):
                raise
            self.tools = self._plain_tools
            self._note(GRAMMAR_NOT_ENFORCED)
            return await super().constraint(prompt)

    def _note(self, name: str) -> None:
        if name not in self.notes:
            self.notes = (*self.notes, name)

    # A conversation that does not fit.

    async def prompt(self) -> PreparedPrompt:
        prompt = await super().prompt()
        if self.sent.truncation != "auto" or self._fits(prompt):
            return prompt
        whole = self.request
        cuts = [place for place, message in enumerate(whole.messages) if message["role"] == "user"][1:]
        low, high = 0, len(cuts) - 1
        while low <= high:  # the first cut that leaves enough room
            middle = (low + high) // 2
            self._cut(whole.messages, cuts[middle])
            prompt = await super().prompt()
            if self._fits(prompt):
                high = middle - 1
            else:
                low = middle + 1
        if cuts:
            self._note(OLDEST_DROPPED)
            self._cut(whole.messages, cuts[min(low, len(cuts) - 1)])
            prompt = await super().prompt()
        return prompt

    def _fits(self, prompt: PreparedPrompt) -> bool:
        context = self.deployment.context_length
        longest = self.deployment.engine.info.max_prompt_tokens or context
        room = min(self.request.max_completion_tokens or context // LEAST_ROOM, context // 2)
        return len(prompt.token_ids) <= min(longest, context - room)

    def _cut(self, messages: list[dict[str, object]], at: int) -> None:
        """Leave out what stands before ``at``, but for instructions."""
        kept = [
            place for place, message in enumerate(messages) if place >= at or message["role"] in ("system", "developer")
        ]
        self.request = msgspec.structs.replace(self.request, messages=[messages[place] for place in kept])

    # What the response says.

    def sampling(self, prompt: PreparedPrompt) -> Sampling:
        self._sampled = super().sampling(prompt)
        return self._sampled

    def fold(self, shape: ReplyShape) -> ResponsesFold:
        return ResponsesFold(self.response_form(shape))

    def encoder(self, shape: ReplyShape) -> ResponsesStream:
        return ResponsesStream(self.response_form(shape))

    # What is stored.

    @property
    def stores(self) -> bool:
        return self._shelf is not None and isinstance(self.sent, ResponsesRequest) and self.sent.store is not False

    async def _whole(self, run: RunReply, fold: Fold) -> Response:
        assert isinstance(fold, ResponsesFold)
        if fold.form.response.background:
            return await self._in_background(run, fold)
        return await super()._whole(self._storing(run, fold), fold)

    async def _streamed(self, run: RunReply, encoder: StreamEncoder) -> EventStream:
        assert isinstance(encoder, ResponsesStream)
        return await super()._streamed(self._storing(run, encoder.fold), encoder)

    def _storing(self, run: RunReply, fold: ResponsesFold) -> RunReply:
        """The run, which ends when the response is stored."""
        if not self.stores:
            return run

        async def stored(take: Take) -> None:
            await run(take)
            await self._store(fold)

        return stored

    async def _store(self, fold: ResponsesFold) -> None:
        """Raises `EngineError` where the client asked for it by name; else the response says that it is not stored."""
        assert self._shelf is not None
        assert isinstance(self.sent, ResponsesRequest)
        response = fold.whole()
        try:
            await self._put(response)
        except RequestError as error:
            if self.sent.store:
                raise EngineError(error.status, ErrorCode.STORE_UNAVAILABLE, error.message) from error
            fold.told = msgspec.structs.replace(response, store=False)

    async def _put(self, response: ResponseObject, *, running: bool = False) -> None:
        assert self._shelf is not None
        await self._shelf.put(response, self.sent.input, self._kept, size=len(self.body), running=running)

    async def _in_background(self, run: RunReply, fold: ResponsesFold) -> Response:
        """Answered at once; what becomes of it is in the store. Raises `RequestError` (503)."""
        assert self._shelf is not None
        queued = msgspec.structs.replace(fold.form.response, status="queued")
        record, state = self.record.detached(), self.http.app.state
        reply = BackgroundReply(self._shelf, fold, self._put, record)
        await reply.put(queued, running=True)
        admission: Admission = state.admission

        async def enter() -> Leave:
            with state.metrics.waiting():
                return await admission.enter(caller_of(self.http.scope))

        task = asyncio.ensure_future(observe_behind(record, reply.run(run, enter), state.metrics, state.request_log))
        self.deployment.background.add(task)
        task.add_done_callback(self.deployment.background.discard)
        return json_response(queued, headers=self.headers)

    def response_form(self, shape: ReplyShape) -> ResponseForm:
        sent = self.sent
        assert isinstance(sent, ResponsesRequest)
        reasoning = sent.reasoning or Reasoning()
        text = sent.text or TextOptions()
        response = ResponseObject(
            id=shape.id,
            created_at=shape.created,
            model=shape.model,
            instructions=sent.instructions,
            tools=sent.tools or [],
            tool_choice="auto" if sent.tool_choice is None else sent.tool_choice,
            parallel_tool_calls=sent.parallel_tool_calls is not False,
            reasoning=Reasoning(reasoning.effort, reasoning.summary or reasoning.generate_summary),
            text=TextOptions(text.format or TextFormat("text"), text.verbosity),
            temperature=self._sampled.temperature,
            top_p=self._sampled.top_p,
            top_logprobs=sent.top_logprobs or 0,
            max_output_tokens=sent.max_output_tokens,
            truncation=sent.truncation or "disabled",
            previous_response_id=sent.previous_response_id,
            conversation={"id": self._kept.conversation} if self._kept.conversation else None,
            store=self.stores,
            background=bool(sent.background),
            metadata=sent.metadata or {},
            user=sent.user,
        )
        items = ItemForm(
            suffix=shape.id.removeprefix("resp_"),
            token_bytes=shape.token_bytes,
            tools=self._form.tools,
            seal=self._seal.close if SEALED in (sent.include or ()) else None,
            summaries=response.reasoning.summary is not None,
            logprobs=shape.logprobs,
        )
        return ResponseForm(response, items)


async def kept_for(http: Request, sent: InputTokensRequest, size: int) -> Kept:
    """What a request goes on from. Raises `RequestError`: it needs a store and there is none, or does not find it."""
    shelf = Shelf.of(http)
    if shelf is not None:
        if isinstance(sent, ResponsesRequest) and sent.background and sent.store is False:
            raise field_error("background", "needs store to be true")
        return await shelf.kept(sent, size)
    for name in ("previous_response_id", "conversation", "background"):
        if getattr(sent, name, None):
            raise field_error(name, "nothing is stored here: send the whole history", ErrorCode.UNSUPPORTED_PARAMETER)
    return Kept()


async def input_tokens(request: Request) -> Response:
    body = await read_body(request)
    sent = await prepared(request, len(body), partial(decode_input_tokens, body))
    kept = await kept_for(request, sent, len(body))
    begin = partial(ResponsesTurn, request, sent, kept, body, generates=False)
    turn = await prepared(request, len(body) + kept.size, begin)
    with turn:
        prompt = await turn.prompt()
    return json_response(ResponseInputTokens(len(prompt.token_ids)), headers=turn.headers)
