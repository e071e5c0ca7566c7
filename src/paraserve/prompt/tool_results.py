"""Where the results of tool calls stand: behind their calls, in the calls' order.

Never renders and never reads a content. One invariant: an order is a permutation, so that nothing is lost or doubled,
and messages that are no results keep their order among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]


def result_order(messages: Messages, *, gather: bool, sort: bool, notes: dict[str, None]) -> list[int]:
    """The places of the messages in the order in which a template shall see them.

    Args:
        gather: a result that other messages part from its call moves behind the results that stand there.
        sort: the results of a message's calls stand in the order of the calls, each in the place of another of them.
    """
    order = list(range(len(messages)))
    answered = _answered(messages)
    if gather:
        order = _gathered(messages, answered, notes)
    if sort:
        order = _sorted(order, answered, notes)
    return order


def _answered(messages: Messages) -> dict[int, tuple[int, int]]:
    """Place of a result: the message with its call, and the call's number there. Of several calls with one id it is
    the latest message's (clients may count ids anew in each turn), and its first."""
    calls: dict[str, tuple[int, int]] = {}
    answered = {}
    for place, message in enumerate(messages):
        if message["role"] == "tool" and message.get("tool_call_id") in calls:
            answered[place] = calls[message["tool_call_id"]]
        elif message["role"] == "assistant":
            calls |= {
                call["id"]: (place, number)
                for number, call in reversed(list(enumerate(message.get("tool_calls") or ())))
                if call.get("id")
            }
    return answered


def _gathered(messages: Messages, answered: Mapping[int, tuple[int, int]], notes: dict[str, None]) -> list[int]:
    behind: dict[int, list[int]] = {}
    for place, (call, _) in answered.items():
        if any(message["role"] != "tool" for message in messages[call + 1 : place]):
            behind.setdefault(call, []).append(place)
    if not behind:
        return list(range(len(messages)))
    notes["results_behind_calls"] = None
    moved = {place for places in behind.values() for place in places}
    order: list[int] = []
    waiting: list[int] = []
    for place, message in enumerate(messages):
        if place in moved:
            continue
        if message["role"] != "tool":
            order += waiting
            waiting = behind.get(place, [])
        order.append(place)
    return order + waiting


def _sorted(order: list[int], answered: Mapping[int, tuple[int, int]], notes: dict[str, None]) -> list[int]:
    rounds: dict[int, list[int]] = {}
    for slot, place in enumerate(order):
        if place in answered:
            rounds.setdefault(answered[place][0], []).append(slot)
    sorted_order = list(order)
    for slots in rounds.values():
        ranked = sorted((order[slot] for slot in slots), key=lambda place: answered[place][1])
        for slot, place in zip(slots, ranked, strict=True):
            sorted_order[slot] = place
    if sorted_order != order:
        notes["results_in_call_order"] = None
    return sorted_order
