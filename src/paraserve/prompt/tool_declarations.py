"""Declared tools as a template takes them.

Never judges a schema. One invariant: a tool whose fields all say something goes through as the client sent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.prompt.capabilities import TemplateCapabilities

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def declare_tools(
    tools: Sequence[Mapping[str, Any]], takes: TemplateCapabilities, notes: dict[str, None]
) -> list[dict[str, Any]]:
    """The tools without nulls, which a template would print; with an empty description and empty parameters in place
    of missing ones, where the template fails without them."""
    return [_declare(tool, takes, notes) for tool in tools]


def _declare(tool: Mapping[str, Any], takes: TemplateCapabilities, notes: dict[str, None]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return dict(tool)
    whole = {key: value for key, value in function.items() if value is not None}
    if not takes.bare_tools and not ("description" in whole and "parameters" in whole):
        notes["filled_tool"] = None
        # Appended: what the client sent keeps its place and its order.
        whole = {**whole, "description": whole.get("description", "")}
        whole = {**whole, "parameters": whole.get("parameters", dict(NO_PARAMETERS))}
    return {**tool, "function": whole}
