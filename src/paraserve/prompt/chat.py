"""A conversation to a prompt: adapt, render, tokenize, and say where the reply starts.

Never knows HTTP or engines beyond the media kinds that one takes. Two invariants: requests may be prepared in many
threads at once, and what one leaves in a `ChatPrompt` changes no other's prompt; and whatever is wrong with a request
is a `PromptError`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from paraserve.engines.base import MediaItem
from paraserve.formats.spec import IdStyle, ToolText
from paraserve.formats.types import ReplyStart
from paraserve.prompt.bound import PromptBound
from paraserve.prompt.capabilities import TemplateCapabilities, probe_template
from paraserve.prompt.errors import PromptError
from paraserve.prompt.facts import PromptFacts, TokenizerFacts
from paraserve.prompt.history import HistoryAdapter
from paraserve.prompt.media import collect_media
from paraserve.prompt.prefill import ContinuedPrompt, continue_final
from paraserve.prompt.shown import shows_text_beside_calls
from paraserve.prompt.state import StartMarkers, reply_start
from paraserve.prompt.template import ChatTemplate
from paraserve.prompt.thinking import nearest_effort, resolve_kwargs, thinking_modes, unused_wishes
from paraserve.prompt.tool_declarations import DeclaredTools
from paraserve.prompt.tool_results import result_order
from paraserve.prompt.tool_text import TextualTools
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.error_codes import ErrorCode
from paraserve.tokenizers.checkpoint import DEFAULT_TEMPLATE, TOOL_TEMPLATE, Checkpoint

log = logging.getLogger(__name__)

NO_KWARGS: Mapping[str, Any] = MappingProxyType({})

RESERVED_KWARGS = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"})
"""Variables that a request sets by its own fields and not by template kwargs."""


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """What an operator decides about prompts."""

    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Defaults; a request's own kwargs win."""
    normalization: Literal["auto", "off"] = "auto"
    """``off``: messages reach the template as the client sent them, after validation."""
    lenient_arguments: bool = True
    """Call arguments in the history that are no JSON object go through instead of being refused."""
    ignored_tools: Literal["allow", "refuse"] = "allow"
    """What happens to declared tools that the template does not put into the prompt."""


class PreparedPrompt(msgspec.Struct, frozen=True):
    """Everything that later stages know about a prompt."""

    token_ids: list[int]
    text: str
    start: ReplyStart
    thinks: bool
    """The reply is inside reasoning or may open it."""
    prefill: str = ""
    """The assistant text at the prompt's end that the reply goes on with: what follows a thought that is closed."""
    media: tuple[MediaItem, ...] = ()
    normalizations: tuple[str, ...] = ()
    """Names of what was adapted (docs/prompt.md lists them); empty where the template took the original."""


