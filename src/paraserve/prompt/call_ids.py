"""Ids of tool calls in a prompt: the model's own where another layer respelled them, short ones where a template wants
them.

Never invents an id of a model's own form: that is a policy. One invariant: a call and its results have the same id
after as before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
Notes = dict[str, None]

CALL_ID = re.compile(r"[A-Za-z0-9]{9}")
_ANY_SIGN = "[^A-Za-z0-9]?"


def restore_ids(messages: list[Message], notes: Notes) -> None:
    """Put back the signs of ids that were the model's own (``functions.NAME:INDEX``) before another layer respelled
    them: gateways replace what their API allows in no id, so that ``functions.read:0`` comes back as
    ``functions_read_0``, in the call and in its result. An id that two calls would share afterwards stays as it is.
    """
    given = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    restored: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls", ()):
            own = _own_id(call["id"], call["function"]["name"])
            if own is not None and own not in given and own not in restored.values():
                restored[call["id"]] = own
    if restored:
        notes["restored_ids"] = None
        _rename(messages, lambda call_id: restored.get(call_id, call_id))


def _own_id(call_id: str, name: str) -> str | None:
    """The model's own id that this one differs from in signs only; None where there is none."""
    spelled = "".join(letter if letter.isalnum() else _ANY_SIGN for letter in name)
    found = re.fullmatch(f"functions{_ANY_SIGN}{spelled}{_ANY_SIGN}([0-9]+)", call_id)
    return f"functions.{name}:{found[1]}" if found else None


def shorten_ids(messages: list[Message], notes: Notes) -> None:
    """Ids of nine letters and digits for templates that raise on others: the same id for a call and its result."""
    _rename(messages, lambda call_id: short_id(call_id, notes))


def short_id(call_id: str, notes: Notes) -> str:
    if CALL_ID.fullmatch(call_id):
        return call_id
    notes["short_ids"] = None
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _rename(messages: list[Message], new: Callable[[str], str]) -> None:
    for message in messages:
        if "tool_calls" in message:
            message["tool_calls"] = [{**call, "id": new(call["id"])} for call in message["tool_calls"]]
        if message["role"] == "tool":
            message["tool_call_id"] = new(message["tool_call_id"])
