"""A checkpoint's ``response_template`` (Hugging Face's declaration in ``tokenizer_config.json``) as a `Format`.

The declaration names the fields of a message, the anchors around each, and how its content is written; facts as in
transformers 5.24. It is compiled where it says nothing that a description cannot: literal anchors, patterns made of
literals, whitespace and the named groups, and the contents ``text``, ``json``, ``xml-inline`` and
``python-call-list``. Anything else is kept as regions (`regions.py`) and run as it stands. What cannot be run safely is
refused as a whole, never half understood: then the chat template decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paraserve.formats.declared.anchors import Anchor, literal_anchor, pattern_anchor
from paraserve.formats.declared.content import UnsupportedTemplateError, body_reader, check_transform
from paraserve.formats.declared.expressions import (
    Char,
    Named,
    Node,
    Repeat,
    Row,
    UnsafePatternError,
    example,
    read_pattern,
)
from paraserve.formats.declared.regions import Region, RegionKind, Regions
from paraserve.formats.spec import (
    Arguments,
    Calls,
    Field,
    Format,
    JsonEnvelope,
    JsonObject,
    Keywords,
    Parameters,
    QuotedObject,
    Reasoning,
    pieces,
)

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_KINDS = dict.fromkeys(_REASONING_FIELDS, RegionKind.REASONING) | {
    "content": RegionKind.CONTENT,
    "tool_calls": RegionKind.CALLS,
    "role": RegionKind.IGNORED,
}
_DELIMITER_KEYS = ("open", "open_pattern", "close", "close_pattern")
_FIELD_KEYS = frozenset(
    (*_DELIMITER_KEYS, "content", "content_args", "repeats", "join", "optional", "transform", "transform_each")
)
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


def read_response_template(template: Mapping[str, Any], *, name: str = "response_template") -> Format:
    """The format that a ``response_template`` declares: a description where it can be one, else its regions.

    Raises:
        UnsupportedTemplateError: when it is not valid, or says what cannot be run safely.
    """
    regions = read_regions(template)
    try:
        return compile_response_template(template, name=name)
    except UnsupportedTemplateError:
        reasoning = regions.first(RegionKind.REASONING)
        block = None
        if reasoning is not None and reasoning.open is not None:
            block = Reasoning(reasoning.open.example, reasoning.close.example if reasoning.close else "")
        content = regions.first(RegionKind.CONTENT)
        opener = content.open.example if content is not None and content.open is not None else ""
        try:
            calls = (_written_calls(template["fields"]["tool_calls"]),) if "tool_calls" in template["fields"] else ()
        except UnsupportedTemplateError as error:
            calls, regions = (), replace(regions, unwritten=str(error))
        return Format(name, reasoning=block, calls=calls, declared=regions, content_open=opener)


def compile_response_template(template: Mapping[str, Any], *, name: str = "response_template") -> Format:
    """The format that a ``response_template`` declares.

    Raises:
        UnsupportedTemplateError: when any part of it cannot be expressed.
    """
    fields = _fields(template)
    reasoning: Reasoning | None = None
    calls: tuple[Calls, ...] = ()
    content = ("", "")
    for field_name, field in fields.items():
        if field_name in _REASONING_FIELDS:
            reasoning = _reasoning(field_name, field)
        elif field_name == "tool_calls":
            calls = (_calls(field, *(_anchor("tool_calls", field, edge) for edge in ("open", "close"))),)
        elif field_name == "content":
            content = _content(field)
        else:
            raise UnsupportedTemplateError(f"{field_name}: no field of a description")
    opening, closing = content
    if not opening:  # all that stands in no other field: what ends it ends the reply
        return Format(name, reasoning=reasoning, calls=calls, stop_tokens=(closing,) if closing else ())
    return Format(name, reasoning=reasoning, calls=calls, content_open=opening, content_close=closing)


def _content(field: Mapping[str, Any]) -> tuple[str, str]:
    if field.get("content", "text") != "text" or not field.get("content_args", {}).get("strip", True):
        raise UnsupportedTemplateError("content: only plain text is understood")
    opening, closing = (_anchor("content", field, edge).strip() for edge in ("open", "close"))
    if opening and not closing:
        raise UnsupportedTemplateError("content: needs a closing literal")
    return opening, closing


def _reasoning(name: str, field: Mapping[str, Any]) -> Reasoning:
    if field.get("content", "text") != "text" or "transform" in field:
        raise UnsupportedTemplateError(f"{name}: only plain text is understood")
    opening, closing = (_anchor(name, field, edge).strip() for edge in ("open", "close"))
    if not opening or not closing or "{" in opening + closing:
        raise UnsupportedTemplateError(f"{name}: needs an opening and a closing literal")
    return Reasoning(opening, closing, open_after="\n", close_before="\n", close_after="\n\n")


def _calls(field: Mapping[str, Any], opening: str, closing: str) -> Calls:
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
    template = _template(str(options.get("tag_pattern", "")), {"key": "{key}", "value": "\0"})
    opening, mark, closing = template.partition("\0")
    if not mark or "{key}" not in opening or not closing.strip() or options.get("merge_duplicates"):
        raise UnsupportedTemplateError("tool_calls: tag_pattern must be a key, a value and a closing literal")
    return Parameters(opening, closing if closing.endswith("\n") else closing + "\n")


def _function(field: Mapping[str, Any]) -> tuple[str, str]:
    """Where the transform takes a call's name and arguments from."""
    if field.get("content") == "python-call-list" and "transform" not in field:
        return "{name}", "{arguments}"
    transform = field.get("transform")
    function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
    if function == "{content}" and field.get("content") == "json":
        return "{content.name}", "{content.arguments}"
    if not isinstance(function, Mapping) or not {"name", "arguments"} <= set(function):
        raise UnsupportedTemplateError("tool_calls: the transform must give name and arguments")
    return str(function["name"]), str(function["arguments"])


