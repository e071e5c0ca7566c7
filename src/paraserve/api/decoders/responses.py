"""A request of OpenAI's Responses API as the chat request that says the same.

Never knows the model or a store: the items of a conversation that was kept stand before those that were sent. Two
invariants: nothing that an item says is dropped but what the names in `ResponsesForm.notes` say, and the same
conversation over the chat API becomes the same messages.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paraserve.api.decoders.client_names import MESSAGE, ClientNames
from paraserve.api.decoders.response_tools import INPUT, ClientTool, joined_name, tool_form
from paraserve.protocol.chat import ChatCompletionRequest, check_chat
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.responses import (
    CallOutputItem,
    ContentPart,
    CustomToolCallItem,
    FunctionCallItem,
    InputTokensRequest,
    Item,
    MessageItem,
    ReasoningItem,
    ResponsesRequest,
    read_item,
)
from paraserve.protocol.sampling import JsonSchemaFormat, ResponseFormat

Message = dict[str, Any]
Part = dict[str, Any]
Open = Callable[[str], str | None]

LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"
"""What ``include`` may ask for here."""

BETWEEN_TEXTS = "\n\n"
"""Between two messages that follow each other in one turn."""


@dataclass(slots=True)
class ResponsesForm:
    """Args:
    request: for the chat turn.
    names: what the client calls the things in it.
    tools: of the names that the model reads.
    notes: names of what was left out or changed (docs/responses.md lists them).
    """

    request: ChatCompletionRequest
    names: ClientNames
    tools: Mapping[str, ClientTool]
    notes: Sequence[str]


@dataclass(slots=True)
class _AssistantTurn:
    """Consecutive items of the model: one message, in whatever order they come."""

    message: Message = field(default_factory=lambda: {"role": "assistant", "content": ""})
    after_text: bool = False
    open_calls: set[str] = field(default_factory=set)

    def think(self, text: str) -> None:
        self.message["reasoning_content"] = self.message.get("reasoning_content", "") + text
        self.after_text = False

    def say(self, text: str) -> None:
        before = self.message["content"] or ""
        self.message["content"] = before + (BETWEEN_TEXTS if self.after_text and before and text else "") + text
        self.after_text = True

    def call(self, call_id: str, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        self.message.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})
        self.message["content"] = self.message["content"] or None
        self.open_calls.add(call_id)
        self.after_text = False


@dataclass(slots=True)
class _Conversation:
    open: Open
    messages: list[Message] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    turn: _AssistantTurn | None = None
    """The model's, while it goes on."""
    last_turn: _AssistantTurn | None = None

    def add(self, message: Message, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)

    def other(self, message: Message, place: str) -> None:
        """What is not the model's ends its turn."""
        self.turn = None
        self.add(message, place)

    def models(self, place: str) -> _AssistantTurn:
        if self.turn is None:
            self.turn = self.last_turn = _AssistantTurn()
            self.add(self.turn.message, place)
        return self.turn

    def item(self, item: Item, place: str) -> None:
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise field_error(f"{place}.type", "field required", ErrorCode.MISSING_REQUIRED_PARAMETER)
        if kind in _READERS:
            _READERS[kind](self, item, place)
        else:
            self.notes["item_references_skipped" if kind == "item_reference" else "input_items_skipped"] = None

    def message(self, item: Item, place: str) -> None:
        message = read_item(item, MessageItem, place)
        if message.role != "assistant":
            self.other({"role": message.role, "content": _content(message.content, place)}, place)
            return
        text = _text(message.content)
        if not text:
            return
        between = self.turn is None and self.last_turn is not None and self.last_turn.open_calls
        turn = self.last_turn if between and self.last_turn is not None else self.models(place)
        turn.say(text)

    def reasoning(self, item: Item, place: str) -> None:
        thought = self._thought(read_item(item, ReasoningItem, place))
        if thought:
            self.models(place).think(thought)

    def _thought(self, item: ReasoningItem) -> str:
        if text := _text(item.content or []):
            return text
        if item.encrypted_content:
            opened = self.open(item.encrypted_content)
            if opened is not None:
                return opened
            if not item.summary:
                self.notes["sealed_reasoning_dropped"] = None
        return BETWEEN_TEXTS.join(part.text for part in item.summary or () if part.text)

    def function_call(self, item: Item, place: str) -> None:
        call = read_item(item, FunctionCallItem, place)
        arguments = call.arguments or ""
        if arguments and not _is_object(arguments):
            self.notes["broken_arguments_emptied"] = None
            arguments = "{}"
        self.models(place).call(call.call_id, joined_name(call.name, call.namespace), arguments)

    def custom_call(self, item: Item, place: str) -> None:
        call = read_item(item, CustomToolCallItem, place)
        arguments = msgspec.json.encode({INPUT: call.input}).decode()
        self.models(place).call(call.call_id, joined_name(call.name, call.namespace), arguments)

    def output(self, item: Item, place: str) -> None:
        output = read_item(item, CallOutputItem, place)
        if self.last_turn is not None:
            self.last_turn.open_calls.discard(output.call_id)
        content = _content(output.output or "", place, field="output")
        self.other({"role": "tool", "tool_call_id": output.call_id, "content": content}, place)


