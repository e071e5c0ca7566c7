"""Tools and the choice among them.

Like messages, tool objects reach the template as the client sent them; the structs check them and give the later
stages the two facts they need: the name and the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from paraserve.protocol.errors import RequestError, field_error, from_validation

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
    strict: bool | None = None
    """Where OpenAI's Responses API has it: obeyed as well."""


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class NamedToolChoice(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    function: NamedFunction


class AllowedTools(msgspec.Struct, frozen=True):
    tools: list[NamedToolChoice]
    mode: Literal["auto", "required"] = "auto"


class AllowedToolsChoice(msgspec.Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedTools


ToolChoice = str | dict[str, Any]
"""As a client sent it; `tool_choice_in_force` says what it means. Policies may replace it before that."""

OTHER_SCHEMAS = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parameters_json_schema",
    "parametersJsonSchema",
    "schema",
)
"""Where a function's schema stands at Anthropic, in MCP and at Google, or a level too high."""

CHOICE_WORDS = ("none", "auto", "required")


def check_tools(tools: Sequence[Tool] | None, param: str = "tools") -> tuple[FunctionDefinition, ...]:
    """The declared functions in order. Raises `RequestError` that names the tool; a name may be declared once."""
    if not tools:
        return ()
    try:
        definitions = msgspec.convert(list(tools), list[ToolDefinition])
    except msgspec.ValidationError as error:
        raise from_validation(error, param, list[ToolDefinition]) from None
    seen: set[str] = set()
    for i, definition in enumerate(definitions):
        name = definition.function.name
        if definition.function.parameters is None:
            _check_no_other_schema(tools[i], f"{param}[{i}]")
        if name in seen:
            where = f"{param}[{i}].function.name"
            raise field_error(where, "this name is declared twice")
        seen.add(name)
    return tuple(
        [
            msgspec.structs.replace(definition.function, strict=True) if definition.strict else definition.function
            for definition in definitions
        ]
    )


DECLARING_ROLES = ("system", "developer")
"""Messages of these roles may declare further tools (``tools``), from there on in the conversation."""


def declared_functions(
    tools: Sequence[Tool] | None, messages: Sequence[Mapping[str, Any]]
) -> tuple[FunctionDefinition, ...]:
    """The functions of a request and of its messages, in order. Raises `RequestError` that names the place."""
    functions = list(check_tools(tools))
    for place, message in enumerate(messages):
        declared = message.get("tools")
        if not declared:
            continue
        where = f"messages[{place}].tools"
        if message.get("role") not in DECLARING_ROLES:
            raise field_error(where, "only a system message declares tools")
        if not isinstance(declared, list):
            raise field_error(where, "must be a list of tools")
        seen = {function.name for function in functions}
        for number, function in enumerate(own := check_tools(declared, where)):
            if function.name in seen:
                raise field_error(f"{where}[{number}].function.name", "this name is declared twice")
        functions += own
    return tuple(functions)


def _check_no_other_schema(tool: Tool, where: str) -> None:
    """A function whose schema goes by another API's name would be one without arguments."""
    for place, level in ((where, tool), (f"{where}.function", tool["function"])):
        for name in OTHER_SCHEMAS:
            if level.get(name):
                raise field_error(f"{place}.{name}", "is not read here: send it as function.parameters")


def tool_choice_in_force(choice: ToolChoice | None, functions: Sequence[FunctionDefinition]) -> str:
    """``none``, ``auto``, ``required`` or the name of the function that must be called.

    ``required`` and a name need tools to choose from; ``none`` and ``auto`` do not.

    Raises:
        RequestError: 400 at ``tool_choice``.
    """
    if choice is None:
        return "auto" if functions else "none"
    if isinstance(choice, str):
        if choice not in CHOICE_WORDS:
            raise _wrong(f"must be one of {', '.join(CHOICE_WORDS)}, or an object that names a function")
        name = None
    else:
        chosen = _chosen(choice)
        if isinstance(chosen, AllowedToolsChoice):
            raise _wrong("allowed_tools needs tools")
        name = chosen.function.name
    if not functions and choice not in ("none", "auto"):
        raise _wrong("only 'none' and 'auto' make sense without tools")
    if name is None:
        return str(choice)
    if name in CHOICE_WORDS or all(name != function.name for function in functions):
        raise _wrong("the named function is not among tools, or its name cannot be told from a choice")
    return name


def narrowed(
    tools: Sequence[Tool] | None, choice: ToolChoice | None
) -> tuple[Sequence[Tool] | None, ToolChoice | None]:
    """The tools that ``allowed_tools`` leaves, and the choice among them; as they are for any other choice.

    Raises:
        RequestError: 400 at ``tool_choice``: it names a tool that is not declared, or is none of our choices.
    """
    if not tools or not isinstance(choice, dict):
        return tools, choice
    chosen = _chosen(choice)
    if isinstance(chosen, NamedToolChoice):
        return tools, choice
    allowed = {each.function.name for each in chosen.allowed_tools.tools}
    kept = [tool for tool in tools if tool["function"]["name"] in allowed]
    if len(kept) < len(allowed):
        raise _wrong("a function of allowed_tools is not among tools")
    return kept, chosen.allowed_tools.mode if kept else "none"


def _chosen(choice: dict[str, Any]) -> NamedToolChoice | AllowedToolsChoice:
    kinds = NamedToolChoice | AllowedToolsChoice
    try:
        chosen: NamedToolChoice | AllowedToolsChoice = msgspec.convert(choice, kinds)
        return chosen
    except msgspec.ValidationError as error:
        raise from_validation(error, "tool_choice", kinds) from None


def _wrong(why: str) -> RequestError:
    return field_error("tool_choice", why)