def _anchor(name: str, field: Mapping[str, Any], edge: str) -> str:
    """An anchor as a template."""
    literal = field.get(edge)
    if isinstance(literal, Sequence) and not isinstance(literal, str) and len(literal) == 1:
        literal = literal[0]
    if isinstance(literal, str):
        if any(isinstance(piece, Field) for piece in pieces(literal)):
            raise UnsupportedTemplateError(f"{name}: {literal!r} would be a field of a description")
        return literal
    if literal is not None:
        raise UnsupportedTemplateError(f"{name}: only one text can be the {edge} of a description")
    pattern = field.get(f"{edge}_pattern")
    if pattern is None:
        return ""
    try:
        return _template(str(pattern), {"name": "{name}", "id": "{id}"})
    except UnsupportedTemplateError as error:
        raise UnsupportedTemplateError(f"{name}: {error}") from error


def _template(pattern: str, groups: Mapping[str, str], *, exact: bool = True) -> str:
    """An expression as a template: of literals, whitespace and named groups, or (where it need not be ``exact``) one
    text that it matches, with its groups."""

    def written(node: Node) -> str:
        match node:
            case Row(items):
                return "".join(map(written, items))
            case Named(name) if name in groups:
                return groups[name]
            case Char(literal=str(char)):
                return char
            case Repeat(Char(source=r"\d")) if exact:
                return "{index}"
            case Repeat(Char() as item) if exact and item.members and all(char.isspace() for char in item.members):
                return "\n"
        if exact:
            raise UnsupportedTemplateError(f"the pattern {pattern!r} is more than literals and named groups")
        return example(node)

    try:
        return written(read_pattern(pattern))
    except UnsafePatternError as error:
        raise UnsupportedTemplateError(str(error)) from error


