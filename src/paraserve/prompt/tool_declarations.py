"""Declared tools as a template takes them.

Never judges a schema. Two invariants: a tool whose fields all say something goes through as the client sent it, and
what is kept of a request's tools is found by all of their bytes alone, and bounded.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import msgspec

from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.tool_schemas import described, has_references, inlined, split_types, without_nulls

log = logging.getLogger(__name__)

KEPT_TOOLS = 64
"""Agents send the same tools turn after turn: what was made of so many different lists is kept."""
LARGEST_KEPT = 64 * 2**10
"""Bytes of JSON of a list that is kept."""


class DeclaredTools:
    """`declare_tools` for one template, which does its work once for tools that come again. Threads may share it."""

    def __init__(self, takes: TemplateCapabilities) -> None:
        self._takes = takes
        self._kept: OrderedDict[bytes, tuple[Sequence[Mapping[str, Any]], dict[str, None]]] = OrderedDict()
        self._lock = Lock()

    def of(self, tools: Sequence[Mapping[str, Any]], notes: dict[str, None]) -> Sequence[Mapping[str, Any]]:
        try:
            spelled = msgspec.json.encode(tools)
        except (OverflowError, RecursionError):  # numbers and depths that are only read
            return declare_tools(tools, self._takes, notes)
        key = hashlib.sha256(spelled).digest()  # of one size, whatever a client sends
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
        if kept is None:
            made: dict[str, None] = {}
            kept = (declare_tools(tools, self._takes, made), made)
            if len(spelled) <= LARGEST_KEPT:
                with self._lock:
                    self._kept[key] = kept
                    if len(self._kept) > KEPT_TOOLS:
                        self._kept.popitem(last=False)
        notes.update(kept[1])
        return kept[0]


def declare_tools(
    tools: Sequence[Mapping[str, Any]], takes: TemplateCapabilities, notes: dict[str, None]
) -> list[dict[str, Any]]:
    """The tools without nulls, which a template would print; with an empty description and empty parameters in place
    of missing ones, where the template fails without them; and with schemas as the template can read them."""
    return [_declare(tool, takes, notes) for tool in tools]


def _declare(tool: Mapping[str, Any], takes: TemplateCapabilities, notes: dict[str, None]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    whole = {key: value for key, value in function.items() if value is not None}
    if not takes.bare_tools and not (
        "description" in whole and whole.get("parameters", {}).get("properties") is not None
    ):
        notes["filled_tool"] = None
        # Appended: what the client sent keeps its place and its order.
        whole = {**whole, "description": whole.get("description", "")}
        whole = {**whole, "parameters": {**whole.get("parameters", {"type": "object"})}}
        if whole["parameters"].get("properties") is None:
            whole["parameters"]["properties"] = {}
    if isinstance(whole.get("parameters"), Mapping):
        made: dict[str, None] = {}
        try:
            whole["parameters"] = _readable(whole["parameters"], takes, made)
        except RecursionError:
            log.debug("a tool's schema is too deep to be looked through: it goes through as it stands")
        else:
            notes.update(made)
    return {**tool, "function": whole}


def _readable(parameters: Mapping[str, Any], takes: TemplateCapabilities, notes: dict[str, None]) -> Mapping[str, Any]:
    schema = without_nulls(parameters)
    if takes.references != "shown" and has_references(schema):
        notes["inlined_references"] = None
        schema = inlined(schema) if takes.references == "inlined" else described(schema)
    if not takes.type_lists and (split := split_types(schema)) is not schema:
        notes["split_types"] = None
        schema = split
    return schema
