"""The tools of a Responses request as functions, and the way back from a function's name.

One list holds functions, custom tools (one free text as input), namespaces of both, and tools that OpenAI would run.
Never knows a conversation. Invariant: every name that goes to the model is one key of `ToolForm.tools`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.responses import CustomFormat, Item, NamedTool, ResponsesTool, ToolChoiceObject, read_item

INPUT = "input"
"""The one parameter of a custom tool."""
_OURS = ("function", "custom")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A function as the client knows it."""

    name: str
    namespace: str | None = None
    custom: bool = False
    grammar: CustomFormat | None = None


@dataclass(slots=True)
class ToolForm:
    """Args:
    declared: for the chat request; ``places`` is where each came from.
    tools: by the name that the model reads.
    choice: for the chat request.
    """

    declared: list[dict[str, Any]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    tools: dict[str, ClientTool] = field(default_factory=dict)
    choice: str | dict[str, Any] | None = None


def custom_parameters(pattern: str | None = None) -> dict[str, Any]:
    """The schema of a custom tool's arguments. ``pattern``: what its input must match."""
    text = {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}
    return {"type": "object", "properties": {INPUT: text}, "required": [INPUT], "additionalProperties": False}


def joined_name(name: str, namespace: str | None) -> str:
    """The name that the model reads of a tool in a namespace."""
    return name if not namespace else f"{namespace}__{name}"


def tool_form(tools: list[Item] | None, choice: str | Item | None, notes: dict[str, None]) -> ToolForm:
    """Raises `RequestError`: a tool is malformed, or one is forced that does not run here."""
    form = ToolForm()
    for number, item in enumerate(tools or ()):
        _declare(item, f"tools[{number}]", None, form, notes)
    form.choice = _choice(choice, form)
    return form


def _declare(item: Item, place: str, namespace: str | None, form: ToolForm, notes: dict[str, None]) -> None:
    tool = read_item(item, ResponsesTool, place)
    if tool.type == "namespace" and namespace is None:
        for number, inner in enumerate(item.get("tools") or ()):
            _declare(inner, f"{place}.tools[{number}]", tool.name, form, notes)
    elif tool.type not in _OURS:
        notes["hosted_tools_dropped"] = None
    elif not tool.name:
        raise field_error(f"{place}.name", "field required", ErrorCode.MISSING_REQUIRED_PARAMETER)
    else:
        name = joined_name(tool.name, namespace)
        form.declared.append({"type": "function", "function": _function(tool, name)})
        form.places.append(place)
        custom = tool.type == "custom"
        grammar = tool.format if custom and tool.format is not None and tool.format.type == "grammar" else None
        form.tools[name] = ClientTool(tool.name, namespace, custom, grammar)


def _function(tool: ResponsesTool, name: str) -> dict[str, Any]:
    description, parameters = tool.description, tool.parameters
    if tool.type == "custom":
        parameters = custom_parameters()
        if tool.format is not None and tool.format.definition:
            rule = f"{INPUT} follows this grammar ({tool.format.syntax}):\n{tool.format.definition}"
            description = f"{description}\n\n{rule}" if description else rule
    function: dict[str, Any] = {"name": name}
    if description is not None:
        function["description"] = description
    function["parameters"] = parameters or {"type": "object", "properties": {}}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return function


def _choice(choice: str | Item | None, form: ToolForm) -> str | dict[str, Any] | None:
    if choice is None or isinstance(choice, str):
        return choice
    chosen = read_item(choice, ToolChoiceObject, "tool_choice")
    if chosen.type != "allowed_tools":
        return {"type": "function", "function": {"name": _named(chosen)}}
    allowed = {joined_name(tool.name or "", tool.namespace) for tool in chosen.tools or () if tool.type in _OURS}
    kept = [number for number, tool in enumerate(form.declared) if tool["function"]["name"] in allowed]
    form.declared = [form.declared[number] for number in kept]
    form.places = [form.places[number] for number in kept]
    return chosen.mode


def _named(chosen: NamedTool) -> str:
    if chosen.type not in _OURS:
        raise RequestError(
            f"tool_choice: {chosen.type} is a tool of OpenAI's servers, which does not run here",
            param="tool_choice.type",
            code=ErrorCode.UNSUPPORTED_PARAMETER,
        )
    if not chosen.name:
        raise field_error("tool_choice.name", "field required", ErrorCode.MISSING_REQUIRED_PARAMETER)
    return joined_name(chosen.name, chosen.namespace)


def client_tool(tools: Mapping[str, ClientTool], name: str) -> ClientTool:
    """The tool that a call means; one that was not declared is a function of that name."""
    return tools.get(name) or ClientTool(name)