_READERS: Mapping[str, Callable[[_Conversation, Item, str], None]] = {
    "message": _Conversation.message,
    "reasoning": _Conversation.reasoning,
    "function_call": _Conversation.function_call,
    "custom_tool_call": _Conversation.custom_call,
    "function_call_output": _Conversation.output,
    "custom_tool_call_output": _Conversation.output,
}


def responses_form(sent: InputTokensRequest, open: Open, kept: Sequence[Item] = ()) -> ResponsesForm:
    """Args:
        open: reads what ``encrypted_content`` holds, if it is ours.
        kept: items that were stored, before those that were sent.

    Raises:
        RequestError: 400, for what cannot be served.
    """
    if sent.prompt is not None:
        raise field_error("prompt", "no prompts are kept here: send its text", ErrorCode.UNSUPPORTED_PARAMETER)
    talk = _Conversation(open)
    if sent.instructions:
        talk.add({"role": "system", "content": sent.instructions}, "instructions")
    for item in kept:
        talk.item(item, "previous_response_id")
    if isinstance(sent.input, str):
        talk.other({"role": "user", "content": sent.input}, "input")
    else:
        for number, item in enumerate(sent.input):
            talk.item(item, f"input[{number}]")
    if all(message["role"] in ("system", "developer") for message in talk.messages):
        raise field_error("input", "at least one item of a conversation is required")
    tools = tool_form(sent.tools, sent.tool_choice, talk.notes)
    request = ChatCompletionRequest(
        model=sent.model,
        messages=talk.messages,
        tools=tools.declared or None,
        tool_choice=tools.choice,
        parallel_tool_calls=sent.parallel_tool_calls,
        response_format=_response_format(sent),
        reasoning_effort=sent.reasoning.effort if sent.reasoning is not None else None,
        chat_template_kwargs=sent.chat_template_kwargs,
        **(_reply_fields(sent) if isinstance(sent, ResponsesRequest) else {}),
    )

    def own(named: re.Match[str]) -> str:
        if named["message"]:
            return talk.places[int(named["message"])]
        return tools.places[int(named["tool"])] if named["tool"] else _CHAT_NAMES[named["field"]]

    names = ClientNames(_NAMED, own)
    with names.told():
        return ResponsesForm(check_chat(request), names, tools.tools, tuple(talk.notes))


_CHAT_NAMES = {
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "max_completion_tokens": "max_output_tokens",
}
_NAMED = re.compile(
    rf"{MESSAGE}|\btools\[(?P<tool>\d+)\](?:\.function)?|\b(?P<field>{'|'.join(map(re.escape, _CHAT_NAMES))})"
)


def _reply_fields(sent: ResponsesRequest) -> dict[str, Any]:
    logprobs = bool(sent.top_logprobs) or LOGPROBS in (sent.include or ())
    return {
        "stream": sent.stream,
        "temperature": sent.temperature,
        "top_p": sent.top_p,
        "top_k": sent.top_k,
        "presence_penalty": sent.presence_penalty,
        "frequency_penalty": sent.frequency_penalty,
        "seed": sent.seed,
        "user": sent.user,
        "max_completion_tokens": sent.max_output_tokens,
        "logprobs": logprobs or None,
        "top_logprobs": sent.top_logprobs if logprobs else None,
    }


def _response_format(sent: InputTokensRequest) -> ResponseFormat | None:
    format = sent.text.format if sent.text is not None else None
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return ResponseFormat("json_object")
    if format.schema_ is None:
        raise field_error("text.format.schema", "field required", ErrorCode.MISSING_REQUIRED_PARAMETER)
    schema = JsonSchemaFormat(format.schema_, format.name, format.description, format.strict)
    return ResponseFormat("json_schema", schema)


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _text(content: str | Sequence[ContentPart]) -> str:
    """The text of the model's own parts."""
    if isinstance(content, str):
        return content
    return "".join(part.text or part.refusal or "" for part in content)


def _content(content: str | Sequence[ContentPart], place: str, field: str = "content") -> str | list[Part]:
    """One text as a text: what clients of the chat API send."""
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{place}.{field}[{number}]") for number, part in enumerate(content)]
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: ContentPart, place: str) -> Part:
    match part.type:
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" | "refusal":
            return {"type": "text", "text": part.text or part.refusal or ""}
        case "input_image" if part.image_url is not None:
            return {"type": "image_url", "image_url": {"url": part.image_url}}
        case "input_audio" if part.input_audio is not None:
            return {"type": "input_audio", "input_audio": part.input_audio}
        case "input_file" if part.file_data is not None:
            return {"type": "text", "text": _file_text(part.file_data, part.filename, place)}
        case "input_image" | "input_file":
            raise _unsupported("files are not kept or fetched here: send the content itself", place)
        case _:
            raise _unsupported(f"parts of type {part.type} are not supported", place)


def _file_text(data: str, filename: str | None, place: str) -> str:
    """A file's text under its name. Raises `RequestError` for a file that is no text."""
    try:
        raw = base64.b64decode(data.partition(",")[2] if data.startswith("data:") else data, validate=True)
        text = raw.decode()
    except ValueError:
        raise _unsupported("a file is taken as text: this one is not in UTF-8, or not in base64", place) from None
    if "\0" in text:
        raise _unsupported("a file is taken as text", place)
    return f"{filename}\n\n{text}" if filename else text


def _unsupported(why: str, place: str) -> RequestError:
    return field_error(place, why, ErrorCode.UNSUPPORTED_CONTENT)