class ChatPrompt:
    """Prepares the prompts of one model."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        settings: PromptSettings | None = None,
        markers: StartMarkers | None = None,
        media: frozenset[str] = frozenset(),
        ids: IdStyle = "generic",
        bound: PromptBound | None = None,
        tool_text: ToolText | None = None,
    ) -> None:
        """
        Args:
            checkpoint: its tokenizer, templates and special tokens.
            settings: the operator's.
            markers: what of the model's format says where a reply starts.
            media: kinds of media that the engine takes.
            ids: how the model spells the ids of its calls.
            bound: of what may fit; by default every text is tokenized.
            tool_text: how tools are said, for templates that know none.
        """
        self._checkpoint = checkpoint
        self._settings = settings or PromptSettings()
        self._markers = markers or StartMarkers()
        self._media = media
        self._templates = {name: ChatTemplate.compile(text, name) for name, text in checkpoint.templates.items()}
        self.capabilities: Mapping[str, TemplateCapabilities] = {
            name: probe_template(template, checkpoint.special_tokens) for name, template in self._templates.items()
        }
        """What each template takes, by its name."""
        lenient = self._settings.lenient_arguments
        self._textual = {
            name: TextualTools(tool_text, takes, lenient_arguments=lenient)
            for name, takes in self.capabilities.items()
            if tool_text is not None and takes.renders and not takes.tools and self._settings.normalization == "auto"
        }
        for name, takes in self.capabilities.items():
            _report(name, takes, says_tools=name in self._textual)
        self._adapters = {
            name: HistoryAdapter(takes, lenient_arguments=lenient, ids=ids) for name, takes in self.capabilities.items()
        }
        self._default_kwargs = {
            name: resolve_kwargs(self._settings.template_kwargs, {}, None, takes)
            for name, takes in self.capabilities.items()
        }
        """Of requests that ask for nothing of the kind."""
        self._tools = {name: DeclaredTools(takes) for name, takes in self.capabilities.items()}
        self._bound = bound

    def nearest_effort(self, effort: str) -> str:
        """The reasoning effort that the model takes for one of another API."""
        return nearest_effort(effort, self.capabilities[DEFAULT_TEMPLATE])

    def facts(self) -> PromptFacts:
        """What is known about templates and tokenizer, for people who ask the server."""
        tokenizer = self._checkpoint.tokenizer
        return PromptFacts(
            tokenizer=TokenizerFacts(
                class_=type(tokenizer).__name__,
                backend=getattr(tokenizer, "backend", None),
                vocab_size=tokenizer.vocab_size,
            ),
            history_normalization=self._settings.normalization,
            template_kwargs=dict(self._settings.template_kwargs),
            templates=dict(self.capabilities),
        )

    def prepare(self, request: ChatCompletionRequest, *, with_tools: bool = True) -> PreparedPrompt:
        """The prompt of a request, of which nothing is changed.

        Args:
            with_tools: whether the model may call any (False for ``tool_choice: none``).

        Raises:
            PromptError: it cannot become one.
        """
        messages: Sequence[Mapping[str, Any]] = request.messages
        tools: Sequence[Mapping[str, Any]] | None = (request.tools or None) if with_tools else None
        if not with_tools:
            messages = _without_tools(messages)
        name = self._choose(tools)
        takes = self.capabilities[name]
        notes: dict[str, None] = {}
        textual = self._textual.get(name)
        if tools and takes.renders and not takes.tools and textual is None:
            self._tools_not_shown(notes)
        media = collect_media(request.messages, self._media)
        if self._settings.normalization == "auto":
            tools = self._tools[name].of(tools, notes) if tools else None
            keep_last = bool(request.continue_final_message)
            if textual is not None:
                messages, adapted = textual.adapt(messages, tools or (), keep_last=keep_last)
                tools = None
            else:
                messages, adapted = self._adapters[name].adapt(messages, keep_last=keep_last)
            notes.update(dict.fromkeys(adapted))
        if media:
            media = collect_media(_as_shown(messages, takes), self._media)
        given = _allowed(request.chat_template_kwargs or {})
        effort = request.reasoning_effort
        if given or effort is not None:
            kwargs = resolve_kwargs(self._settings.template_kwargs, given, effort, takes)
        else:
            kwargs = self._default_kwargs[name]
        if kwargs.effort_unused:
            notes["reasoning_effort_not_used"] = None
        notes.update(dict.fromkeys(unused_wishes(request, kwargs.requested)))
        variables: dict[str, Any] = {**self._checkpoint.special_tokens, **kwargs.variables}
        if tools or takes.absent_tools_as_none:
            variables["tools"] = tools or None
        variables["documents"] = request.documents
        rendered = self._render(name, request, messages, variables)
        if rendered.turned_on:
            notes["thinking_on_for_prefill"] = None
        if not shows_text_beside_calls(request.messages, rendered.text, self._markers):
            notes["text_not_in_prompt"] = None
        start = rendered.start
        refused = request.reasoning_effort == "none" and not kwargs.requested and not rendered.prefill
        if refused and start is ReplyStart.REASONING:
            raise PromptError(
                "reasoning_effort: this model always reasons", "reasoning_effort", ErrorCode.UNSUPPORTED_VALUE
            )
        thinks = start is ReplyStart.REASONING or (start is ReplyStart.HEADER and kwargs.requested is not False)
        token_ids, text = self._tokenize(rendered.text, notes)
        return PreparedPrompt(
            token_ids=token_ids,
            text=text,
            start=start,
            thinks=thinks,
            prefill=rendered.prefill,
            media=media,
            normalizations=tuple(notes),
        )

    def _tokenize(self, text: str, notes: dict[str, None]) -> tuple[list[int], str]:
        if self._bound is not None:
            self._bound.check(text)
        try:
            return self._checkpoint.tokenizer.encode(text), text
        except UnicodeEncodeError:
            # Half of a surrogate pair: what a client sends that cuts text in the middle of an emoji.
            notes["lone_surrogates"] = None
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return self._checkpoint.tokenizer.encode(text), text

    def _choose(self, tools: Sequence[Any] | None) -> str:
        if tools and TOOL_TEMPLATE in self._templates:
            return TOOL_TEMPLATE
        if DEFAULT_TEMPLATE in self._templates:
            return DEFAULT_TEMPLATE
        raise PromptError(
            "this model has no chat template; the server needs one (--chat-template FILE)",
            code=ErrorCode.CHAT_TEMPLATE_MISSING,
        )

    def _tools_not_shown(self, notes: dict[str, None]) -> None:
        if self._settings.ignored_tools == "refuse":
            raise PromptError("this model's chat template takes no tools", "tools", ErrorCode.UNSUPPORTED_CONTENT)
        notes["tools_not_in_prompt"] = None

    def _render(
        self,
        name: str,
        request: ChatCompletionRequest,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> ContinuedPrompt:
        template = self._templates[name]

        def render(messages: Sequence[Mapping[str, Any]], generate: bool, kwargs: Mapping[str, Any] = NO_KWARGS) -> str:
            whole = {**variables, **kwargs, "messages": messages, "add_generation_prompt": generate}
            try:
                return template.render(whole)
            except PromptError as error:
                _blame_tools(template, whole, error)
                raise

        if request.continue_final_message:
            if request.add_generation_prompt:
                raise PromptError(
                    "add_generation_prompt and continue_final_message exclude each other", "continue_final_message"
                )
            modes = thinking_modes(self.capabilities[name])
            return continue_final(messages, render, self._markers, modes)
        text = render(messages, request.add_generation_prompt is not False)
        return ContinuedPrompt(text, "", reply_start(text, self._markers))


def _blame_tools(template: ChatTemplate, variables: Mapping[str, Any], error: PromptError) -> None:
    """Where the messages render without any tools, it is a tool that the template fails on: the error names it."""
    tools = variables.get("tools") or ()

    def renders(tools: Sequence[Any] | None) -> bool:
        try:
            template.render({**variables, "tools": tools})
        except PromptError:
            return False
        return True

    if tools and error.code == ErrorCode.TEMPLATE_ERROR and renders(None):
        failing = next((place for place, tool in enumerate(tools) if not renders([tool])), None)
        error.param = "tools" if failing is None else f"tools[{failing}].function.parameters"


def _without_tools(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Without the tools that messages declare, and without messages that say nothing else."""
    return [
        {key: value for key, value in message.items() if key != "tools"} if message.get("tools") else message
        for message in messages
        if not message.get("tools") or message.get("content")
    ]


