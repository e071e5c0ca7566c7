"""Turns that a template does not take one behind the other: empty ones, users' side by side, users' behind results.

Never knows why a template refuses them. One invariant: what a message says stays, in its order; only turns in which
nothing is said are dropped or added.
"""

from __future__ import annotations

from typing import Any

from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.instructions import JOINER
from paraserve.prompt.parts import joined_contents
from paraserve.prompt.probes import EMPTY_TURNS

Message = dict[str, Any]


def place_turns(
    messages: list[Message], takes: TemplateCapabilities, notes: dict[str, None], *, keep_last: bool = False
) -> list[Message]:
    """The turns as the template takes them.

    - An assistant's turn in which nothing is said is left out where the template refuses it.
    - Users' messages side by side become one, joined by a blank line, where the template wants the roles to alternate.
    - Between tool results and a user's message stands an assistant's turn in which nothing is said, where the template
      takes a user's message only so.
    """
    placed: list[Message] = []
    for place, message in enumerate(messages):
        before = placed[-1] if placed else {"role": ""}
        last = place == len(messages) - 1
        if not takes.empty_turns and _says_nothing(message) and not (last and keep_last):
            notes["dropped_empty_turn"] = None
            continue
        if message["role"] == "user" and before["role"] == "user" and not takes.user_behind_user:
            notes["merged_users"] = None
            placed[-1] = {**before, "content": joined_contents([before["content"], message["content"]], JOINER)}
            continue
        if message["role"] == "user" and before["role"] == "tool" and takes.user_behind_results in EMPTY_TURNS:
            notes["added_empty_turn"] = None
            placed.append({"role": "assistant", "content": EMPTY_TURNS[takes.user_behind_results]})
        placed.append(message)
    return placed


def _says_nothing(message: Message) -> bool:
    return message["role"] == "assistant" and not any(
        message.get(field) for field in ("content", "tool_calls", "reasoning_content", "reasoning")
    )
