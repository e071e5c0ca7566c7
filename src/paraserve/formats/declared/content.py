"""What the text of one finished region of a ``response_template`` says: content parsers, transforms, calls.

Facts as in transformers 5.24 (Chat response parsing). It works on whole texts and knows nothing of streams, delimiters
or events. Invariants: a text that is not what the declaration says is a `MalformedError`, never a guess; numbers keep
their text; every reader is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paraserve.formats.declared.anchors import Anchor, AnchorSet, compile_row
from paraserve.formats.declared.expressions import ANY, Char, Named, Node, Repeat, Row, UnsafePatternError, read_pattern
from paraserve.formats.reading.literals import PYTHON, LiteralReader, convert, space_end
from paraserve.formats.reading.schema import expected, item_schema, json_value, literal, property_schema
from paraserve.formats.reading.strings import encode_string


class UnsupportedTemplateError(ValueError):
    """The declaration says something that cannot be run. The message names it."""


class MalformedError(ValueError):
    """The text of a region is not what the declaration says."""


class Number(str):
    """A number as it was written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Untyped:
    """A value that was written without a type. The tool's schema says what it is; where it does not, ``by_look`` makes
    it the literal that it spells, and otherwise it is a string."""

    text: str
    by_look: bool


@dataclass(frozen=True, slots=True)
class RegionCall:
    name: str
    arguments: Any
    id: str = ""


BodyReader = Callable[[str], tuple[Any, str]]
"""A region's text to its value, and what stands behind the value."""
_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_CALL_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


def body_reader(content: str, options: Mapping[str, Any]) -> BodyReader:
    """The reader that a field declares.

    Raises:
        UnsupportedTemplateError: for an unknown content parser or options that cannot be run.
    """
    readers: dict[str, Callable[[Mapping[str, Any]], BodyReader]] = {
        "text": _text_reader,
        "json": _json_reader,
        "xml-inline": _tags_reader,
        "kv-lines": _lines_reader,
        "python-call-list": lambda options: _read_call_list,
    }
    if content not in readers:
        raise UnsupportedTemplateError(f"content {content!r} cannot be a call")
    try:
        return readers[content](options)
    except UnsafePatternError as error:
        raise UnsupportedTemplateError(f"{content}: {error}") from error


def calls_of(value: Any, captures: Mapping[str, str], transform: Any, *, each: bool) -> list[RegionCall]:
    """The calls that a region's value stands for, after its transform.

    Raises:
        MalformedError: when it stands for none.
    """
    if each:
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise MalformedError("not a list of objects")
        found = [_transformed(transform, {**captures, **item}) for item in value]
    elif transform is None:
        found = value if isinstance(value, list) else [value]
    else:
        made = _transformed(transform, {**captures, "content": value})
        found = made if isinstance(made, list) else [made]
    return [_call(item) for item in found]


def arguments_json(arguments: Any, schema: Mapping[str, Any]) -> str:
    """The JSON text of a call's arguments object.

    Raises:
        MalformedError: when they are no object.
    """
    if isinstance(arguments, Untyped | str) and not isinstance(arguments, Number):
        text = arguments.text if isinstance(arguments, Untyped) else arguments
        written = convert(text) if text.strip() else "{}"
        if written is None or not written.startswith("{"):
            raise MalformedError("the arguments are no object")
        return written
    if arguments is None:
        return "{}"
    if not isinstance(arguments, Mapping):
        raise MalformedError("the arguments are no object")
    try:
        return _write(arguments, schema, schema)
    except RecursionError as error:
        raise MalformedError("nested too deep") from error


def check_transform(transform: Any) -> None:
    """Raises UnsupportedTemplateError: for text around a placeholder, which the format forbids."""
    parts: Sequence[Any] = ()
    match transform:
        case Mapping():
            parts = list(transform.values())
        case list():
            parts = transform
        case str() if _PLACEHOLDER.search(transform) and not _PLACEHOLDER.fullmatch(transform):
            raise UnsupportedTemplateError(f"the transform {transform!r} mixes text and a placeholder")
    for part in parts:
        check_transform(part)


def _transformed(transform: Any, scope: Mapping[str, Any]) -> Any:
    match transform:
        case Mapping():
            return {key: _transformed(value, scope) for key, value in transform.items()}
        case list():
            return [_transformed(value, scope) for value in transform]
        case str() if whole := _PLACEHOLDER.fullmatch(transform):
            value: Any = scope
            for key in whole[1].split("."):
                if not isinstance(value, Mapping) or key not in value:
                    raise MalformedError(f"{transform} is missing")
                value = value[key]
            return value
        case _:
            return transform


