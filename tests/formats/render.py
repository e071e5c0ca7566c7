"""Writes a reply from a description: reasoning, content and calls to the raw text that the family would emit.

The inverse of the parser, and the reference for the grammar. It never guesses: what a family cannot spell (a value
that holds its own closing marker, a null where the family leaves nulls out) is the caller's to avoid. Its invariant:
everything written comes from the description and the values, nothing from a family's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paraserve.formats.reading.schema import type_of
from paraserve.formats.spec import Calls, Elements, Format, JsonEnvelope, JsonObject, Keywords, Parameters, QuotedObject
from paraserve.formats.templates import fill
from paraserve.formats.types import ReplyStart


@dataclass(frozen=True, slots=True)
class Call:
    """A finished call: ``arguments`` is the decoded JSON object. ``id`` is written where the family writes ids."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


def render(
    format: Format,
    *,
    reasoning: str | None = None,
    content: str = "",
    calls: Sequence[Call] = (),
    start: ReplyStart = ReplyStart.HEADER,
    call_index_offset: int = 0,
) -> str:
    """The raw text of a reply after a prompt that ends in ``start``, without the stop token."""
    text = render_reasoning(format, reasoning, start)
    if content or format.content_required:
        preamble = format.channels.preamble if format.channels and calls else format.content_open
        opened = start is ReplyStart.CONTENT and format.content_required
        text += ("" if opened else preamble) + content
        if calls or format.content_required:
            text += format.content_close
    if calls:
        text += render_calls(format, calls, after_text=bool(content), call_index_offset=call_index_offset)
    return text + format.end


def render_reasoning(format: Format, reasoning: str | None, start: ReplyStart) -> str:
    """The reasoning block with its separators; only what the prompt has not written already."""
    block = format.reasoning
    if start is ReplyStart.CONTENT:
        return format.lead
    if block is None or (reasoning is None and start is ReplyStart.HEADER):
        return format.lead if block is None else ""
    opening = format.lead + block.open + block.open_after if start is ReplyStart.HEADER else ""
    return opening + (reasoning or "") + block.close_before + block.close + block.close_after


def render_calls(format: Format, calls: Sequence[Call], *, after_text: bool = False, call_index_offset: int = 0) -> str:
    """All calls of a reply in the family's first spelling, with the separator before them where text precedes."""
    spelling = format.calls[0]
    written = [
        render_call(spelling, call, index=index, conversation_index=call_index_offset + index)
        for index, call in enumerate(calls)
    ]
    before = spelling.before if after_text else ""
    return before + spelling.section_open + spelling.between.join(written) + spelling.section_close


def render_call(spelling: Calls, call: Call, *, index: int = 0, conversation_index: int = 0) -> str:
    """One call, without what stands around the section. ``index`` counts in this reply."""
    fields = {
        "name": call.name,
        "id": call.id or f"functions.{call.name}:{conversation_index}",
        "index": str(spelling.first_index + index),
    }
    return fill(spelling.open, **fields) + render_arguments(spelling, call) + spelling.close


def render_arguments(spelling: Calls, call: Call) -> str:
    match spelling.arguments:
        case JsonObject():
            return _json(call.arguments)
        case JsonEnvelope(name_keys=names, arguments_keys=keys, id_key=id_key):
            envelope: dict[str, Any] = {names[0]: call.name, keys[0]: call.arguments}
            return _json(envelope | {id_key: call.id} if id_key else envelope)
        case Parameters() as parameters:
            return "".join(_parameter(parameters, key, value) for key, value in call.arguments.items())
        case Elements(tag=tag, item=item):
            return "".join(_element(tag, item, key, value) for key, value in call.arguments.items())
        case Keywords():
            return ", ".join(f"{key}={_python(value)}" for key, value in call.arguments.items())
        case QuotedObject(quote=quote):
            return _quoted(quote, call.arguments)


def _parameter(parameters: Parameters, key: str, value: object) -> str:
    is_string = isinstance(value, str)
    scalar = value is None or isinstance(value, bool | int | float)
    python = parameters.style == "python" or (parameters.style == "python_scalars" and scalar)
    written = value if isinstance(value, str) else repr(value) if python else _json(value)
    opening = fill(
        parameters.open, key=parameters.spelled(key), type=type_of(value), string="true" if is_string else "false"
    )
    return opening + written + fill(parameters.close, key=key)


def _element(tag: str, item: str, key: str, value: object) -> str:
    match value:
        case Mapping():
            body = "".join(_element(tag, item, k, v) for k, v in value.items())
        case list() | tuple():
            body = "".join(_element(tag, item, item, v) for v in value)
        case str():
            body = value
        case _:
            body = _json(value)
    return f"{tag}<{key}>{body}{tag}</{key}>"


def _python(value: object) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_python(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(_python(v) for v in value) + "]"
        case _:
            return repr(value)


def _quoted(quote: str, value: object) -> str:
    match value:
        case str():
            return quote + value + quote
        case Mapping():
            return "{" + ",".join(f"{k}:{_quoted(quote, value[k])}" for k in sorted(value)) + "}"
        case list() | tuple():
            return "[" + ",".join(_quoted(quote, v) for v in value) + "]"
        case _:
            return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
