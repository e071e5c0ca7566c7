"""What an option is, and how a raw value becomes a typed one.

The type comes from the field's annotation, everything else from `setting`. It must never know where a value came
from beyond the label that goes into an error. Invariant: text and typed values (of a file) that mean the same give
the same result, and a refused value is a one-line `ConfigurationError` that says what would be right.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal

Kind = Literal["text", "integer", "number", "switch", "choice", "list", "object", "size"]

_METAVARS: dict[Kind, str] = {
    "text": "TEXT",
    "integer": "N",
    "number": "N",
    "list": "A,B",
    "object": "JSON",
    "size": "SIZE",
}
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_SIZE = re.compile(r"(\d+)\s*(?:([KMG])(?:i?B)?|B)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class ConfigurationError(Exception):
    """The configuration is wrong. The message is one line for the operator that names the source of the value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. ``name`` is the attribute; flag, variable and file key are derived from it."""

    name: str
    kind: Kind
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    metavar: str = ""
    secret: bool = False
    default_note: str = ""

    @property
    def key(self) -> str:
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        return "--" + self.key

    @property
    def variable(self) -> str:
        return "PARASERVE_" + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as a reader of the help sees it."""
        if self.default_note:
            return self.default_note
        if self.kind == "switch":
            return "on" if self.default else "off"
        if self.kind == "size":
            return format_size(self.default)
        if self.default is None or self.default in ((), {}):
            return "none"
        if isinstance(self.default, tuple):
            return ", ".join(self.default)
        return f"{self.default:g}" if self.kind == "number" else str(self.default)

    @property
    def value_text(self) -> str:
        """What stands behind the flag in the help; empty for a switch."""
        if self.kind == "switch":
            return ""
        return "{" + ",".join(self.choices) + "}" if self.kind == "choice" else self.metavar or _METAVARS[self.kind]


def setting(
    default: Any,
    *,
    group: str,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    metavar: str = "",
    secret: bool = False,
    size: bool = False,
    default_note: str = "",
) -> Any:
    """A dataclass field that is an option.

    Args:
        default: the value when no source names one; shown in the help unless ``default_note`` says it in words.
        group: heading under which the help lists it.
        help: one or two sentences for the operator.
        minimum, maximum: inclusive bounds of a number.
        secret: never shown by ``repr``.
        size: an integer that counts bytes and may be written as ``64MiB``.
    """
    metadata = {
        "group": group,
        "help": help,
        "minimum": minimum,
        "maximum": maximum,
        "metavar": metavar,
        "secret": secret,
        "size": size,
        "default_note": default_note,
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def options_of(declaration: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in its order."""
    hints = typing.get_type_hints(declaration)
    return tuple(_option(field, hints[field.name]) for field in dataclasses.fields(declaration))


def _option(field: dataclasses.Field[Any], hint: Any) -> Option:
    metadata = dict(field.metadata)
    if isinstance(hint, UnionType):
        hint = next(member for member in typing.get_args(hint) if member is not type(None))
    choices: tuple[str, ...] = ()
    if metadata.pop("size"):
        kind: Kind = "size"
    elif typing.get_origin(hint) is Literal:
        kind, choices = "choice", typing.get_args(hint)
    else:
        kind = _KINDS[typing.get_origin(hint) or hint]
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    return Option(name=field.name, kind=kind, default=default, choices=choices, **metadata)


_KINDS: dict[Any, Kind] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "switch",
    tuple: "list",
    Mapping: "object",
}


def convert(option: Option, value: object, source: str) -> Any:
    """The typed value of ``option``.

    Args:
        value: text (of a flag or a variable) or what a YAML or TOML file held.
        source: names where the value stood, for the error.

    Raises:
        ConfigurationError: it is not a value of the option's kind, or out of its bounds.
    """

    try:
        result = _CONVERTERS[option.kind](option, value)
        if isinstance(result, int | float):
            _check_bounds(option, result)
    except _Expected as error:
        shown = "the given value" if option.secret else repr(value)
        raise ConfigurationError(f"{source}: {shown} is not valid: expected {error}") from None
    return result


class _Expected(Exception):
    """The value is not of the option's kind; the message says what would be."""


def _check_bounds(option: Option, value: float) -> None:
    low, high = option.minimum, option.maximum
    if (low is None or value >= low) and (high is None or value <= high):
        return
    raise _Expected(f"{low or 0:g} or more" if high is None else f"{low or 0:g} to {high:g}")


def _text(option: Option, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise _Expected("a text that is not empty")


def _integer(option: Option, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value):
        return int(value)
    raise _Expected("a whole number")


def _number(option: Option, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", value):
        return float(value)
    raise _Expected("a number")


def _switch(option: Option, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise _Expected("true or false")


def _choice(option: Option, value: object) -> str:
    # YAML reads a bare off as false.
    text = "off" if value is False and "off" in option.choices else value
    if isinstance(text, str) and text.lower() in option.choices:
        return text.lower()
    raise _Expected("one of " + ", ".join(option.choices))


def _list(option: Option, value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list | tuple) else [value]
    items: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise _Expected("a text or a list of texts")
        items += [item.strip() for item in part.split(",") if item.strip()]
    return tuple(items)


def _object(option: Option, value: object) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise _Expected("a JSON object") from None
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    raise _Expected("a JSON object")


def _size(option: Option, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise _Expected("a size such as 64MiB or a number of bytes")
    return int(match[1]) * _SIZE_UNITS[(match[2] or "").upper()]


_CONVERTERS: dict[Kind, Callable[[Option, object], Any]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "switch": _switch,
    "choice": _choice,
    "list": _list,
    "object": _object,
    "size": _size,
}


def format_size(count: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    for unit in ("G", "M", "K"):
        if count and count % _SIZE_UNITS[unit] == 0:
            return f"{count // _SIZE_UNITS[unit]}{unit}iB"
    return f"{count}B"


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
