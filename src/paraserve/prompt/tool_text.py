"""Tools for chat templates that know none: said in the messages themselves.

Declarations go into the system message, calls into the assistant's text, results into a user's message. Never knows a
model: how it is said is data (`ToolText`), with the output format that reads such calls again. One
invariant: what is written of a call is what that format reads as this call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.formats.spec import ToolText
from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.history import HistoryAdapter
from paraserve.prompt.instructions import JOINER
from paraserve.prompt.parts import joined_text
from paraserve.prompt.template import tojson

Message = dict[str, Any]


class TextualTools:
    """Adapts conversations with tools for one template that knows none."""

    def __init__(self, text: ToolText, takes: TemplateCapabilities, *, lenient_arguments: bool = True) -> None:
        calls = TemplateCapabilities(
            lists=frozenset({"user", "assistant"}),
            media=takes.media,
            arguments=frozenset({"object"}),
            result_order="sent",
            late_results=False,
            message_tools=False,
        )
        self._text = text
        self._calls = HistoryAdapter(calls, lenient_arguments=lenient_arguments)
        self._template = HistoryAdapter(takes)

    def adapt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        *,
        keep_last: bool = False,
    ) -> tuple[list[Message], tuple[str, ...]]:
        """The messages with everything of tools said in them, and the names of what was changed.

        Raises:
            PromptError: as `HistoryAdapter.adapt`.
        """
        whole, named = self._calls.adapt(messages, keep_last=True)
        notes = (note for note in named if note != "parsed_arguments")  # they are written out again
        said = self._said(whole)
        if tools:
            declared = self._text.instructions.replace("{tools}", "\n".join(map(tojson, tools)))
            said = _instructed(said, declared)
        adapted, more = self._template.adapt(said, keep_last=keep_last)
        mine = ("tools_as_text",) if tools or said != whole else ()
        return adapted, tuple(dict.fromkeys((*notes, *mine, *more)))

    def _said(self, messages: list[Message]) -> list[Message]:
        said: list[Message] = []
        behind_result = False
        for message in messages:
            if message["role"] == "tool":
                result = self._text.result.replace("{result}", _plain(message["content"]))
                if behind_result:
                    said[-1]["content"] += "\n" + result
                else:
                    said.append({"role": "user", "content": result})
            elif "tool_calls" in message:
                texts = [_plain(message.get("content") or ""), *map(self._call, message["tool_calls"])]
                rest = {key: value for key, value in message.items() if key != "tool_calls"}
                said.append({**rest, "content": "\n".join(filter(None, texts))})
            else:
                said.append(message)
            behind_result = message["role"] == "tool"
        return said

    def _call(self, call: Mapping[str, Any]) -> str:
        function = call["function"]
        spelled = tojson({"name": function["name"], "arguments": function["arguments"]})
        return self._text.call.replace("{call}", spelled)


def _instructed(messages: list[Message], text: str) -> list[Message]:
    """With a text at the end of the first instructions."""
    if messages and messages[0]["role"] in ("system", "developer"):
        head = _plain(messages[0]["content"])
        return [{**messages[0], "content": JOINER.join(filter(None, (head, text)))}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else joined_text(content)
