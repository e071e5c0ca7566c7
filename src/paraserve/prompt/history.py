"""Adapts a conversation to what the model's template takes, without changing what it says.

Never renders, and never knows a model's name: it reads `TemplateCapabilities`. Two invariants: a message that the
template takes goes through as the client sent it (only keys that say nothing are left out: nulls, empty ``tool_calls``,
``cache_control``), and nothing that a message says is dropped here: what the template has no place for is a
`PromptError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.formats.spec import IdStyle
from paraserve.prompt.call_ids import restore_ids, shorten_ids
from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.errors import PromptError
from paraserve.prompt.instructions import place_instructions
from paraserve.prompt.parts import joined_text, media_kind, part_text, thought_text
from paraserve.prompt.template import tojson
from paraserve.prompt.tool_declarations import declare_tools
from paraserve.prompt.tool_results import result_order
from paraserve.prompt.turns import place_turns
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.messages import THINKING_TYPE

Message = dict[str, Any]
Notes = dict[str, None]
"""Names of the adaptations that were made, in order."""

SILENT_KEYS = frozenset({"cache_control"})
"""Keys that steer a server and say nothing to a model."""

REASONING_JOINER = "\n\n"


class HistoryAdapter:
    """For one template."""

    def __init__(
        self, capabilities: TemplateCapabilities, *, lenient_arguments: bool = True, ids: IdStyle = "generic"
    ) -> None:
        """
        Args:
            capabilities: what the template takes.
            lenient_arguments: call arguments in the history that are no JSON object reach the template as they are
                (as ``{"arguments": "…"}`` where it takes only objects) instead of being refused.
            ids: how the model spells the ids of its calls.
        """
        self._takes = capabilities
        self._lenient = lenient_arguments
        self._ids = ids

    def adapt(
        self, messages: Sequence[Mapping[str, Any]], *, keep_last: bool = False
    ) -> tuple[list[Message], tuple[str, ...]]:
        """The messages for the template, and the names of what was changed.

        Args:
            keep_last: the last message is one to go on with: it stays, also where nothing is in it.

        Raises:
            PromptError: a message says something that the template has no place for.
        """
        notes: Notes = {}
        adapted = self._messages(messages, notes)
        adapted = place_instructions(adapted, self._takes, notes)
        adapted = place_turns(adapted, self._takes, notes, keep_last=keep_last)
        adapted = self._separate_text(adapted, notes)
        adapted = self._separate_calls(adapted, notes)
        if self._ids == "counted":
            restore_ids(adapted, notes)
        if self._takes.short_ids:
            shorten_ids(adapted, notes)
        return adapted, tuple(notes)

    def _messages(self, messages: Sequence[Mapping[str, Any]], notes: Notes) -> list[Message]:
        """Each as the template takes it, results behind their calls. What the template shows in no result but in a
        user's message, like an image, follows the results in one."""
        takes = self._takes
        sort = takes.result_order != "named"
        adapted: list[Message] = []
        carried: list[dict[str, Any]] = []
        for place in result_order(messages, gather=not takes.late_results, sort=sort, notes=notes):
            if carried and messages[place]["role"] != "tool":
                adapted.append({"role": "user", "content": carried})
                carried = []
            adapted += self._declaring(self._message(messages[place], f"messages[{place}]", notes, carried), notes)
        if carried:
            adapted.append({"role": "user", "content": carried})
        return adapted

    def _declaring(self, message: Message, notes: Notes) -> list[Message]:
        """A system message that declares tools as one that does nothing else, behind one with what it says."""
        if "tools" not in message:
            return [message]
        said = {key: value for key, value in message.items() if key != "tools"}
        declared = declare_tools(message["tools"], self._takes, notes)
        declaring = {"role": "system", "content": "", "tools": declared}
        return [said, declaring] if said.get("content") else [declaring]

    def _message(self, message: Mapping[str, Any], path: str, notes: Notes, carried: list[dict[str, Any]]) -> Message:
        """``carried``: takes the parts that have no place in this message."""
        # One copy of the top level: everything below may set keys of it, and nothing of the client's.
        copy = {key: value for key, value in message.items() if value is not None and key not in SILENT_KEYS}
        if message.get("content") is None and "content" in message:
            copy["content"] = None
        if not copy.get("tool_calls", True):
            del copy["tool_calls"]
        if not copy.get("tools", True):
            del copy["tools"]
        if "tools" in copy and not self._takes.message_tools:
            raise PromptError(
                f"{path}.tools: this model's chat template shows none here; send them in the request's tools",
                f"{path}.tools",
                ErrorCode.UNSUPPORTED_CONTENT,
            )
        role = copy["role"]
        place = "call" if "tool_calls" in copy else role
        if isinstance(copy.get("content"), list):
            if role == "tool":
                copy["content"] = self._without_carried(copy["content"], path, notes, carried)
            copy["content"] = self._parts(copy, place, path, notes)
        if role == "assistant":
            self._assistant(copy, path, notes)
        elif role == "tool":
            if not self._takes.results:
                raise _no_place(path, "tool results")
            if copy.get("content") is None:
                copy["content"] = ""
                notes["null_content"] = None
        return copy

    def _assistant(self, message: Message, path: str, notes: Notes) -> None:
        calls = message.get("tool_calls")
        if message.get("refusal") and not message.get("content"):
            notes["refusal_as_content"] = None
            message["content"] = message.pop("refusal")
        if calls is not None:
            if not self._takes.calls:
                raise _no_place(path, "tool calls")
            message["tool_calls"] = [
                self._call(call, f"{path}.tool_calls[{place}]", notes) for place, call in enumerate(calls)
            ]
        self._reasoning(message, notes)
        if message.get("content") is None and calls is None:
            notes["null_content"] = None
            message["content"] = ""
        elif calls is not None and not message.get("content"):
            self._empty_content(message, notes)

    def _empty_content(self, message: Message, notes: Notes) -> None:
        """Beside tool calls, nothing is spelled as the template takes it."""
        present = "missing" if "content" not in message else "null" if message["content"] is None else "empty"
        if present in self._takes.call_contents:
            return
        notes["null_content"] = None
        wanted = next((form for form in ("empty", "null", "missing") if form in self._takes.call_contents), "empty")
        message.pop("content", None)
        if wanted != "missing":
            message["content"] = "" if wanted == "empty" else None

    def _without_carried(self, parts: list[Any], path: str, notes: Notes, carried: list[dict[str, Any]]) -> list[Any]:
        """The parts of a result without the media that the template shows only in a user's message."""
        kept = []
        for number, part in enumerate(parts):
            kind = media_kind(part)
            if kind and f"tool.{kind}" not in self._takes.media and f"user.{kind}" in self._takes.media:
                notes["result_media_to_user"] = None
                carried.append(self._part(part, "user", f"{path}.content[{number}]", notes))
            else:
                kept.append(part)
        return kept

    def _parts(self, message: Message, place: str, path: str, notes: Notes) -> Any:
        """Content parts as a list that the template takes, or as one text."""
        role = message["role"]
        if role == "developer" and not self._takes.developer:
            role = "system"  # which it is going to be
        parts = [
            self._part(part, role, f"{path}.content[{number}]", notes) for number, part in enumerate(message["content"])
        ]
        if role == "assistant" and "part" not in self._takes.reasoning_fields:
            thoughts = [thought for part in parts if (thought := thought_text(part)) is not None]
            parts = [part for part in parts if thought_text(part) is None]
            if thoughts and not message.get("reasoning_content"):
                message["reasoning_content"] = REASONING_JOINER.join(thoughts)
                notes["reasoning_parts"] = None
        only_text = all(part_text(part) is not None for part in parts)
        if not parts:
            notes["joined_parts"] = None
            return ""
        if only_text and place not in self._takes.lists:
            notes["joined_parts"] = None
            return joined_text(parts)
        return parts

    def _part(self, part: Mapping[str, Any], role: str, path: str, notes: Notes) -> dict[str, Any]:
        """One part under the type that the template looks for."""
        text = part_text(part)
        if text is not None:
            if part.get("type") == "text":
                return {key: value for key, value in part.items() if key not in SILENT_KEYS}
            return {"type": "text", "text": text}
        kind = media_kind(part)
        if kind is None:
            if role != "assistant":
                raise PromptError(f"{path}.type: a {part['type']} part belongs to the assistant", f"{path}.type")
            return {"type": THINKING_TYPE, THINKING_TYPE: thought_text(part)}
        wanted = self._takes.media.get(f"{role}.{kind}")
        if wanted is None:
            message = f"{path}: this model's chat template takes no {kind} in a {role} message"
            raise PromptError(message, path, ErrorCode.UNSUPPORTED_CONTENT)
        if part["type"] != wanted:
            notes["media_part_type"] = None
            return {"type": wanted, wanted: part.get(part["type"], part.get("image_url"))}
        return {key: value for key, value in part.items() if key not in SILENT_KEYS}

    def _reasoning(self, message: Message, notes: Notes) -> None:
        """``reasoning_content`` and ``reasoning`` are one thing; the first wins where they differ."""
        thought = message.get("reasoning_content") or message.get("reasoning")
        if not isinstance(thought, str) or not thought:
            return
        content = message.get("content")
        fields = self._takes.reasoning_fields
        if not self._takes.reasoning_beside_text and "tool_calls" in message and content:
            text = content if isinstance(content, str) else joined_text(content)
            thought, message["content"] = REASONING_JOINER.join((thought, text)), ""
            notes["text_into_reasoning"] = None
        message["reasoning_content"] = message["reasoning"] = thought
        if "thinking" in fields and "reasoning_content" not in fields:
            message["thinking"] = thought
        if "part" in fields:
            rest = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
            message["content"] = [{"type": THINKING_TYPE, THINKING_TYPE: thought}, *rest]
            notes["reasoning_parts"] = None

    def _call(self, call: Mapping[str, Any], path: str, notes: Notes) -> dict[str, Any]:
        function = call["function"]
        arguments = function.get("arguments")
        adapted = self._arguments(arguments, f"{path}.function.arguments", notes)
        if adapted is arguments:
            return dict(call)
        return {**call, "function": {**function, "arguments": adapted}}

    def _arguments(self, value: Any, path: str, notes: Notes) -> Any:
        """Arguments as an object or as JSON text, whichever the template takes; as they are where it takes both."""
        forms = self._takes.arguments
        text = isinstance(value, str)
        if value is None or (text and value.strip() in ("", "null")):
            notes["empty_arguments"] = None
            return {} if "object" in forms else "{}"
        try:
            parsed = json.loads(value, parse_constant=_refuse_constant) if text else value
            if not isinstance(parsed, dict):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            if self._lenient:
                notes["invalid_arguments"] = None
                if text and "string" in forms:
                    return value
                return {"arguments": value} if "object" in forms else tojson({"arguments": value})
            raise PromptError(f"{path}: the arguments of a tool call must be a JSON object", path) from error
        if ("string" if text else "object") in forms:
            return value
        notes["parsed_arguments" if text else "dumped_arguments"] = None
        return parsed if text else tojson(value)

    def _separate_text(self, messages: list[Message], notes: Notes) -> list[Message]:
        """Text and tool calls in two messages, where the template loses one of them beside the other."""
        with_text = [
            place for place, message in enumerate(messages) if "tool_calls" in message and message.get("content")
        ]
        separable = self._separable(messages, with_text)
        if not separable:
            return messages
        separated: list[Message] = []
        for place, message in enumerate(messages):
            if place in separable:
                notes["separate_text"] = None
                separated.append({key: value for key, value in message.items() if key != "tool_calls"})
                message = {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}
                self._empty_content(message, notes)
            separated.append(message)
        return separated

    def _separable(self, messages: list[Message], with_text: list[int]) -> set[int]:
        """The messages, of those with text beside calls, whose text has to be a message of its own to be shown."""
        match self._takes.call_text:
            case "split":
                return set(with_text)
            case "split_later":
                first = next((place for place, message in enumerate(messages) if "tool_calls" in message), -1)
                return set(with_text) - {first}
            case "split_last":
                turn = 1 + max(
                    (place for place, message in enumerate(messages) if message["role"] == "user"), default=-1
                )
                if any(message["role"] == "assistant" and "tool_calls" not in message for message in messages[turn:]):
                    return set()
                return set([place for place in with_text if place >= turn][:1])
            case _:
                return set()

    def _separate_calls(self, messages: list[Message], notes: Notes) -> list[Message]:
        """One call a message, each followed by its result, where the template takes no more."""
        if self._takes.parallel == "native" or all(len(message.get("tool_calls", ())) < 2 for message in messages):
            return messages
        if self._takes.parallel == "none":
            raise PromptError(
                "this model's chat template takes one tool call in an assistant message",
                code=ErrorCode.UNSUPPORTED_CONTENT,
            )
        notes["separate_calls"] = None
        separated: list[Message] = []
        rest = list(reversed(messages))
        while rest:
            message = rest.pop()
            calls = message.get("tool_calls", ())
            if len(calls) < 2:
                separated.append(message)
                continue
            results = []
            while rest and rest[-1]["role"] == "tool":
                results.append(rest.pop())
            for place, call in enumerate(calls):
                first = message if place == 0 else {"role": "assistant", "content": ""}
                one = {**first, "tool_calls": [call]}
                self._empty_content(one, notes) if place else None
                answers = [result for result in results if result["tool_call_id"] == call["id"]]
                separated.extend([one, *answers])
                results = [result for result in results if result["tool_call_id"] != call["id"]]
            separated.extend(results)
        return separated


def _no_place(path: str, what: str) -> PromptError:
    return PromptError(
        f"{path}: this model's chat template does not render {what}; the conversation would lose them",
        path,
        ErrorCode.UNSUPPORTED_CONTENT,
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
