"""What a conversation must be before any template sees it: messages that are whole and belong together.

Never knows templates. One invariant: a refusal names the field (``messages[2].tool_calls[0].function.name``), and
nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.prompt.errors import PromptError
from paraserve.prompt.parts import check_part

Message = Mapping[str, Any]


def check_messages(messages: Sequence[Message]) -> None:
    """Raises `PromptError` for the first thing that is wrong."""
    if not messages:
        raise PromptError("messages: at least one message is needed")
    known_ids: set[str] = set()
    for place, message in enumerate(messages):
        path = f"messages[{place}]"
        role = message["role"]
        _check_content(message, role, path)
        if role == "assistant":
            known_ids.update(_check_calls(message.get("tool_calls"), path))
        elif role == "tool":
            _check_result(message, known_ids, path)
        elif role == "function":
            raise PromptError(
                f"{path}.role: the function role is not supported; send the result with role tool and a tool_call_id",
                f"{path}.role",
            )


def _check_content(message: Message, role: str, path: str) -> None:
    content = message.get("content")
    if content is None and role in ("user", "system", "developer"):
        raise PromptError(f"{path}.content: a {role} message needs content", f"{path}.content")
    if isinstance(content, list):
        for place, part in enumerate(content):
            check_part(part, f"{path}.content[{place}]")
    elif content is not None and not isinstance(content, str):
        raise PromptError(f"{path}.content: content is a string or a list of parts", f"{path}.content")


def _check_calls(calls: Any, path: str) -> list[str]:
    """The ids of an assistant's calls."""
    ids = []
    for place, call in enumerate(calls or ()):
        where = f"{path}.tool_calls[{place}]"
        if not isinstance(call, Mapping):
            raise PromptError(f"{where}: a tool call must be an object", where)
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            raise PromptError(f"{where}.function.name: a tool call needs its function's name", f"{where}.function.name")
        if not isinstance(call.get("id"), str) or not call["id"]:
            raise PromptError(f"{where}.id: a tool call needs an id", f"{where}.id")
        ids.append(call["id"])
    return ids


def _check_result(message: Message, known_ids: set[str], path: str) -> None:
    where = f"{path}.tool_call_id"
    number = message.get("tool_call_id")
    if not isinstance(number, str) or not number:
        raise PromptError(f"{where}: a tool message needs the id of the call that it answers", where)
    if number not in known_ids:
        raise PromptError(f"{where}: no assistant message before this one has a tool call with this id", where)
