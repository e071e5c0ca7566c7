"""Reads a JSON schema into the few shapes that a grammar can say, or says which keyword it cannot.

Never knows how a value is spelled or which engine reads the grammar. Two invariants: what a `Node` admits is valid
under the schema (the reading may be narrower, never wider), and a keyword that restricts values is either in the
result or a `GrammarError` that names it and its place; only ``lenient`` turns the second into dropping the keyword.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paraserve.grammar.finite import finite
from paraserve.grammar.limits import (
    DEEPEST_SCHEMA,
    MOST_COMBINED,
    MOST_FIRST_ITEMS,
    MOST_OPTIONAL,
    MOST_PARTS,
    check_size,
    go_on,
    too_large,
)
from paraserve.grammar.merge import MERGEABLE, merge
from paraserve.grammar.nodes import (
    NOTHING,
    TYPES,
    AnyValue,
    Array,
    Boolean,
    Const,
    GrammarError,
    Node,
    Null,
    Object,
    Property,
    Ref,
    Schema,
    String,
    all_disjoint,
    has_type,
    one_of,
)
from paraserve.grammar.scalars import MOST_LISTED, ScalarReader

_BY_TYPE: Mapping[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains",
              "minContains", "maxContains", "unevaluatedItems"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "propertyNames",
               "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
               "unevaluatedProperties"),
}  # fmt: skip
_NEVER_EXPRESSED = ("not", "if", "then", "else", "$dynamicRef", "$recursiveRef")
_NOT_FOR_OBJECTS = ("dependentRequired", "dependentSchemas", "dependencies")


def read_schema(schema: Any, *, path: str, lenient: bool = False) -> Schema:
    """``schema`` as a tree. Raises `GrammarError`.

    ``path`` is where the schema stands in the request. ``lenient`` drops the keywords that cannot be expressed.
    """
    check_size(schema, path)
    reader = _Reader(schema, path, lenient)
    root = reader.node(schema, path)
    recursive = {key: node for key, node in reader.definitions.items() if key in reader.recursive}
    found = None if root is None else finite(root, recursive)
    if found is None:
        raise GrammarError("no value satisfies this schema", keyword="", path=path)
    return found


class _Reader(ScalarReader):
    def __init__(self, document: Any, path: str, lenient: bool) -> None:
        super().__init__(lenient)
        self.document = document
        self.path = path
        self.definitions: dict[str, Node] = {}
        self.recursive: set[str] = set()
        self.open: list[str] = []
        self.depth = 0
        self.parts = self.combined = 0
        self.sizes: dict[str, int] = {}
        """How many parts each definition has."""

    # Each of these answers None for "no value at all".

    def node(self, schema: Any, path: str) -> Node | None:
        go_on()
        self.depth += 1
        self.add_parts(1)
        if self.depth > DEEPEST_SCHEMA:
            raise GrammarError(f"the schema is more than {DEEPEST_SCHEMA} levels deep", keyword="", path=self.path)
        node = self.read(schema, path)
        self.depth -= 1
        return node

    def add_parts(self, count: int) -> None:
        self.parts += count
        if self.parts > MOST_PARTS:
            raise too_large("parts, each counted wherever it is referred to", MOST_PARTS, self.path)

    def read(self, schema: Any, path: str) -> Node | None:
        if schema is True:
            return AnyValue()
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            raise GrammarError("a schema must be an object or a boolean", keyword="", path=path)
        for keyword in _NEVER_EXPRESSED:
            if keyword in schema:
                self.refuse(keyword, path)
        schema = {key: value for key, value in schema.items() if key in _KNOWN}
        if "$ref" in schema:
            return self.reference(schema, path)
        if "allOf" in schema:
            return self.node(self.intersection(schema, path), path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.union(keyword, schema, path)
        if "const" in schema or "enum" in schema:
            return self.listed(schema, path)
        types = self.types(schema, path)
        if types is None:
            return AnyValue()
        nodes = [node for kind in types if (node := self.typed(kind, schema, path)) is not None]
        return one_of(nodes)

    def types(self, schema: Mapping[str, Any], path: str) -> Sequence[str] | None:
        """The declared types, or the ones that the keywords speak of; None where nothing is said."""
        declared = schema.get("type")
        if declared is not None:
            types = [declared] if isinstance(declared, str) else declared
            if not isinstance(types, list) or not all(kind in TYPES for kind in types):
                raise self.broken("type", path, "names no JSON type")
            return [kind for kind in types if not (kind == "integer" and "number" in types)]
        implied = [kind for kind, keywords in _BY_TYPE.items() if any(key in schema for key in keywords)]
        return implied or None

    def reference(self, schema: Mapping[str, Any], path: str) -> Node | None:
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        if siblings:
            target = self.resolve(schema["$ref"], path)
            return self.node(self.merged(siblings, target, path), path)
        key = schema["$ref"]
        target = self.resolve(key, path)
        if key in self.open:
            self.recursive.add(key)
            return Ref(key)
        if key not in self.definitions:
            before = self.parts
            self.open.append(key)
            node = self.node(target, f"{self.path}.{key.removeprefix('#').strip('/').replace('/', '.')}".rstrip("."))
            self.open.pop()
            # What refers to it from within itself may stand in another definition: these references end nowhere.
            self.definitions[key] = NOTHING if node is None else node
            self.sizes[key] = self.parts - before
        elif key not in self.recursive:
            self.add_parts(self.sizes[key])
        if key in self.recursive:
            return Ref(key)
        return None if self.definitions[key] is NOTHING else self.definitions[key]

    def resolve(self, reference: Any, path: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise self.broken("$ref", path, f"must point into the same schema, not to {json.dumps(reference)[:80]}")
        target = self.document
        for part in reference[1:].split("/")[1:] if reference != "#" else ():
            part = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            if isinstance(target, Mapping) and part in target:
                target = target[part]
            elif isinstance(target, list) and part.isdecimal() and int(part) < len(target):
                target = target[int(part)]
            else:
                raise self.broken("$ref", path, f"points to {reference[:80]!r}, which is not there")
        if reference not in ("#", "#/") and not reference.startswith("#/"):
            raise self.broken("$ref", path, f"points to {reference[:80]!r}; only JSON pointers are supported")
        return target

    def merged(self, left: Any, right: Any, path: str) -> Any:
        """One schema that says what both say, with references on the right side followed."""
        seen: set[str] = set()
        self.add_parts(1)
        while isinstance(right, Mapping) and "$ref" in right:
            target = self.resolve(right["$ref"], path)
            if right["$ref"] in seen or right["$ref"] in self.open:
                raise self.broken("$ref", path, "is recursive and has other keywords beside it")
            seen.add(right["$ref"])
            rest = {key: value for key, value in right.items() if key != "$ref" and key in _KNOWN}
            right = target
            left = self.merged(left, rest, path) if rest else left
        if isinstance(left, Mapping) and "$ref" in left:
            left, right = right, left
            return self.merged(left, right, path)
        for side in (left, right):
            if not isinstance(side, Mapping | bool):
                raise GrammarError("a schema must be an object or a boolean", keyword="", path=path)
        self.combined += sum(map(_breadth, (left, right)))
        if self.combined > MOST_COMBINED:
            raise too_large("keywords and properties to combine", MOST_COMBINED, path)
        result, clash = merge(left, right)
        if clash is not None:
            self.refuse(clash, path, "cannot be combined with the other schemas that apply here")
        return result

    def intersection(self, schema: Mapping[str, Any], path: str) -> Any:
        parts = schema["allOf"]
        if not isinstance(parts, list) or not parts:
            raise self.broken("allOf", path, "must be a non-empty list")
        result: Any = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            result = self.merged(result, part, path)
        return result

    def union(self, keyword: str, schema: Mapping[str, Any], path: str) -> Node | None:
        options = schema[keyword]
        if not isinstance(options, list) or not options:
            raise self.broken(keyword, path, "must be a non-empty list")
        siblings = {key: value for key, value in schema.items() if key != keyword}
        nodes: list[Node] = []
        for index, option in enumerate(options):
            place = f"{path}.{keyword}[{index}]"
            node = self.node(self.merged(siblings, option, place) if siblings else option, place)
            if node is not None:
                nodes.append(node)
        if keyword == "oneOf" and not all_disjoint(nodes):
            self.refuse("oneOf", path, "is supported only where its options exclude each other by type or constant")
        return one_of(nodes)

    def listed(self, schema: Mapping[str, Any], path: str) -> Node | None:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(schema.get("enum", values), list):
            raise self.broken("enum", path, "must be a list")
        if "const" in schema and "enum" in schema and schema["const"] not in schema["enum"]:
            return None
        if len(values) > MOST_LISTED:
            self.refuse("enum", path, f"has more than {MOST_LISTED} values")
        rest = {key: value for key, value in schema.items() if key not in ("const", "enum")}
        kinds = rest.pop("type", None)
        if rest:
            self.refuse(next(iter(rest)), path, "is not supported beside an enumeration")
        if kinds is not None:
            kinds = self.types({"type": kinds}, path) or ()
        fitting = [value for value in values if kinds is None or any(has_type(value, kind) for kind in kinds)]
        try:
            return one_of([Const(json.dumps(value, ensure_ascii=False, allow_nan=False)) for value in fitting])
        except ValueError:
            raise self.broken("const" if "const" in schema else "enum", path, "holds what is no JSON") from None

    def typed(self, kind: str, schema: Mapping[str, Any], path: str) -> Node | None:
        match kind:
            case "null":
                return Null()
            case "boolean":
                return Boolean()
            case "string":
                return self.string(schema, path)
            case "number" | "integer":
                return self.number(schema, path, integer=kind == "integer")
            case "array":
                return self.array(schema, path)
            case _:
                return self.object(schema, path)

    def array(self, schema: Mapping[str, Any], path: str) -> Node | None:
        least, most = self.count("minItems", schema, path) or 0, self.count("maxItems", schema, path)
        items, first = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list):
            first, items = items, schema.get("additionalItems", True)
        for keyword in ("contains", "unevaluatedItems"):
            if keyword in schema:
                self.refuse(keyword, path)
        if schema.get("uniqueItems") is True and (most is None or most > 1):
            self.refuse("uniqueItems", path)
        if not isinstance(first, list):
            raise self.broken("prefixItems", path, "must be a list")
        if len(first) > MOST_FIRST_ITEMS:
            raise too_large("schemas in 'prefixItems'", MOST_FIRST_ITEMS, path, "prefixItems")
        prefix: list[Node] = []
        for index, item in enumerate(first[:most]):
            node = self.node(item, f"{path}.prefixItems[{index}]")
            if node is None:
                most = index if most is None else min(most, index)
                break
            prefix.append(node)
        rest = self.node(items, f"{path}.items")
        if rest is None or (most is not None and most <= len(prefix)):
            rest, most = None, len(prefix)
        return None if most is not None and most < least else Array(tuple(prefix), rest, least, most)

    def object(self, schema: Mapping[str, Any], path: str) -> Node | None:
        declared = schema.get("properties", {})
        required = schema.get("required", [])
        named = isinstance(required, list) and all(isinstance(name, str) for name in required)
        if not isinstance(declared, Mapping) or not named:
            raise self.broken("properties" if not isinstance(declared, Mapping) else "required", path, "is malformed")
        for keyword in _NOT_FOR_OBJECTS:
            if schema.get(keyword):
                self.refuse(keyword, path)
        if schema.get("patternProperties"):
            self.refuse("patternProperties", path)
        # A schema that lists its properties and says nothing of others is read as closed, as a strict schema is.
        additional = schema.get("additionalProperties", schema.get("unevaluatedProperties", "properties" not in schema))
        extra = self.node(additional, f"{path}.additionalProperties")
        properties: list[Property] = []
        required = dict.fromkeys(required)
        for name in [*declared, *(name for name in required if name not in declared)]:
            if name in declared:
                value = self.node(declared[name], f"{path}.properties.{name}")
            else:
                value = self.node(schema.get("additionalProperties", True), f"{path}.additionalProperties")
            if value is not None:
                properties.append(Property(str(name), value, name in required))
            elif name in required:
                return None
            else:
                extra = None  # a key that may not be there must not come back as an undeclared one
        if sum(not item.required for item in properties) > MOST_OPTIONAL:
            raise too_large("optional properties in one object", MOST_OPTIONAL, path, "properties")
        keys, any_key = self.key_node(schema, path)
        extra = extra if any_key else None
        least, most = self.extra_counts(schema, properties, extra is not None, path)
        if most is not None and most < least:
            return None
        return Object(tuple(properties), extra if most != 0 else None, keys, least, most)

    def key_node(self, schema: Mapping[str, Any], path: str) -> tuple[Node | None, bool]:
        """What an undeclared key must be (None: any string), and whether there is such a key at all."""
        if "propertyNames" not in schema:
            return None, True
        place = f"{path}.propertyNames"
        names = self.merged({"type": "string"}, schema["propertyNames"], place)
        node = self.node(names, place)
        if node == String():
            return None, True
        if schema.get("properties") or schema.get("required"):
            self.refuse("propertyNames", path, "is supported only without declared properties")
            return None, True
        return node, node is not None

    def extra_counts(
        self, schema: Mapping[str, Any], properties: Sequence[Property], has_extra: bool, path: str
    ) -> tuple[int, int | None]:
        """How many undeclared keys there may be for ``minProperties`` and ``maxProperties`` to hold."""
        least, most = self.count("minProperties", schema, path) or 0, self.count("maxProperties", schema, path)
        always = sum(item.required for item in properties)
        if least > always and (len(properties) > always or not has_extra or least - always > 1):
            self.refuse("minProperties", path, "is supported only up to one key beyond the required ones")
            least = always
        if most is None or (not has_extra and most >= len(properties)):
            return max(least - always, 0), None
        if len(properties) > always:
            self.refuse("maxProperties", path, "is not supported beside optional properties")
            return max(least - always, 0), None
        return max(least - always, 0), most - always


def _breadth(schema: Any) -> int:
    """What it takes to read the schema once for a combination."""
    if not isinstance(schema, Mapping):
        return 1
    listed = (schema.get(keyword) for keyword in ("properties", "required", "enum", "allOf"))
    return len(schema) + sum(len(value) for value in listed if isinstance(value, Mapping | list))


_KNOWN = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "const", "enum", "type", *(key for keys in _BY_TYPE.values() for key in keys)}
)
assert _KNOWN >= MERGEABLE
