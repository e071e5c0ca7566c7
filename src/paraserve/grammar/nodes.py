"""The shapes that a JSON schema is read into, and the error for what has no shape.

Plain data: never knows where a schema came from or how values are spelled. Invariant: what a node admits is said by
its fields alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from paraserve.grammar.regex import ANY_CHAR, Both, Regex, Repeat, of_length


class GrammarError(ValueError):
    """A constraint that cannot be expressed.

    ``keyword`` is the schema keyword (or the request's field) to blame and ``path`` its place in the request, such
    as ``tools[0].function.parameters.properties.x``. The message is safe to show to a client.
    """

    def __init__(self, message: str, *, keyword: str, path: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.keyword = keyword
        self.path = path


@dataclass(frozen=True, slots=True)
class AnyValue:
    pass


@dataclass(frozen=True, slots=True)
class Null:
    pass


@dataclass(frozen=True, slots=True)
class Boolean:
    pass


@dataclass(frozen=True, slots=True)
class Number:
    integer: bool = False
    low: Decimal | None = None
    high: Decimal | None = None
    open_low: bool = False
    open_high: bool = False
    places: int | None = None
    """A multiple of ten to the minus ``places``; None: of nothing."""


@dataclass(frozen=True, slots=True)
class String:
    least: int = 0
    most: int | None = None
    patterns: tuple[Regex, ...] = ()
    path: str = field(default="", compare=False)
    """Where the schema stands, for a writer that cannot say it."""

    @property
    def language(self) -> Regex:
        """The strings themselves, before any spelling."""
        if not self.patterns:
            return Repeat(ANY_CHAR, self.least, self.most)
        joint = self.patterns[0] if len(self.patterns) == 1 else Both(self.patterns)
        return of_length(joint, self.least, self.most)


@dataclass(frozen=True, slots=True)
class Const:
    """One JSON value, kept as its compact JSON text."""

    json: str

    @property
    def value(self) -> Any:
        return json.loads(self.json)


@dataclass(frozen=True, slots=True)
class Array:
    prefix: tuple[Node, ...]
    rest: Node | None
    """The items after the prefix; None: there are none."""
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: Node
    required: bool


@dataclass(frozen=True, slots=True)
class Object:
    properties: tuple[Property, ...]
    extra: Node | None
    """Values of undeclared keys; None: there are none."""
    extra_keys: Node | None = None
    """What an undeclared key must satisfy; given only where none are declared."""
    least_extra: int = 0
    most_extra: int | None = None


@dataclass(frozen=True, slots=True)
class OneOf:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A definition by its key in `Schema.definitions`; only recursive schemas have any left."""

    key: str


NOTHING = OneOf(())
"""No value at all, where a node must stand."""

Node = AnyValue | Null | Boolean | Number | String | Const | Array | Object | OneOf | Ref


@dataclass(frozen=True, slots=True)
class Schema:
    root: Node
    definitions: Mapping[str, Node] = field(default_factory=dict)


TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")


def one_of(nodes: Sequence[Node]) -> Node | None:
    flat: list[Node] = []
    for node in nodes:
        flat += node.options if isinstance(node, OneOf) else [node]
    unique = list(dict.fromkeys(flat))
    if AnyValue() in unique:
        return AnyValue()
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else OneOf(tuple(unique))


def has_type(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def all_disjoint(nodes: Sequence[Node], most: int = 400_000) -> bool:
    """Whether no two nodes have a value in common; False as well where it takes more than ``most`` comparisons."""
    constants = [node.json for node in nodes if isinstance(node, Const)]
    if len(constants) == len(nodes):
        values = [json.loads(text) for text in constants]
        if all(isinstance(value, str) for value in values):
            return len(set(constants)) == len(constants)
    if len(nodes) ** 2 > 2 * most:
        return False
    left = iter(range(most))
    return all(_disjoint(a, b, left) for i, a in enumerate(nodes) for b in nodes[i + 1 :])


def _disjoint(a: Node, b: Node, left: Iterator[int]) -> bool:
    if next(left, None) is None:
        return False
    if isinstance(a, OneOf):
        return all(_disjoint(option, b, left) for option in a.options)
    if isinstance(b, OneOf):
        return _disjoint(b, a, left)
    if isinstance(a, Const) and isinstance(b, Const):
        return bool(a.value != b.value)
    if isinstance(a, Object) and isinstance(b, Object):
        theirs = {item.name: item for item in b.properties if item.required}
        return any(
            item.required and item.name in theirs and _disjoint(item.value, theirs[item.name].value, left)
            for item in a.properties
        )
    kinds = _kinds(a), _kinds(b)
    return not (kinds[0] & kinds[1])


def _kinds(node: Node) -> frozenset[str]:
    match node:
        case Null():
            return frozenset({"null"})
        case Boolean():
            return frozenset({"boolean"})
        case Number():
            return frozenset({"number"})
        case String():
            return frozenset({"string"})
        case Array():
            return frozenset({"array"})
        case Object():
            return frozenset({"object"})
        case Const():
            return frozenset(kind for kind in TYPES if kind != "integer" and has_type(node.value, kind))
        case _:
            return frozenset(TYPES)
