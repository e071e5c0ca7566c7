"""Tools and the choice among them.

Like messages, tool objects reach the template as the client sent them; the structs check them and give the later
stages the two facts they need: the name and the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from paraserve.protocol.errors import RequestError, from_validation

Tool = dict[str, Any]
FunctionName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class FunctionDefinition(msgspec.Struct, frozen=True):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(msgspec.Struct, frozen=True):
    function: FunctionDefinition
    type: Literal["function"]


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class NamedToolChoice(msgspec.Struct, frozen=True):
    function: NamedFunction
    type: Literal["function"]


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


def check_tools(tools: Sequence[Tool] | None, param: str = "tools") -> tuple[FunctionDefinition, ...]:
    """The declared functions in order. Raises `RequestError` that names the tool; a name may be declared once."""
    if not tools:
        return ()
    try:
        definitions = msgspec.convert(list(tools), list[ToolDefinition])
    except msgspec.ValidationError as error:
        raise from_validation(error, param) from None
    seen: set[str] = set()
    for i, definition in enumerate(definitions):
        name = definition.function.name
        if name in seen:
            where = f"{param}[{i}].function.name"
            raise RequestError(f"{where}: this name is declared twice", param=where, code="invalid_value")
        seen.add(name)
    return tuple(definition.function for definition in definitions)


def check_tool_choice(choice: ToolChoice | None, functions: Sequence[FunctionDefinition]) -> None:
    """``required`` and a named tool need tools to choose from; ``none`` and ``auto`` do not."""
    if choice is None or choice in ("none", "auto"):
        return
    if not functions:
        raise RequestError(
            "tool_choice: only 'none' and 'auto' make sense without tools", param="tool_choice", code="invalid_value"
        )
    if isinstance(choice, NamedToolChoice) and all(choice.function.name != known.name for known in functions):
        raise RequestError(
            "tool_choice: the named function is not among tools", param="tool_choice", code="invalid_value"
        )
