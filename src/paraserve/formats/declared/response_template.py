"""A checkpoint's ``response_template`` (Hugging Face's declaration in ``tokenizer_config.json``) as a `Format`.

The declaration names the fields of a message, the anchors around each, and how its content is written; facts as in
transformers 5.24. It is kept as regions (`regions.py`) and run as it stands; beside them, a spelling of calls is made
of it for grammars to write. What cannot be run safely is refused as a whole, never half understood: then the chat
template decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from paraserve.formats.declared.anchors import Anchor, literal_anchor, pattern_anchor
from paraserve.formats.declared.content import UnsupportedTemplateError, body_reader, check_transform
from paraserve.formats.declared.expressions import (
    Named,
    Node,
    Row,
    UnsafePatternError,
    example,
    read_pattern,
)
from paraserve.formats.declared.regions import Region, RegionKind, Regions
from paraserve.formats.spec import Calls, Format, JsonEnvelope, JsonObject, Keywords, Reasoning
from paraserve.formats.templates import Field, pieces

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_KINDS = dict.fromkeys(_REASONING_FIELDS, RegionKind.REASONING) | {
    "content": RegionKind.CONTENT,
    "tool_calls": RegionKind.CALLS,
    "role": RegionKind.IGNORED,
}


class _Field(msgspec.Struct, forbid_unknown_fields=True):
    open: str | list[str] | None = None
    open_pattern: str | None = None
    close: str | list[str] | None = None
    close_pattern: str | None = None
    content: str = "text"
    content_args: dict[str, Any] = {}
    repeats: bool = False
    join: str | None = None
    optional: bool | None = None
    transform: Any = None
    transform_each: bool = False


class _Declaration(msgspec.Struct, forbid_unknown_fields=True):
    """What a declaration of version 1 may say, and of what types."""

    fields: Annotated[dict[str, _Field], msgspec.Meta(min_length=1)]
    version: Literal[1] = 1
    defaults: Any = None
    start_anchor: str | list[str] | None = None
    start_anchor_pattern: str | None = None


_ENDS_LATER = re.compile(r"\(\?=(?:\[\\[sS]\\[sS]\]|\.)[*+]")
"""A field that opens wherever its end comes later: the prompt has opened it, and the message's frame shows that."""
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


def read_response_template(template: Mapping[str, Any], *, name: str = "response_template") -> Format:
    """The format that a ``response_template`` declares: its regions, and a spelling of its calls to write.

    Raises:
        UnsupportedTemplateError: when it is not valid, or says what cannot be run safely.
    """
    regions = read_regions(template)
    reasoning, content = regions.first(RegionKind.REASONING), regions.first(RegionKind.CONTENT)
    block = None
    if reasoning is not None and reasoning.open is not None:
        block = Reasoning(reasoning.open.example, reasoning.close.example if reasoning.close else "")
    opener = content.open.example if content is not None and content.open is not None else ""
    end = content.close if content is not None and not opener else None
    calls: tuple[Calls, ...] = ()
    try:
        if region := regions.first(RegionKind.CALLS):
            calls = (_written_calls(template["fields"]["tool_calls"], region),)
    except UnsupportedTemplateError as error:
        regions = replace(regions, unwritten=str(error))
    return Format(
        name,
        reasoning=block,
        calls=calls,
        declared=regions,
        content_open=opener,
        stop_tokens=end.literals if end is not None and end.literals == (end.example,) else (),
    )


# A spelling of calls


def _written_calls(field: Mapping[str, Any], region: Region) -> Calls:
    """A spelling of calls that the field's region reads back, though it may read others as well."""
    content = field.get("content", "text")
    if content not in ("text", "json", "python-call-list"):
        raise UnsupportedTemplateError(f"tool_calls: content {content!r} is read, and no grammar can be made of it")
    opening = _edge(field, "open") or _opening(read_pattern(str(field["open_pattern"])))
    closing = _edge(field, "close")
    if region.close is not None and not closing:
        closing = region.close.example.strip()
        if region.close.literals != (closing,):
            raise UnsupportedTemplateError("tool_calls: the closing pattern is more than one text to write")
    name, arguments = _function(field)
    whole = Calls("", Keywords(), section_open=opening + "[", section_close="]" + closing, between=", ")
    if content == "python-call-list":
        return replace(whole, open="{name}(", close=")")
    if field.get("transform_each", False):
        return replace(whole, arguments=_envelope(name, arguments, ""))
    if name != "{name}":
        return Calls(open=opening, arguments=_envelope(name, arguments, "content."), close=closing)
    if "{name}" not in opening or arguments != "{content}":
        raise UnsupportedTemplateError("tool_calls: the name must stand in the opening, the arguments be the content")
    return Calls(open=opening, arguments=JsonObject(), close=closing)


def _edge(field: Mapping[str, Any], edge: str) -> str:
    """The literal delimiter, or the first of several."""
    texts = field.get(edge) or ""
    text: str = texts if isinstance(texts, str) else texts[0]
    if any(isinstance(piece, Field) for piece in pieces(text)):
        raise UnsupportedTemplateError(f"tool_calls: {text!r} would be a field of a description")
    return text


def _opening(node: Node) -> str:
    """One text that an expression matches, as a template with the field of the name."""
    match node:
        case Row(items):
            return "".join(map(_opening, items))
        case Named("name"):
            return "{name}"
        case _:
            return example(node)


def _envelope(name: str, arguments: str, prefix: str) -> JsonEnvelope:
    keys = []
    for value in (name, arguments):
        match = _PLACEHOLDER.fullmatch(value)
        key = match[1].removeprefix(prefix) if match else ""
        if not key or "." in key or (match and not match[1].startswith(prefix)):
            raise UnsupportedTemplateError(f"tool_calls: {value!r} is no key of the call's object")
        keys.append(key)
    return JsonEnvelope((keys[0],), (keys[1],))


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


# Regions


def read_regions(template: Mapping[str, Any]) -> Regions:
    """The fields of a declaration as regions.

    Raises:
        UnsupportedTemplateError: when it is not valid, or says what cannot be run safely.
    """
    try:
        msgspec.convert(template, _Declaration)
    except msgspec.ValidationError as error:
        raise UnsupportedTemplateError(f"response_template: {error}") from error
    frame = _delimiter("response_template", template, "start_anchor")
    regions = [_region(name, field, frame) for name, field in template["fields"].items()]
    if sum(region.open is None for region in regions) > 1:
        raise UnsupportedTemplateError("response_template: two fields without an opening delimiter")
    if not any(region.kind is RegionKind.CONTENT or region.open is None for region in regions):
        regions.append(Region(RegionKind.CONTENT))
    return Regions(tuple(regions), frame)


def _region(name: str, field: Mapping[str, Any], frame: Anchor | None) -> Region:
    kind = _KINDS.get(name)
    if kind is None:
        raise UnsupportedTemplateError(f"{name}: an unknown field")
    closing = _delimiter(name, field, "close")
    if kind is RegionKind.REASONING and frame is not None and _ENDS_LATER.match(str(field.get("open_pattern"))):
        opening: Anchor | None = literal_anchor([frame.example.strip()])
    else:
        opening = _delimiter(name, field, "open")
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
