"""Leaves out of a schema what no reply could ever end: a value that requires a value of its own kind.

Knows a schema's tree alone. Invariants: what is left admits finite values only and no others than before; and a
definition never leads to itself without a bracket in between, so that every grammar of it makes progress.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paraserve.grammar.nodes import Array, Node, Object, OneOf, Ref, Schema, one_of


def finite(root: Node, definitions: Mapping[str, Node]) -> Schema | None:
    """The schema without its endless parts; None where nothing is left."""
    direct = {key: _alternatives(node, definitions) for key, node in definitions.items()}
    ends: set[str] = set()
    while found := {
        key for key, options in direct.items() if key not in ends and any(_ends(option, ends) for option in options)
    }:
        ends |= found
    kept: dict[str, Node] = {}
    for key in (key for key in direct if key in ends):
        options = [node for option in direct[key] if (node := _pruned(option, ends)) is not None]
        node = one_of(options)
        assert node is not None
        kept[key] = node
    pruned = _pruned(root, ends)
    return None if pruned is None else Schema(pruned, kept)


def _alternatives(node: Node, definitions: Mapping[str, Node]) -> list[Node]:
    """What the node admits, with references at its top followed, each once."""
    found: list[Node] = []
    pending, seen = [node], set[str]()
    while pending:
        current = pending.pop()
        if isinstance(current, OneOf):
            pending += reversed(current.options)
        elif not isinstance(current, Ref):
            found.append(current)
        elif current.key not in seen:
            seen.add(current.key)
            pending.append(definitions[current.key])
    return found


def _ends(node: Node, ends: set[str]) -> bool:
    """Whether some value of the node is finite, as far as the definitions in ``ends`` are known to have one."""
    match node:
        case Ref(key):
            return key in ends
        case OneOf(options):
            return any(_ends(option, ends) for option in options)
        case Array(prefix, rest, least, _):
            wanted = [*prefix[:least], *([rest] if rest is not None and least > len(prefix) else [])]
            return all(_ends(item, ends) for item in wanted)
        case Object(properties, extra, _, least_extra):
            values = [item.value for item in properties if item.required]
            return all(_ends(value, ends) for value in [*values, *([extra] if extra and least_extra else [])])
        case _:
            return True


def _pruned(node: Node, ends: set[str]) -> Node | None:
    if not _ends(node, ends):
        return None
    match node:
        case OneOf(options):
            return one_of([kept for option in options if (kept := _pruned(option, ends)) is not None])
        case Array(prefix, rest, _, most):
            items = [_pruned(item, ends) for item in prefix]
            if None in items:
                cut = items.index(None)
                return replace(node, prefix=tuple(item for item in items[:cut] if item), rest=None, most=cut)
            rest = rest and _pruned(rest, ends)
            most = most if rest is not None else len(prefix)
            return replace(node, prefix=tuple(item for item in items if item), rest=rest, most=most)
        case Object(properties, extra, _, _):
            values = [(item, _pruned(item.value, ends)) for item in properties]
            kept_properties = tuple(replace(item, value=value) for item, value in values if value is not None)
            # A key that may not be there must not come back as an undeclared one.
            extra = _pruned(extra, ends) if extra is not None and len(kept_properties) == len(properties) else None
            return replace(node, properties=kept_properties, extra=extra)
        case _:
            return node
