"""A checkpoint's ``response_template`` (Hugging Face's declaration in ``tokenizer_config.json``) as a `Format`.

The declaration names the fields of a message, the anchors around each, and how its content is written; facts as in
transformers 5.24. It is compiled where it says nothing that a description cannot: literal anchors, patterns made of
literals, whitespace and the named groups, and the contents ``text``, ``json``, ``xml-inline`` and
``python-call-list``. Anything else is refused as a whole, never half understood: then the chat template decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paraserve.formats.spec import (
    Arguments,
    Calls,
    Format,
    JsonEnvelope,
    JsonObject,
    Keywords,
    Parameters,
    QuotedObject,
    Reasoning,
)

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_TOKENS = re.compile(
    r"(?P<group>\(\?P<(?P<name>\w+)>(?:\\.|\[(?:\\.|[^\]\\])*\]|[^()\\\[])*\))"
    r"|(?P<space>(?:\\s|\\n|\n| )[*?]|\\s\+)"
    r"|(?P<count>\\d[*+])"
    r"|\\n|\\(?P<escaped>[^\w\s])"
    r"|(?P<plain>[^\\()\[\]{}.*+?|^$]|[{}\]])"
)


class UnsupportedTemplateError(ValueError):
    """The declaration says something that no description can express. The message names it."""


def compile_response_template(template: Mapping[str, Any], *, name: str = "response_template") -> Format:
    """The format that a ``response_template`` declares.

    Raises:
        UnsupportedTemplateError: when any part of it cannot be expressed.
    """
    fields = template.get("fields")
    if template.get("version", 1) != 1 or not isinstance(fields, Mapping):
        raise UnsupportedTemplateError("response_template: not version 1 with fields")
    reasoning: Reasoning | None = None
    calls: tuple[Calls, ...] = ()
    for field_name, field in fields.items():
        if field_name in _REASONING_FIELDS:
            reasoning = _reasoning(field_name, field)
        elif field_name == "tool_calls":
            calls = (_calls(field),)
        elif field_name == "content":
            if "open" in field or "open_pattern" in field or field.get("content", "text") != "text":
                raise UnsupportedTemplateError("content: only plain text without an opening anchor is understood")
        elif field_name != "role":
            raise UnsupportedTemplateError(f"{field_name}: an unknown field")
    return Format(name, reasoning=reasoning, calls=calls)


def _reasoning(name: str, field: Mapping[str, Any]) -> Reasoning:
    if field.get("content", "text") != "text" or "transform" in field:
        raise UnsupportedTemplateError(f"{name}: only plain text is understood")
    opening, closing = (_anchor(name, field, edge).strip() for edge in ("open", "close"))
    if not opening or not closing or "{" in opening + closing:
        raise UnsupportedTemplateError(f"{name}: needs an opening and a closing literal")
    return Reasoning(opening, closing, open_after="\n", close_before="\n", close_after="\n\n")


def _calls(field: Mapping[str, Any]) -> Calls:
    opening, closing = (_anchor("tool_calls", field, edge) for edge in ("open", "close"))
    if not opening:
        raise UnsupportedTemplateError("tool_calls: needs an opening anchor")
    name, arguments = _function(field)
    if field.get("transform_each", False) or field.get("content") == "python-call-list":
        return _call_list(field, opening, closing, name, arguments)
    if name != "{name}":
        return Calls(open=opening, arguments=_envelope(name, arguments, "content."), close=closing, before="\n")
    if "{name}" not in opening or arguments != "{content}":
        raise UnsupportedTemplateError(
            "tool_calls: the name must stand in the opening pattern, the arguments be the content"
        )
    return Calls(open=opening, arguments=_arguments(field), close=closing, before="\n")


def _call_list(field: Mapping[str, Any], opening: str, closing: str, name: str, arguments: str) -> Calls:
    """All calls of a reply in one list between the anchors."""
    if field.get("content") == "python-call-list":
        return Calls(
            section_open=opening + "[",
            open="{name}(",
            arguments=Keywords(),
            close=")",
            between=", ",
            section_close="]" + closing,
        )
    return Calls(
        section_open=opening + "[",
        open="",
        arguments=_envelope(name, arguments, ""),
        between=", ",
        section_close="]" + closing,
    )


def _envelope(name: str, arguments: str, prefix: str) -> JsonEnvelope:
    keys = []
    for value in (name, arguments):
        match = _PLACEHOLDER.fullmatch(value)
        key = match[1].removeprefix(prefix) if match else ""
        if not key or "." in key or (match and not match[1].startswith(prefix)):
            raise UnsupportedTemplateError(f"tool_calls: {value!r} is no key of the call's object")
        keys.append(key)
    return JsonEnvelope((keys[0],), (keys[1],))


def _arguments(field: Mapping[str, Any]) -> Arguments:
    content, options = field.get("content", "text"), field.get("content_args", {})
    if content == "xml-inline":
        return _parameters(options)
    if content != "json":
        raise UnsupportedTemplateError(f"tool_calls: content {content!r} cannot be arguments")
    quotes = options.get("string_delims", [])
    if not quotes and not options.get("unquoted_keys", False):
        return JsonObject()
    if options.get("unquoted_keys") and len(quotes) == 1 and quotes[0][0] == quotes[0][1]:
        return QuotedObject(quotes[0][0])
    raise UnsupportedTemplateError("tool_calls: this dialect of JSON is not understood")


def _parameters(options: Mapping[str, Any]) -> Parameters:
    template = "".join(_template(str(options.get("tag_pattern", "")), {"key": "{key}", "value": "\0"}))
    opening, mark, closing = template.partition("\0")
    if not mark or "{key}" not in opening or not closing.strip() or options.get("merge_duplicates"):
        raise UnsupportedTemplateError("tool_calls: tag_pattern must be a key, a value and a closing literal")
    return Parameters(opening, closing if closing.endswith("\n") else closing + "\n")


def _function(field: Mapping[str, Any]) -> tuple[str, str]:
    """Where the transform takes a call's name and arguments from."""
    if field.get("content") == "python-call-list" and "transform" not in field:
        return "{name}", "{arguments}"
    transform = field.get("transform")
    function = transform.get("function", transform) if isinstance(transform, Mapping) else None
    if not isinstance(function, Mapping) or not {"name", "arguments"} <= set(function):
        raise UnsupportedTemplateError("tool_calls: the transform must give name and arguments")
    return str(function["name"]), str(function["arguments"])


def _anchor(name: str, field: Mapping[str, Any], edge: str) -> str:
    """An anchor as a template; of several literals the first."""
    literal = field.get(edge)
    if isinstance(literal, Sequence) and not isinstance(literal, str) and literal:
        literal = literal[0]
    if isinstance(literal, str):
        return literal
    pattern = field.get(f"{edge}_pattern")
    if pattern is None:
        return ""
    try:
        return "".join(_template(str(pattern), {"name": "{name}", "id": "{id}"}))
    except UnsupportedTemplateError as error:
        raise UnsupportedTemplateError(f"{name}: {error}") from error


def _template(pattern: str, groups: Mapping[str, str]) -> Iterator[str]:
    """A regular expression of literals, whitespace and named groups, as a template."""
    position = 0
    while position < len(pattern):
        match = _TOKENS.match(pattern, position)
        if match is None or (match["name"] and match["name"] not in groups):
            raise UnsupportedTemplateError(f"the pattern {pattern!r} is more than literals and named groups")
        position = match.end()
        if match["name"]:
            yield groups[match["name"]]
        elif match["count"]:
            yield "{index}"
        elif match["space"]:
            yield "\n"
        else:
            yield match["escaped"] or match["plain"] or "\n"
