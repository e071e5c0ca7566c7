"""How the structs of an engine's messages lie on the wire: arrays, in the order in which a release declares fields.

Never knows an engine. A layout is JSON: for each struct its fields in order, ``[name]`` where the field must be there
and ``[name, default]`` where it has a default. Two invariants: values are written and read by their fields' names, so
that a field which a release inserts moves nothing; and a layout in which a name is missing, or which demands what
nobody here knows, is `UnknownLayout` at the start and never a message that means something else.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Fields = Sequence[Sequence[Any]]
Layout = Mapping[str, Fields]

_EMPTY: Mapping[str, Any] = {"list": [], "set": [], "dict": {}, "tuple": []}


class UnknownLayout(Exception):
    """In words for the operator."""


def declared(source: str, names: Sequence[str]) -> dict[str, list[list[Any]]]:
    """The layout of the classes of a module's source, which is not run. Raises `UnknownLayout`."""
    found = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    if missing := [name for name in names if name not in found]:
        raise UnknownLayout(f"there is no {missing[0]}")
    return {name: _fields(found[name]) for name in names}


def _fields(node: ast.ClassDef) -> list[list[Any]]:
    return [
        [line.target.id, *([] if line.value is None else [_default(line.value)])]
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]


def _default(node: ast.expr) -> Any:
    """A default's value; the source of one that is no literal, which nobody here writes."""
    if isinstance(node, ast.Call):
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default" in given:
            return _default(given["default"])
        if isinstance(factory := given.get("default_factory"), ast.Name) and factory.id in _EMPTY:
            return _EMPTY[factory.id]
    try:
        return ast.literal_eval(node)
    except ValueError:
        return {"source": ast.unparse(node)}


def check_names(layout: Layout, struct: str, names: Sequence[str]) -> None:
    """Raises `UnknownLayout` where a field of a struct is missing."""
    known = {name for name, *_ in layout[struct]}
    if missing := [name for name in names if name not in known]:
        raise UnknownLayout(f"{struct} has no {missing[0]}")


class Row:
    """Writes one struct.

    Args:
        names: the fields that are written; the others stay at their defaults.

    Raises:
        UnknownLayout: one of them is missing, or another one that stands before them has no default.
    """

    def __init__(self, layout: Layout, struct: str, names: Sequence[str]) -> None:
        check_names(layout, struct, names)
        fields = layout[struct]
        self._places = {field[0]: place for place, field in enumerate(fields) if field[0] in names}
        last = max(self._places.values())
        needed = [name for name, *default in fields if not default and name not in names]
        if needed:
            raise UnknownLayout(f"{struct} needs {needed[0]}")
        self._defaults = [default[0] if default else None for _, *default in fields[: last + 1]]

    def of(self, values: Mapping[str, Any]) -> list[Any]:
        row = self._defaults.copy()
        for name, value in values.items():
            row[self._places[name]] = value
        return row


def reader(layout: Layout, struct: str, types: Mapping[str, Any], *, tagged: bool = False) -> Any:
    """A struct type that reads the named fields and leaves the others undecoded. Raises `UnknownLayout`.

    Args:
        types: each with a default: ``(type, default)``.
        tagged: whether the struct's name stands before its fields.
    """
    check_names(layout, struct, list(types))
    names = [name for name, *_ in layout[struct]]
    last = max(names.index(name) for name in types)
    unread = (msgspec.Raw, msgspec.Raw())
    fields = [(f"field{at}" if name not in types else name, *types.get(name, unread)) for at, name in enumerate(names)]
    return msgspec.defstruct(struct, fields[: last + 1], array_like=True, gc=False, tag=struct if tagged else None)
