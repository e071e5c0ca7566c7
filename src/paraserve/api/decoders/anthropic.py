"""A request of Anthropic's API as the chat request that says the same.

Never knows the model: what its template has no place for is the prompt's business. Two invariants: nothing that a
message says is dropped but what the names in `ChatForm.notes` say, and the same conversation over the chat API becomes
the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paraserve.api.call_ids import restored_id
from paraserve.api.decoders.client_names import MESSAGE, ClientNames
from paraserve.protocol.anthropic import (
    AnthropicTool,
    Base64Source,
    Block,
    ContentSource,
    CountTokensRequest,
    DocumentBlock,
    FileSource,
    ImageBlock,
    InputMessage,
    MessagesRequest,
    RedactedThinkingBlock,
    SearchResultBlock,
    TextBlock,
    TextSource,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from paraserve.protocol.chat import ChatCompletionRequest, ReasoningEffort, check_chat
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError
from paraserve.protocol.sampling import JsonSchemaFormat, ResponseFormat

BILLING = "x-anthropic-billing-header"
"""What begins the block in which Claude Code tells its version and a hash of each request: no prompt that holds it is
the beginning of the next one, so that nothing could be read from a prefix cache."""
THOUGHTS = "\n\n"
"""Between thoughts of one turn."""

_NAMED = re.compile(MESSAGE)

Message = dict[str, Any]
Part = dict[str, Any]


@dataclass(slots=True)
class ChatForm:
    """Args:
    request: for the chat turn.
    names: what the client calls the things in it.
    notes: names of what was left out or changed (docs/messages.md lists them).
    """

    request: ChatCompletionRequest
    names: ClientNames
    notes: Sequence[str]


@dataclass(slots=True)
class _Conversation:
    messages: list[Message] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, message: Message, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)


def chat_form(sent: CountTokensRequest) -> ChatForm:
    """Raises `RequestError` (400) for what cannot be served."""
    if sent.thread is not None:
        raise RequestError(
            "thread: conversations are not kept here: send the whole history",
            param="thread",
            code=ErrorCode.THREAD_UNSUPPORTED,
        )
    talk = _Conversation()
    _add_system(sent.system, talk)
    for number, message in enumerate(sent.messages):
        place = f"messages[{number}]"
        if message.role == "assistant":
            _add_assistant(message, place, talk)
        else:
            _add_user(message, place, talk)
    prefilled = bool(talk.messages) and talk.messages[-1]["role"] == "assistant"
    tools = _tools(sent, talk.notes)
    format = sent.output_config.format if sent.output_config is not None else None
    fields: dict[str, Any] = {}
    if isinstance(sent, MessagesRequest):
        fields = {
            "max_completion_tokens": sent.max_tokens,
            "stream": sent.stream,
            "stop": sent.stop_sequences or None,
            "temperature": sent.temperature,
            "top_p": sent.top_p,
            "top_k": sent.top_k,
        }
    request = ChatCompletionRequest(
        model=sent.model,
        messages=talk.messages,
        tools=tools,
        tool_choice=_tool_choice(sent),
        parallel_tool_calls=False if sent.tool_choice and sent.tool_choice.disable_parallel_tool_use else None,
        response_format=None
        if format is None
        else ResponseFormat("json_schema", JsonSchemaFormat(format.schema_, strict=True)),
        reasoning_effort=_effort(sent),
        chat_template_kwargs=_thinking(sent),
        continue_final_message=True if prefilled else None,
        **fields,
    )
    names = ClientNames(_NAMED, lambda named: talk.places[int(named["message"])])
    with names.told():
        return ChatForm(check_chat(request), names, tuple(talk.notes))


def _add_system(system: str | list[TextBlock] | None, talk: _Conversation) -> None:
    if isinstance(system, str):
        texts = [system] if system else []
    else:
        blocks = [block.text for block in system or ()]
        texts = [text for text in blocks if not text.startswith(BILLING)]
        if len(texts) < len(blocks):
            talk.notes["billing_header_dropped"] = None
    if texts:
        talk.add({"role": "system", "content": _content(list(map(_text, texts)))}, "system")


def _add_user(message: InputMessage, place: str, talk: _Conversation) -> None:
    """Results of calls first, each a message of its own, and then what the user (or the system) says beside them."""
    said: list[Part] = []
    for block in _blocks(message.content):
        if isinstance(block, ToolResultBlock):
            talk.add(_result(block, place), place)
        else:
            said += _parts(block, place)
    if said or not any(isinstance(block, ToolResultBlock) for block in _blocks(message.content)):
        talk.add({"role": message.role, "content": _content(said)}, place)


def _result(block: ToolResultBlock, place: str) -> Message:
    parts = [part for inner in _blocks(block.content or "") for part in _parts(inner, place)]
    content = _content(parts)
    if block.is_error and not content:
        content = "error"
    return {"role": "tool", "tool_call_id": restored_id(block.tool_use_id), "content": content}


def _add_assistant(message: InputMessage, place: str, talk: _Conversation) -> None:
    thoughts: list[str] = []
    calls: list[Message] = []
    said: list[Part] = []
    for block in _blocks(message.content):
        if isinstance(block, ThinkingBlock):
            thoughts += [block.thinking] if block.thinking else []
        elif isinstance(block, RedactedThinkingBlock):
            talk.notes["redacted_thinking_dropped"] = None
        elif isinstance(block, ToolUseBlock):
            function = {"name": block.name, "arguments": block.input or {}}
            calls.append({"id": restored_id(block.id), "type": "function", "function": function})
        else:
            said += _parts(block, place)
    if not (thoughts or calls or said):
        return
    turn: Message = {"role": "assistant", "content": _content(said) if said or not calls else None}
    if thoughts:
        turn["reasoning_content"] = THOUGHTS.join(thoughts)
    if calls:
        turn["tool_calls"] = calls
    talk.add(turn, place)


def _blocks(content: str | list[Block] | list[Any]) -> Sequence[Block]:
    if isinstance(content, str):
        return [TextBlock(content)] if content else []
    return content


def _content(parts: list[Part]) -> str | list[Part]:
    """One text as a text: what clients of the chat API send."""
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


def _parts(block: Block, place: str) -> list[Part]:
    match block:
        case TextBlock(text=text):
            return [_text(text)] if text else []
        case ImageBlock(source=source):
            return [{"type": "image_url", "image_url": {"url": _url(source, place)}}]
        case DocumentBlock():
            return _document(block, place)
        case SearchResultBlock():
            return [_text("\n".join((block.title, block.source, *(inner.text for inner in block.content))))]
        case ToolReferenceBlock(tool_name=name):
            return [_text(name)]
        case _:
            kind = str(block.__struct_config__.tag)
            raise RequestError(
                f"{place}.content: a {kind} block does not belong here",
                param=f"{place}.content",
                code=ErrorCode.INVALID_VALUE,
            )


def _url(source: Base64Source | URLSource | FileSource, place: str) -> str:
    if isinstance(source, FileSource):
        raise _unsupported("files are not kept here: send their content", place)
    return source.url if isinstance(source, URLSource) else f"data:{source.media_type};base64,{source.data}"


def _document(block: DocumentBlock, place: str) -> list[Part]:
    heading = [_text(text + "\n\n") for text in (block.title, block.context) if text]
    match block.source:
        case TextSource(data=data):
            return [*heading, _text(data)]
        case ContentSource(content=content):
            return [*heading, *(part for inner in _blocks(content) for part in _parts(inner, place))]
        case _:
            raise _unsupported("a document is taken as text: this model reads no files", place)


def _unsupported(why: str, place: str) -> RequestError:
    return RequestError(f"{place}.content: {why}", param=f"{place}.content", code=ErrorCode.UNSUPPORTED_CONTENT)


def _tools(sent: CountTokensRequest, notes: dict[str, None]) -> list[Message] | None:
    """The client's own tools. One that Anthropic would run is left out, unless it is the one that must be called."""
    chosen = sent.tool_choice.name if sent.tool_choice is not None and sent.tool_choice.type == "tool" else None
    declared = []
    for number, tool in enumerate(sent.tools or ()):
        if tool.ours:
            declared.append(_function(tool))
        elif tool.name == chosen:
            raise RequestError(
                f"tool_choice: {tool.name} is a tool of Anthropic's servers, which does not run here",
                param=f"tools[{number}].type",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        else:
            notes["server_tools_dropped"] = None
    return declared or None


def _function(tool: AnthropicTool) -> Message:
    function: Message = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema or {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _tool_choice(sent: CountTokensRequest) -> str | dict[str, Any] | None:
    choice = sent.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        if not choice.name:
            raise RequestError(
                "tool_choice.name: field required when type is tool",
                param="tool_choice.name",
                code=ErrorCode.MISSING_REQUIRED_PARAMETER,
            )
        return {"type": "function", "function": {"name": choice.name}}
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]


def _effort(sent: CountTokensRequest) -> ReasoningEffort | None:
    if sent.output_config is None or (sent.thinking is not None and sent.thinking.type == "disabled"):
        return None
    return sent.output_config.effort


def _thinking(sent: CountTokensRequest) -> dict[str, Any] | None:
    """The wish, under the name that every template's switch is found by (`prompt.thinking`)."""
    return None if sent.thinking is None else {"enable_thinking": sent.thinking.type != "disabled"}