def _written_calls(field: Mapping[str, Any]) -> Calls:
    """A spelling of calls that the field's region reads back, though it may read others as well."""
    content = field.get("content", "text")
    if content not in ("text", "json", "python-call-list") or "close_pattern" in field:
        what = f"content {content!r}" if "close_pattern" not in field else "a closing pattern"
        raise UnsupportedTemplateError(f"tool_calls: {what} is read, and no grammar can be made of it")
    one = {
        edge: texts if isinstance(texts, str) else texts[0] for edge in ("open", "close") if (texts := field.get(edge))
    }
    opening = one.get("open") or _template(str(field["open_pattern"]), {"name": "{name}"}, exact=False)
    plain = {**field, "content": "json" if content == "text" else content, "content_args": {}}
    return replace(_calls(plain, opening, one.get("close", "")), before="")


# Regions


def read_regions(template: Mapping[str, Any]) -> Regions:
    """The fields of a declaration as regions.

    Raises:
        UnsupportedTemplateError: when it is not valid, or says what cannot be run safely.
    """
    fields = _fields(template)
    regions = [_region(name, field) for name, field in fields.items()]
    if sum(region.open is None for region in regions) > 1:
        raise UnsupportedTemplateError("response_template: two fields without an opening delimiter")
    if not any(region.kind is RegionKind.CONTENT or region.open is None for region in regions):
        regions.append(Region(RegionKind.CONTENT))
    return Regions(tuple(regions), _delimiter("response_template", template, "start_anchor"))


def _fields(template: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    known = {"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"}
    fields = template.get("fields")
    if template.get("version", 1) != 1 or not isinstance(fields, Mapping) or not fields or set(template) - known:
        raise UnsupportedTemplateError("response_template: not version 1 with fields")
    for name, field in fields.items():
        if not isinstance(field, Mapping) or set(field) - _FIELD_KEYS:
            raise UnsupportedTemplateError(f"{name}: not a field of version 1")
    return fields


def _region(name: str, field: Mapping[str, Any]) -> Region:
    kind = _KINDS.get(name)
    if kind is None:
        raise UnsupportedTemplateError(f"{name}: an unknown field")
    opening, closing = _delimiter(name, field, "open"), _delimiter(name, field, "close")
    if (opening is not None and opening.empty) or (closing is not None and closing.empty and opening is None):
        raise UnsupportedTemplateError(f"{name}: a delimiter that can match nothing")
    if closing is None and kind is RegionKind.REASONING:
        raise UnsupportedTemplateError(f"{name}: reasoning that does not end leaves no answer")
    if opening is None and kind is not RegionKind.CONTENT:
        raise UnsupportedTemplateError(f"{name}: needs an opening delimiter")
    content, options, transform = field.get("content", "text"), field.get("content_args", {}), field.get("transform")
    region = Region(kind, opening, closing, repeats=bool(field.get("repeats", False)))
    if kind is RegionKind.CALLS:
        check_transform(transform)
        return replace(
            region,
            read=body_reader(content, options),
            transform=transform,
            transform_each=bool(field.get("transform_each", False)),
            whole_by_itself=content in ("json", "python-call-list"),
        )
    if content != "text" or transform is not None:
        raise UnsupportedTemplateError(f"{name}: only plain text is understood")
    return replace(region, strip=bool(options.get("strip", True)), join=field.get("join"))


def _delimiter(name: str, field: Mapping[str, Any], edge: str) -> Anchor | None:
    literal, pattern = field.get(edge), field.get(f"{edge}_pattern")
    texts = [literal] if isinstance(literal, str) else literal
    try:
        if texts is not None and pattern is None and all(isinstance(text, str) for text in texts):
            return literal_anchor(texts)
        if texts is None and pattern is not None:
            return pattern_anchor(str(pattern))
    except UnsafePatternError as error:
        raise UnsupportedTemplateError(f"{name}: {edge}: {error}") from error
    if texts is None:
        return None
    raise UnsupportedTemplateError(f"{name}: {edge} must be a text, several, or one pattern")
