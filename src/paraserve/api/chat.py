"""``POST /v1/chat/completions``."""

from __future__ import annotations

from functools import partial
from typing import Self

import msgspec
from starlette.requests import Request

from paraserve.api.decoders.client_names import ClientNames
from paraserve.api.encoders.chat import ChatFold, ChatStream
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.turn import Turn
from paraserve.engines.base import Constraint, EngineError
from paraserve.formats.output import parser_for
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.generation.choice import TextParser
from paraserve.generation.thinking_budget import ThinkingBudget
from paraserve.prompt.chat import PreparedPrompt
from paraserve.prompt.errors import PromptError
from paraserve.protocol.chat import ChatCompletionRequest, decode_chat
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.tools import CHOICE_WORDS, declared_functions, narrowed, tool_choice_in_force


class ChatTurn(Turn[ChatCompletionRequest]):
    policies = "chat"
    id_prefix = "chatcmpl"
    budget_tokens: int | None = None
    """Most tokens of reasoning, where the request says so."""
    names: ClientNames | None = None
    """Of the request's parts, where the client sent it in the form of another API."""

    def __init__(
        self, http: Request, sent: ChatCompletionRequest, body: bytes = b"", *, generates: bool = True
    ) -> None:
        super().__init__(http, sent, body, generates=generates)
        with self:
            self._keep_allowed_tools()
            functions = declared_functions(self.request.tools, self.request.messages)
            self.choice = tool_choice_in_force(self.request.tool_choice, functions)
        if self.choice != "none":
            strictness = self.deployment.settings.tool_strictness
            always, asked = strictness == "always", strictness == "requested"
            self.tools = [ToolSpec(f.name, f.parameters or {}, always or (asked and bool(f.strict))) for f in functions]
        self.parallel_calls = self.request.parallel_tool_calls is not False and not self.names_a_function

    def told(self, error: RequestError | EngineError | PromptError) -> RequestError:
        """With fields named as the client wrote them."""
        failure = super().told(error)
        if self.names is not None:
            self.names.put_into(failure)
        return failure

    def _keep_allowed_tools(self) -> None:
        tools, choice = narrowed(self.request.tools, self.request.tool_choice)
        if tools is not self.request.tools:
            self.request = msgspec.structs.replace(self.request, tools=tools, tool_choice=choice)

    @classmethod
    def read(cls, http: Request, body: bytes) -> Self:
        return cls(http, decode_chat(body), body)

    @property
    def default_limit(self) -> int | None:
        return self.rules.default_max_tokens

    async def prompts(self) -> list[PreparedPrompt]:
        return [await self.prompt()]

    async def prompt(self) -> PreparedPrompt:
        """The prompt that the model reads. Raises `PromptError` or `RequestError`."""
        chat = self.deployment.chat
        if chat is None:
            raise RequestError(
                "This model has no chat template: use /v1/completions, or start the server with --chat-template.",
                code=ErrorCode.CHAT_TEMPLATE_MISSING,
            )
        return await self.prepared(partial(chat.prepare, self.request, with_tools=bool(self.tools)))

    async def constraint(self, prompt: PreparedPrompt) -> Constraint | None:
        constraint = await super().constraint(prompt)
        if constraint is not None and self._answer_begun(prompt):
            raise field_error(
                "continue_final_message",
                f"the answer has begun, and {constraint.param} can only be enforced from its start",
                ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return constraint

    async def thinking_budget(self, prompt: PreparedPrompt) -> ThinkingBudget | None:
        reasoning = self.deployment.format.reasoning
        if self.budget_tokens is None or reasoning is None or prompt.start is ReplyStart.CONTENT:
            return None
        tokenizer, close = self.deployment.tokenizer, reasoning.close.strip()
        return ThinkingBudget(
            tokens=self.budget_tokens,
            open="" if prompt.start is ReplyStart.REASONING else reasoning.open.strip(),
            close=close,
            close_ids=tokenizer.encode(close + self.deployment.format.lead),
            constraint=await super().constraint(msgspec.structs.replace(prompt, start=ReplyStart.CONTENT)),
            token_bytes=tokenizer.token_bytes,
        )

    def _answer_begun(self, prompt: PreparedPrompt) -> bool:
        """Whether the prompt already holds a part of the answer: more than reasoning."""
        reasoning = self.deployment.format.reasoning
        if not prompt.prefill.strip() or prompt.start is ReplyStart.REASONING:
            return False
        return reasoning is None or not prompt.prefill.rstrip().endswith(reasoning.close.strip())

    def parser(self, prompt: PreparedPrompt) -> TextParser:
        format = self.deployment.format
        return parser_for(format)(
            format,
            tools=self.tools,
            start=prompt.start,
            prefill=prompt.prefill,
            parse_tool_calls=bool(self.tools),
            parallel_tool_calls=self.parallel_calls,
            call_index_offset=sum(len(message.get("tool_calls") or ()) for message in self.request.messages),
            undeclared=self.deployment.settings.undeclared_tools,
        )

    @property
    def names_a_function(self) -> bool:
        """Whether a function is forced by name: it is called once, as OpenAI's guide has it for a forced function."""
        return self.choice not in CHOICE_WORDS

    @property
    def calls_end_plainly(self) -> bool:
        """A function was forced by name, and the operator wants OpenAI's finish reason for it (``stop``)."""
        return self.deployment.settings.named_tool_finish_reason == "stop" and self.names_a_function

    def fit_effort(self) -> tuple[str, ...]:
        """For clients of APIs with other efforts than the model's: the nearest. Returns what it is called."""
        effort, chat = self.request.reasoning_effort, self.deployment.chat
        if effort is None or chat is None or (nearest := chat.nearest_effort(effort)) == effort:
            return ()
        self.request = msgspec.structs.replace(self.request, reasoning_effort=nearest)
        return ("nearest_reasoning_effort",)

    def fold(self, shape: ReplyShape) -> Fold:
        return ChatFold(shape, named_tool=self.calls_end_plainly)

    def encoder(self, shape: ReplyShape) -> StreamEncoder:
        return ChatStream(shape, named_tool=self.calls_end_plainly)
