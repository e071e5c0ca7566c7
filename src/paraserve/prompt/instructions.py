"""Where the instructions of a conversation go: its system and developer messages.

Never looks at other messages than to find the place. One invariant: everything that an instruction holds is in the
result, in the order in which the client gave them.
"""

from __future__ import annotations

from typing import Any

from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.parts import joined_contents

Message = dict[str, Any]
JOINER = "\n\n"
ROLES = ("system", "developer")


def place_instructions(messages: list[Message], takes: TemplateCapabilities, notes: dict[str, None]) -> list[Message]:
    """System and developer messages where the template takes them.

    - A developer message stays where the template names that role, and is a system message elsewhere.
    - Messages at the head become one, joined by a blank line, where the template does not take several, and always
      where one of them was a developer message that the template does not know.
    - A later one joins the head where the template does not take it where it stands.
    - Where the template has no place for a system message, its text stands before the first user text (the last one's,
      where the template shows it only there).
    """
    if not any(map(_instructs, messages)):
        return messages
    renamed = False
    placed = []
    for message in messages:
        if message["role"] == "developer" and not takes.developer:
            message = {**message, "role": "system"}
            renamed = True
            notes["developer_as_system"] = None
        placed.append(message)
    head_length = next((place for place, message in enumerate(placed) if not _instructs(message)), len(placed))
    head, rest = placed[:head_length], placed[head_length:]
    late = [message for message in rest if _instructs(message) and not _taken_late(message, takes)]
    if late:
        notes["hoisted_system"] = None
        rest = [message for message in rest if all(message is not other for other in late)]
    if late or (len(head) > 1 and (renamed or not _taken_together(head, takes))):
        if len(head) + len(late) > 1:
            notes["merged_system"] = None
        head = [_merge([*head, *late])]
    return _fold(head, rest, takes, notes)


def _instructs(message: Message) -> bool:
    """One that declares tools stays where it is: they are there from then on."""
    return message["role"] in ROLES and "tools" not in message


def _taken_late(message: Message, takes: TemplateCapabilities) -> bool:
    return takes.late_system if message["role"] == "system" else takes.late_developer


def _taken_together(head: list[Message], takes: TemplateCapabilities) -> bool:
    roles = {message["role"] for message in head}
    return takes.leading_systems if roles == {"system"} else takes.leading_mixed


def _merge(messages: list[Message]) -> Message:
    return {**messages[0], "content": joined_contents([message["content"] for message in messages], JOINER)}


def _fold(
    head: list[Message], rest: list[Message], takes: TemplateCapabilities, notes: dict[str, None]
) -> list[Message]:
    users = [place for place, message in enumerate(rest) if message["role"] == "user"]
    shown = takes.system and (takes.system_in_tool_turn or not rest or rest[-1]["role"] == "user")
    if shown or not head:
        return [*head, *rest]
    notes["folded_system"] = None
    said = [message["content"] for message in head]
    if not users:
        return [{"role": "user", "content": joined_contents(said, JOINER)}, *rest]
    place = users[-1] if takes.system else users[0]
    message = rest[place]
    folded = joined_contents([*said, message["content"]], JOINER)
    return [*rest[:place], {**message, "content": folded}, *rest[place + 1 :]]
