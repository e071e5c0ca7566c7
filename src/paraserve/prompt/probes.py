"""The small conversations that a template is tried on, and what counts as whole.

Never decides what a capability means: that is `capabilities`. One invariant: every text below is unique, so that
finding it in a rendered prompt can only mean that its message got there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paraserve.prompt.errors import PromptError
from paraserve.prompt.template import ChatTemplate

USER, NEXT, SYSTEM, LATE = "probeuser", "probenext", "probesystem", "probelate"
TEXT, SECOND_TEXT, REASON = "probetext", "probeagain", "probereason"
RESULT, SECOND_RESULT = "proberesult", "probesecond"
NAME, SECOND_NAME, KEY = "probe_alpha", "probe_beta", "probekey"
VALUE, SECOND_VALUE = "probevalue", "probeothervalue"
LONG_IDS = ("call_probe_one_24_letters", "call_probe_two_24_letters")
SHORT_IDS = ("probeid01", "probeid02")
MEDIA_URL = "https://probe.invalid/media"
PARTS = [{"type": "text", "text": "probeone"}, {"type": "text", "text": "probetwo"}]
SPECIAL_TOKEN_VARIABLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Message = dict[str, Any]
Content = Literal["empty", "null", "missing", "text"]
EMPTY_TURNS: Mapping[str, Any] = {"empty_text": "", "empty_part": [{"type": "text", "text": ""}]}
"""Contents of an assistant's turn in which nothing is said, by name."""
CallText = Literal["shown", "shown_last", "split", "split_later", "split_last", "dropped"]
ResultOrder = Literal["sent", "named", "sorted"]
References = Literal["shown", "inlined", "described"]
UserBehindResults = Literal["direct", "empty_text", "empty_part", "none"]


def _tool(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {KEY: {"type": "string", "description": "a key"}}, "required": [KEY]}
    return {"type": "function", "function": {"name": name, "description": "a probe", "parameters": schema}}


TOOLS = [_tool(NAME), _tool(SECOND_NAME)]


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def system(content: Any) -> Message:
    return {"role": "system", "content": content}


def assistant(content: Any) -> Message:
    return {"role": "assistant", "content": content}


@dataclass(frozen=True, slots=True)
class CallShape:
    """One way to spell an assistant's tool call."""

    arguments: Literal["object", "string"]
    content: Literal["empty", "null", "missing"]
    call_id: str

    def call(self, name: str, value: str, call_id: str) -> Message:
        arguments: Any = {KEY: value} if self.arguments == "object" else f'{{"{KEY}": "{value}"}}'
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def message(self, *calls: Message, **fields: Any) -> Message:
        contents: dict[str, Message] = {"empty": {"content": ""}, "null": {"content": None}, "missing": {}}
        content = contents[self.content]
        return {"role": "assistant", **content, "tool_calls": list(calls), **fields}


def call_shapes() -> Iterator[CallShape]:
    """Best first: what most templates are written for comes first, and names the shape of later probes."""
    for call_id in (LONG_IDS[0], SHORT_IDS[0]):
        for content in ("empty", "null", "missing"):
            for arguments in ("object", "string"):
                yield CallShape(arguments, content, call_id)


def shows(text: str, *wanted: str) -> bool:
    """All of the texts, in this order."""
    place = 0
    for part in wanted:
        place = text.find(part, place)
        if place < 0:
            return False
    return True


def leaks(text: str) -> bool:
    """Parts of ours are in the text, as Python or JSON spells them."""
    return any(mark in text for mark in ("'type'", '"type": "text"', '"type":"text"', MEDIA_URL))


def shows_parts(text: str) -> bool:
    return shows(text, "probeone", "probetwo") and not leaks(text)


