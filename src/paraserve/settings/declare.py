"""What an option is, and how a raw value becomes a typed one.

Type, choices and bounds are the field's annotation, which msgspec obeys; everything else is from `setting`. It must
never know where a value came from beyond the label that goes into an error. Invariant: text and typed values (of a
file) that mean the same give the same result, and a refused value is a one-line `ConfigurationError` that says what
would be right.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from msgspec.inspect import type_info

SECONDS = {"metavar": "SECONDS"}
BYTES = {"kind": "size"}
"""May be written as ``64MiB``."""
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0, extra=SECONDS)]
FilePath = Annotated[str, Meta(extra={"metavar": "PATH"})]

Kind = Literal["text", "integer", "number", "switch", "choice", "list", "object", "size"]

_METAVARS: dict[Kind, str] = {
    "text": "TEXT",
    "integer": "N",
    "number": "N",
    "list": "A,B",
    "object": "JSON",
    "size": "SIZE",
}
_KINDS: dict[str, Kind] = {
    "StrType": "text",
    "IntType": "integer",
    "FloatType": "number",
    "BoolType": "switch",
    "LiteralType": "choice",
    "VarTupleType": "list",
    "DictType": "object",
}
_EXPECTED: dict[Kind, str] = {
    "text": "a text that is not empty",
    "integer": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "list": "a text or a list of texts",
    "object": "a JSON object",
    "size": "a size such as 64MiB or a number of bytes",
}
_SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_SIZE = re.compile(r"(\d+)\s*(?:([KMG])(?:i?B)?|B)?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


class ConfigurationError(Exception):
    """The configuration is wrong. The message is one line for the operator that names the source of the value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. ``name`` is the attribute; flag, variable and file key are derived from it."""

    name: str
    type: Any
    kind: Kind
    default: Any
    group: str
    help: str
    choices: tuple[str, ...] = ()
    bounds: str = ""
    metavar: str = ""
    secret: bool = False
    door: bool = False
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
    metavar: str = "",
    secret: bool = False,
    door: bool = False,
    default_note: str = "",
) -> Any:
    """A dataclass field that is an option.

    Args:
        default: the value when no source names one; shown in the help unless ``default_note`` says it in words.
        group: heading under which the help lists it.
        help: one or two sentences for the operator.
        metavar: what stands for the value in the help; by default the annotation's, or its kind's.
        secret: never shown by ``repr``.
        door: one that is named and left empty ends the start, instead of counting as not given.
    """
    metadata = {"group": group, "help": help, "metavar": metavar, "secret": secret, "door": door}
    metadata["default_note"] = default_note
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, repr=not secret, metadata=metadata)


def options_of(declaration: type) -> tuple[Option, ...]:
    """The options that a dataclass declares, in its order."""
    hints = typing.get_type_hints(declaration, include_extras=True)
    return tuple(_option(field, hints[field.name]) for field in dataclasses.fields(declaration))


def _option(field: dataclasses.Field[Any], hint: Any) -> Option:
    optional = type(None) in typing.get_args(hint)
    hint = typing.get_args(hint)[0] if optional else hint
    info: Any = type_info(hint)
    extra = getattr(info, "extra", None) or {}
    info = getattr(info, "type", info)  # what `Meta` with more than bounds is wrapped around
    factory = field.default_factory
    given = {name: value for name, value in field.metadata.items() if value}
    return Option(
        name=field.name,
        type=hint,
        kind=extra.get("kind") or _KINDS[type(info).__name__],
        default=field.default if factory is dataclasses.MISSING else factory(),
        choices=typing.get_args(hint) if typing.get_origin(hint) is Literal else (),
        bounds=_bounds(getattr(info, "ge", None), getattr(info, "le", None)),
        **{"metavar": extra.get("metavar", "")} | given,
    )


def _bounds(low: float | None, high: float | None) -> str:
    if low is None:
        return ""
    return f"{low:g} or more" if high is None else f"{low:g} to {high:g}"


def convert(option: Option, value: object, source: str) -> Any:
    """The typed value of ``option``.

    Args:
        value: text (of a flag or a variable) or what a YAML or TOML file held.
        source: names where the value stood, for the error.

    Raises:
        ConfigurationError: it is not a value of the option's kind, or out of its bounds.
    """
    try:
        result = msgspec.convert(_spelled(option, value), option.type, strict=False)
        if result == "" or (isinstance(result, float) and not math.isfinite(result)):
            raise ValueError
        return result
    except (ValueError, msgspec.DecodeError) as error:
        expected = "one of " + ", ".join(option.choices) if option.choices else _EXPECTED[option.kind]
        if "= " in str(error):  # as msgspec tells of bounds
            expected = option.bounds
        shown = "the given value" if option.secret else repr(value)
        raise ConfigurationError(f"{source}: {shown} is not valid: expected {expected}") from None


def _spelled(option: Option, value: object) -> object:
    """What operators may write beyond what msgspec reads."""
    match option.kind, value:
        case "list", [*parts]:
            return [item for part in parts for item in (_items(part) if isinstance(part, str) else [part])]
        case "list", str():
            return _items(value)
        case "choice", False if "off" in option.choices:  # YAML reads a bare off so
            return "off"
        case "choice", str():
            return value.lower()
        case "switch", str():
            return _SWITCHES.get(value.lower(), value)
        case "switch", int() if not isinstance(value, bool):
            raise ValueError
        case "object", str():
            return msgspec.json.decode(value)
        case "size", str() if size := _SIZE.fullmatch(value.strip()):
            return int(size[1]) * _SIZE_UNITS[(size[2] or "").upper()]
    return value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


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