def _as_shown(messages: Sequence[Mapping[str, Any]], takes: TemplateCapabilities) -> Sequence[Mapping[str, Any]]:
    """The messages in the order in which the template shows them: media come in the order of the prompt."""
    if takes.result_order != "sorted":
        return messages
    return [messages[place] for place in result_order(messages, gather=False, sort=True, notes={})]


def _allowed(kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in kwargs:
        if name in RESERVED_KWARGS:
            raise PromptError(
                f"chat_template_kwargs.{name}: this is a field of the request, not a template kwarg",
                f"chat_template_kwargs.{name}",
            )
    return kwargs


def _report(name: str, takes: TemplateCapabilities, *, says_tools: bool) -> None:
    """Tell the operator what was learned, and what clients will miss."""
    log.debug("chat template %s: %s", name, takes)
    if not takes.renders:
        log.warning("chat template %s fails on a single user message: messages reach it unadapted", name)
        return
    if says_tools:
        log.info("chat template %s puts no tools into the prompt: they are said in the messages", name)
        return
    if not takes.tools:
        log.warning(
            "chat template %s puts no tools into the prompt: give one that does with --chat-template, or have them "
            "said in the messages with --tool-template",
            name,
        )
    if not takes.calls or not takes.results:
        log.warning("chat template %s renders no tool calls: conversations with tool calls are refused", name)