class Prober:
    """Renders probes of one template."""

    def __init__(self, template: ChatTemplate, special_tokens: Mapping[str, str]) -> None:
        self._template = template
        self._special_tokens = special_tokens
        self.shape: CallShape | None = None
        """The tool call spelling that works, once it is known."""
        self.thinking_on: dict[str, Any] = {}
        """Template kwargs that turn reasoning on, once they are known."""
        self.absent_tools_as_none = True
        as_none, absent = self.render([user(USER)]), self._render({"messages": [user(USER)]})
        if absent and as_none != absent and not 0 < len(as_none) < len(absent):
            self.absent_tools_as_none = False

    def render(
        self, messages: list[Message], tools: list[Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt, or nothing where the template fails."""
        given = {} if tools is None and not self.absent_tools_as_none else {"tools": tools}
        return self._render({"messages": messages, **given, **(kwargs or {})})

    def _render(self, variables: dict[str, Any]) -> str:
        try:
            return self._template.render({**self._special_tokens, "add_generation_prompt": True, **variables})
        except PromptError:
            return ""

    def _ids(self) -> tuple[str, str]:
        return SHORT_IDS if self.shape is not None and self.shape.call_id == SHORT_IDS[0] else LONG_IDS

    def tool_turn(self, result: Any = RESULT, **fields: Any) -> list[Message]:
        """A question, a call, its result. Only useful where calls are taken at all."""
        shape = self.shape or CallShape("object", "empty", SHORT_IDS[0])
        call = shape.call(NAME, VALUE, shape.call_id)
        return [user(USER), shape.message(call, **fields), tool_result(shape.call_id, result)]

    def shows_call(self, shape: CallShape) -> bool:
        call = shape.call(NAME, VALUE, shape.call_id)
        messages = [user(USER), shape.message(call), tool_result(shape.call_id, RESULT)]
        text = self.render(messages, tools=TOOLS)
        reply = text[text.rfind(USER) :]
        return VALUE in text and "None" not in reply and "{'" not in reply and f'\\"{KEY}' not in reply

    def content_lead(self) -> str:
        """The blanks before an answer in the history, where it stands behind what is the prompt for that answer."""
        asked = self.render([user(USER)])
        answered = self.render([user(USER), assistant(TEXT), user(NEXT)]).partition(TEXT)[0]
        gap = answered[len(asked) :] if asked and answered.startswith(asked) else ""
        return gap if gap.isspace() else ""

    def shows_bare_tool(self) -> bool:
        """A tool with nothing but a name comes out as one with an empty description and no parameters would."""
        bare = self.render([user(USER)], tools=[{"type": "function", "function": {"name": NAME}}])
        return NAME in bare and "None" not in bare and "Undefined" not in bare

    def shows_message_tools(self) -> bool:
        declaring = {"role": "system", "content": "", "tools": TOOLS}
        return shows(self.render([user(USER), assistant(TEXT), declaring, user(NEXT)]), NAME, SECOND_NAME, NEXT)

    def shows_tool_with(self, parameter: Mapping[str, Any], *wanted: str, **keywords: Any) -> bool:
        """A tool with a parameter of this schema; ``keywords`` stand beside the tool's parameters."""
        schema = {"type": "object", "properties": {KEY: parameter}, "required": [KEY], **keywords}
        function = {"name": NAME, "description": "a probe", "parameters": schema}
        return shows(self.render([user(USER)], [{"type": "function", "function": function}]), *wanted)

    def references(self) -> References:
        fields = {VALUE: {"type": "string", "description": "d", "enum": [SECOND_VALUE]}}
        definition = {"type": "object", "description": "d", "properties": fields}
        reference = {"$ref": "#/$defs/Probe"}
        if self.shows_tool_with(reference, VALUE, SECOND_VALUE, **{"$defs": {"Probe": definition}}):
            return "shown"
        return "inlined" if self.shows_tool_with(definition, VALUE, SECOND_VALUE) else "described"

    def parallel(self) -> Literal["native", "split", "none"]:
        shape = self.shape or CallShape("object", "empty", SHORT_IDS[0])
        first, second = self._ids()
        calls = [shape.call(NAME, VALUE, first), shape.call(SECOND_NAME, SECOND_VALUE, second)]
        results = [tool_result(first, RESULT), tool_result(second, SECOND_RESULT)]
        together = [user(USER), shape.message(*calls), *results]
        if all(text in self.render(together, tools=TOOLS) for text in (VALUE, SECOND_VALUE, RESULT, SECOND_RESULT)):
            return "native"
        apart = [user(USER), shape.message(calls[0]), results[0], shape.message(calls[1]), results[1]]
        shown = shows(self.render(apart, tools=TOOLS), VALUE, RESULT, SECOND_VALUE, SECOND_RESULT)
        return "split" if shown else "none"

    def _two_calls(self) -> tuple[list[Message], Message, Message]:
        """A question with two calls of one function, and their results."""
        shape = self.shape or CallShape("object", "empty", SHORT_IDS[0])
        first, second = self._ids()
        calls = [shape.call(NAME, VALUE, first), shape.call(NAME, SECOND_VALUE, second)]
        return (
            [user(USER), shape.message(*calls)],
            tool_result(first, RESULT),
            tool_result(second, SECOND_RESULT),
        )

    def result_order(self) -> ResultOrder:
        """Whether the prompt tells apart which of two calls of one function a result answers."""
        asked, first, second = self._two_calls()
        swapped = [{**first, "content": SECOND_RESULT}, {**second, "content": RESULT}]
        rendered = self.render([*asked, first, second], TOOLS)
        if rendered == self.render([*asked, second, first], TOOLS):
            return "sorted"
        return "sent" if rendered == self.render([*asked, *reversed(swapped)], TOOLS) else "named"

    def late_results(self) -> bool:
        """A result is still there when another message stands between it and its call, or between two results."""
        asked, first, second = self._two_calls()
        question, call, result = self.tool_turn()
        return all(
            shows(self.render(messages, TOOLS), *wanted)
            for between in (user(LATE), assistant(LATE))
            for messages, wanted in (
                ([question, call, between, result], (LATE, RESULT)),
                ([*asked, first, between, second], (RESULT, LATE, SECOND_RESULT)),
            )
        )

    def user_behind_results(self) -> UserBehindResults:
        turn = self.tool_turn()
        if shows(self.render([*turn, user(NEXT)], TOOLS), RESULT, NEXT):
            return "direct"
        for name in ("empty_text", "empty_part"):
            between = assistant(EMPTY_TURNS[name])
            if shows(self.render([*turn, between, user(NEXT)], TOOLS), RESULT, NEXT):
                return name
        return "none"

    def call_text(self) -> CallText:
        """How text beside tool calls survives two rounds of calls, with an answer and another turn after them."""
        if self._shows_rounds(apart=(False, False), answered=False):
            return "shown" if self._shows_rounds(apart=(False, False), answered=True) else "shown_last"
        if self._shows_rounds(apart=(False, True), answered=True):
            return "split_later"
        if self._shows_rounds(apart=(True, True), answered=True):
            return "split"
        question, call, result = self.tool_turn()
        turn = [question, assistant(TEXT), call, result]
        return "split_last" if shows(self.render(turn, TOOLS), TEXT, VALUE, RESULT) else "dropped"

    def _shows_rounds(self, *, apart: tuple[bool, bool], answered: bool) -> bool:
        """``apart``: in which round the text is a message of its own."""
        shape = self.shape or CallShape("object", "empty", SHORT_IDS[0])
        first, second = self._ids()
        rounds = (
            (TEXT, shape.call(NAME, VALUE, first), tool_result(first, RESULT)),
            (SECOND_TEXT, shape.call(SECOND_NAME, SECOND_VALUE, second), tool_result(second, SECOND_RESULT)),
        )
        messages = [user(USER)]
        wanted = [USER, VALUE, SECOND_VALUE]
        for separate, (text, call, result) in zip(apart, rounds, strict=True):
            said = [assistant(text), shape.message(call)] if separate else [shape.message(call, content=text)]
            messages += [*said, result]
            wanted += [text, result["content"]]
        if answered:
            messages += [assistant(LATE), user(NEXT)]
            wanted += [LATE, NEXT]
        # In any order: a template may write the text behind the call, or behind its result.
        rendered = self.render(messages, TOOLS)
        return all(text in rendered for text in wanted)

    def with_reasoning(self, fields: Mapping[str, Any]) -> str:
        """A conversation whose last assistant message has ``fields``: in a tool turn where calls are taken."""
        if self.shape is not None:
            return self.render(self.tool_turn(**fields), TOOLS, self.thinking_on)
        return self.render([user(USER), {**assistant(TEXT), **fields}], None, self.thinking_on)

    def shows_media(self, role: str, part_type: str) -> bool:
        """A part of this type leaves a mark beside the text, and not its URL or its spelling."""
        value: Any = {"url": MEDIA_URL} if part_type.endswith("_url") else MEDIA_URL
        if part_type == "input_audio":
            value = {"data": MEDIA_URL, "format": "wav"}
        field = "image_url" if part_type == "input_image" else part_type
        text_part = {"type": "text", "text": TEXT}
        with_media = self._media_turn(role, [text_part, {"type": part_type, field: value}])
        without = self._media_turn(role, [text_part])
        return TEXT in with_media and with_media != without and not leaks(with_media)

    def _media_turn(self, role: str, content: list[Any]) -> str:
        if role == "tool":
            return self.render(self.tool_turn(result=content), tools=TOOLS) if self.shape else ""
        messages = [user(content)] if role == "user" else [{"role": role, "content": content}, user(USER)]
        return self.render(messages)


def tool_result(call_id: str, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}
