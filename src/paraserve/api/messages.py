"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``: Anthropic's API over the chat turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body import json_response, read_body
from paraserve.api.chat import ChatTurn
from paraserve.api.decoders.anthropic import chat_form
from paraserve.api.encoders.messages import Ends, MessagesFold, MessagesStream
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.replies import prepared
from paraserve.engines.base import Sampling
from paraserve.prompt.chat import PreparedPrompt
from paraserve.protocol.anthropic import CountTokensRequest, InputTokens, decode_count_tokens, decode_messages


class MessagesTurn(ChatTurn):
    id_prefix = "msg"

    def __init__(self, http: Request, sent: CountTokensRequest, body: bytes = b"", *, generates: bool = True) -> None:
        form = chat_form(sent)
        self.names = form.names
        self._cut_to_room = False
        super().__init__(http, form.request, body, generates=generates)
        self.notes = (*form.notes, *self.fit_effort())
        self.rules = replace(self.rules, clamp_max_tokens=True)
        self.budget_tokens = sent.thinking.budget_tokens if sent.thinking is not None else None
        if self.budget_tokens is not None and self.deployment.format.reasoning is None:
            self.notes = (*self.notes, "thinking_budget_not_enforced")

    @classmethod
    def read(cls, http: Request, body: bytes) -> Self:
        return cls(http, decode_messages(body), body)

    def sampling(self, prompt: PreparedPrompt) -> Sampling:
        sampling = super().sampling(prompt)
        self._cut_to_room = sampling.max_tokens < (self.request.max_completion_tokens or 0)
        return sampling

    def fold(self, shape: ReplyShape) -> Fold:
        return MessagesFold(shape, self._ends)

    def encoder(self, shape: ReplyShape) -> StreamEncoder:
        return MessagesStream(shape, self._ends)

    @property
    def _ends(self) -> Ends:
        return Ends(stop_sequences=self.request.stop_strings, cut_to_room=self._cut_to_room)


async def count_tokens(request: Request) -> Response:
    body = await read_body(request)
    turn = await prepared(
        request, len(body), lambda: MessagesTurn(request, decode_count_tokens(body), body, generates=False)
    )
    with turn:
        prompt = await turn.prompt()
    return json_response(InputTokens(len(prompt.token_ids)), headers=turn.headers)