def _call(value: Any) -> RegionCall:
    function = value.get("function", value) if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping):
        raise MalformedError("not a call")
    name = function.get("name")
    if isinstance(name, Untyped):
        name = name.text
    if not isinstance(name, str) or not name.strip() or "arguments" not in function:
        raise MalformedError("a call without name or arguments")
    id_ = value.get("id", "")
    return RegionCall(name.strip(), function["arguments"], id_ if isinstance(id_, str) else "")


def _write(value: Any, root: Mapping[str, Any], schema: Any) -> str:
    match value:
        case Untyped(text, by_look):
            expectation = expected(root, schema)
            if expectation.mode != "by_look":
                return json_value(text, expectation)
            return (literal(text) if by_look else None) or encode_string(text)
        case Number():
            return str(value)
        case str():
            return json.dumps(value, ensure_ascii=not value.isprintable() and _has_surrogates(value))
        case Mapping():
            members = (
                f"{encode_string(k)}: {_write(v, root, property_schema(root, schema, k))}" for k, v in value.items()
            )
            return "{" + ", ".join(members) + "}"
        case list():
            return "[" + ", ".join(_write(item, root, item_schema(root, schema)) for item in value) + "]"
        case _:
            return json.dumps(value)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


# Readers


def _text_reader(options: Mapping[str, Any]) -> BodyReader:
    strip = options.get("strip", True)
    return lambda body: (body.strip() if strip else body, "")


def _json_reader(options: Mapping[str, Any]) -> BodyReader:
    delimiters = options.get("string_delims") or []
    bare_keys = bool(options.get("unquoted_keys", False))
    pairs = [tuple(pair) for pair in delimiters if isinstance(pair, list | tuple)]
    if len(pairs) != len(delimiters) or not all(
        len(p) == 2 and all(isinstance(t, str) and t for t in p) for p in pairs
    ):
        raise UnsupportedTemplateError("json: string_delims must be pairs of texts")
    if not pairs and not bare_keys:
        return _read_json
    closing = dict(pairs)
    opening = "|".join(map(re.escape, sorted(closing, key=len, reverse=True))) or r"(?!)"
    key = r"(?<=[{,])(?P<space>\s*+)(?P<key>\w++)(?=\s*+:)" if bare_keys else r"(?!)"
    tokens = re.compile(rf'(?P<open>{opening})|"(?:\\.|[^"\\])*+(?:"|\Z)|{key}', re.DOTALL)

    def read(body: str) -> tuple[Any, str]:
        return _read_json(_plain_json(body, tokens, closing))

    return read


def _plain_json(body: str, tokens: re.Pattern[str], closing: Mapping[str, str]) -> str:
    """JSON for its dialect: other marks around strings, keys without any."""
    parts, position = [], 0
    while match := tokens.search(body, position):
        parts.append(body[position : match.start()])
        position = match.end()
        if match["open"]:
            close = closing[match["open"]]
            end = body.find(close, position)
            if end < 0:
                raise MalformedError("a string that does not end")
            parts.append(json.dumps(body[position:end]))
            position = end + len(close)
        elif match.groupdict().get("key"):
            parts.append(match["space"] + encode_string(match["key"]))
        else:
            parts.append(match[0])
    return "".join(parts) + body[position:]


def _read_json(body: str) -> tuple[Any, str]:
    reader = LiteralReader()
    end = reader.read(body, 0, final=True)
    if reader.broken or not reader.closed:
        raise MalformedError("no JSON value")
    return _loads("".join(reader.out)), body[end:].strip()


def _loads(text: str) -> Any:
    """Raises MalformedError: for what is nested deeper than Python's own limit."""
    try:
        return json.loads(text, parse_int=Number, parse_float=Number)
    except RecursionError as error:
        raise MalformedError("nested too deep") from error


def _read_call_list(body: str) -> tuple[Any, str]:
    """``[name(key=value, …), …]`` with Python's literals."""
    calls: list[Any] = []
    position = _expect(body, 0, "[")
    while not _at(body, position, "]"):
        if calls:
            position = _expect(body, position, ",")
        name = _CALL_NAME.match(body, space_end(body, position))
        if name is None:
            raise MalformedError("no name of a function")
        position = _expect(body, name.end(), "(")
        reader = LiteralReader(PYTHON, keywords=True)
        position = reader.read(body, position)
        if not reader.closed or reader.broken:
            raise MalformedError("no keyword arguments")
        position = _expect(body, position, ")")
        calls.append({"name": name[0], "arguments": _loads("".join(reader.out))})
    return calls, body[_expect(body, position, "]") :].strip()


def _at(body: str, position: int, char: str) -> bool:
    return body.startswith(char, space_end(body, position))


def _expect(body: str, position: int, char: str) -> int:
    if not _at(body, position, char):
        raise MalformedError(f"no {char!r}")
    return space_end(body, position) + 1


def _values(options: Mapping[str, Any]) -> Callable[[str], Untyped]:
    """The declared parser of single values. Their types come from the tool's schema."""
    parser = options.get("value_parser")
    if parser is None:
        return lambda text: Untyped(text, by_look=False)
    name, arguments = parser.get("name", "text"), parser.get("args", {})
    if name == "text":
        strip = arguments.get("strip", True)
        return lambda text: Untyped(text.strip() if strip else text, by_look=False)
    if name in ("int", "float", "bool") or (name == "json" and not set(arguments) - {"allow_non_json"}):
        return lambda text: Untyped(text, by_look=True)
    raise UnsupportedTemplateError(f"value_parser {name!r} with {sorted(arguments)} is not understood")


def _lines_reader(options: Mapping[str, Any]) -> BodyReader:
    line_mark, key_mark = options.get("line_sep", "\n"), options.get("kv_sep", ":")
    if not (isinstance(line_mark, str) and line_mark and isinstance(key_mark, str) and key_mark):
        raise UnsupportedTemplateError("kv-lines: separators must be texts")
    strip, typed = options.get("strip", True), _values(options)

    def read(body: str) -> tuple[Any, str]:
        found: dict[str, Untyped] = {}
        for line in body.split(line_mark):
            key, mark, value = line.partition(key_mark)
            if mark and line.strip():
                found[key.strip() if strip else key] = typed(value.strip() if strip else value)
            elif line.strip():
                raise MalformedError("a line without a separator")
        return found, ""

    return read


def _tags_reader(options: Mapping[str, Any]) -> BodyReader:
    before, value, after = _tag_parts(str(options.get("tag_pattern", "")))
    opening, closing = AnchorSet([(None, before)]), AnchorSet([(None, after)])
    merge, typed = bool(options.get("merge_duplicates", False)), _values(options)

    def read(body: str) -> tuple[Any, str]:
        found: dict[str, list[Untyped]] = {}
        position = 0
        end: re.Match[str] | None = None
        while begin := opening.search(body, position, final=True)[0]:
            start = begin[1].end()
            if end is None or end.start() < start:
                hit = closing.search(body, start, final=True)[0]
                if hit is None:
                    raise MalformedError("a tag that does not end")
                end = hit[1]
            text = body[start : end.start()]
            if value.fullmatch(text) is None:
                position = begin[1].start() + 1
                continue
            found.setdefault(begin[1]["key"].strip(), []).append(typed(text))
            position = end.end()
        many = {key: texts if merge and len(texts) > 1 else texts[-1] for key, texts in found.items()}
        return many, ""

    return read


def _tag_parts(pattern: str) -> tuple[Anchor, re.Pattern[str], Anchor]:
    """What stands before a value (with its key), what a value is, and what ends it."""
    tree = read_pattern(pattern)
    items: tuple[Node, ...] = tree.items if isinstance(tree, Row) else (tree,)
    at = next((i for i, item in enumerate(items) if isinstance(item, Named) and item.name == "value"), None)
    repeat = items[at].item if at is not None else None  # type: ignore[union-attr]  # a group, see above
    if at is None or not isinstance(repeat, Repeat) or not isinstance(repeat.item, Char):
        raise UnsupportedTemplateError("xml-inline: tag_pattern must be a key, a value and a closing text")
    if repeat.item.source == ANY and not repeat.lazy:
        raise UnsupportedTemplateError("xml-inline: a greedy value would swallow the tags behind it")
    before, after = compile_row(items[:at]), compile_row(items[at + 1 :])
    if "key" not in before.names or after.empty or before.empty:
        raise UnsupportedTemplateError("xml-inline: tag_pattern must be a key, a value and a closing text")
    least = min(repeat.least, 1)
    return before, re.compile(f"(?:{repeat.item.source}){{{least},}}+"), after
