"""Writes a grammar tree as what xgrammar compiles for SGLang and vLLM: the JSON of a structural tag, or EBNF alone.

Knows xgrammar's node types and its EBNF, nothing of schemas or families. Invariants: markers are text (xgrammar
matches a marker token by its text); in a structural tag, free text is an ``any_text`` node that excludes its markers;
all else is EBNF, whose rules are shared, and which spells free text as a language that holds no beginning of a marker.
xgrammar has no intersections, so a tree with one is refused before it gets here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from paraserve.grammar.limits import go_on
from paraserve.grammar.regex import (
    ANY_CHAR,
    Alt,
    Both,
    Cat,
    Chars,
    Ranges,
    Regex,
    Repeat,
    avoiding,
    chars,
    is_empty,
    never_spelling,
    quantifier,
    without,
)
from paraserve.grammar.tree import (
    Alternation,
    EndTokens,
    Grammar,
    Literal,
    Many,
    Pattern,
    Row,
    Rule,
    Tail,
    Tree,
    Until,
    Word,
    children,
    count_uses,
    quoted,
)

Json = dict[str, Any]


def write_structural_tag(grammar: Grammar) -> str:
    """``grammar`` as the text of ``{"type": "structural_tag", …}``."""
    node = _Writer(grammar).node(grammar.root)
    return json.dumps({"type": "structural_tag", "format": node}, ensure_ascii=False)


def write_ebnf(grammar: Grammar) -> str:
    """``grammar`` as EBNF, for an engine that no structural tag reaches."""
    return _Ebnf(grammar).text(grammar.root)


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.free: dict[int, bool] = {}

    def has_free_text(self, tree: Tree) -> bool:
        """Whether ``tree`` holds text that only an ``any_text`` node can say well."""
        if id(tree) not in self.free:
            match tree:
                case Until(regex=regex, nested=nested):
                    self.free[id(tree)] = regex is None and not nested
                case Tail() | EndTokens():
                    self.free[id(tree)] = True
                case _:
                    self.free[id(tree)] = any(self.has_free_text(child) for child in children(tree))
        return self.free[id(tree)]

    def node(self, tree: Tree) -> Json:
        if isinstance(tree, Literal):
            return {"type": "const_string", "value": tree.text}
        if not self.has_free_text(tree):
            return {"type": "grammar", "grammar": _Ebnf(self.grammar).text(tree)}
        match tree:
            case Row(items):
                return _sequence([self.node(item) for item in items])
            case Alternation(items):
                return {"type": "or", "elements": [self.node(item) for item in items]}
            case Many(item, least, most):
                return self.many(item, least, most)
            case Until(close, excludes):
                return _sequence([*_any_text(excludes), {"type": "const_string", "value": close}])
            case Tail(excludes, first):
                return _sequence([*self.begin(first, excludes), *_any_text(excludes)])
            case _:
                return {"type": "const_string", "value": ""}

    def begin(self, first: Chars | None, excludes: tuple[str, ...]) -> list[Json]:
        """A first character out of a set, none that may begin a marker."""
        if first is None:
            return []
        allowed = without(first, chars("".join(word[0] for word in excludes)))
        return [{"type": "grammar", "grammar": f"root ::= {_regular(allowed)}"}]

    def many(self, item: Tree, least: int, most: int | None) -> Json:
        content = self.node(item)
        simple = {(0, 1): "optional", (0, None): "star", (1, None): "plus"}
        if (least, most) in simple:
            return {"type": simple[least, most], "content": content}
        return {"type": "repeat", "min": least, "max": -1 if most is None else most, "content": content}


def _sequence(elements: list[Json]) -> Json:
    kept = [element for element in elements if element != {"type": "const_string", "value": ""}]
    return kept[0] if len(kept) == 1 else {"type": "sequence", "elements": kept or elements[:1]}


def _any_text(excludes: tuple[str, ...]) -> list[Json]:
    return [{"type": "any_text", "excludes": sorted(set(excludes))}]


class _Ebnf:
    """One EBNF grammar for one tree, with a rule for everything that is used more than once."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.lines: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.pending: list[tuple[str, Tree]] = []
        """Named and not written yet, so that writing one goes no deeper than its own text."""
        self.uses: dict[int, int] = {}

    def text(self, tree: Tree) -> str:
        self.uses = count_uses(tree, rules=self.grammar.rules)
        root = self.body(tree)
        while self.pending:
            name, part = self.pending.pop()
            self.lines[name] = self.body(part)
        return "\n".join([f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self.lines.items())])

    def expression(self, tree: Tree) -> str:
        if isinstance(tree, Rule):
            tree = self.grammar.rules[tree.key]
        elif self.uses[id(tree)] < 2 or isinstance(tree, Literal):
            return self.body(tree)
        if id(tree) not in self.names:
            name = self.names[id(tree)] = f"r{len(self.names)}"
            self.pending.append((name, tree))
        return self.names[id(tree)]

    def body(self, tree: Tree) -> str:
        go_on()
        match tree:
            case Literal(text):
                return quoted(text)
            case Pattern(regex):
                return _regular(regex)
            case Word(before, regex, after):
                return f"{quoted(before)} {_regular(regex)} {quoted(after)}"
            case Until(close, excludes, regex):
                return f"{self.text_without(excludes, regex)} {quoted(close)}"
            case Tail(excludes, first):
                begun = "" if first is None else _regular(without(first, chars("".join(w[0] for w in excludes)))) + " "
                return begun + self.text_without(excludes, None)
            case Row(items):
                return " ".join(self.expression(item) for item in items)
            case Alternation(items):
                return "(" + " | ".join(self.expression(item) for item in items) + ")"
            case Many(item, least, most):
                return f"({self.expression(item)})" + quantifier(least, most)
            case Rule():
                return self.expression(tree)
            case _:
                return '""'

    def text_without(self, excludes: tuple[str, ...], regex: Regex | None) -> str:
        """A pattern or a length gives up a character of the marker.

        An ``any_text`` with ``max_chars`` would not have to, but xgrammar up to 0.2.9 offers tokens there that it
        then refuses.
        """
        if regex is None:
            return _regular(avoiding(excludes, ANY_CHAR))
        for word in excludes:
            smaller = never_spelling(regex, word)
            regex = regex if smaller is None else smaller
        return _regular(regex)


def _regular(regex: Regex) -> str:
    """A regular language as an EBNF expression; runs of single characters become strings."""
    match regex:
        case Chars(ranges):
            single = _single(regex)
            return quoted(single) if single else "[" + "".join(_range(*span) for span in _over_surrogates(ranges)) + "]"
        case Cat(items):
            parts = [quoted("".join(group)) if group else _regular(item) for group, item in _runs(items)]
            return f"({' '.join(parts)})" if parts else '""'
        case Alt(items):
            return "(" + " | ".join(_regular(item) for item in items if not is_empty(item)) + ")"
        case Repeat(item, least, most):
            inner = f"({_regular(item)})" if isinstance(item, Repeat) else _regular(item)
            return '""' if most == 0 or is_empty(item) else inner + quantifier(least, most)
        case Both():
            raise ValueError("xgrammar has no intersections")


def _over_surrogates(ranges: Ranges) -> Ranges:
    """Ranges with the gap of the surrogates closed: no text holds one, and xgrammar 0.2.7 takes a range that ends
    before them for one that ends before the Hangul syllables beside them."""
    for index, (_, high) in enumerate(ranges[:-1]):
        if high == 0xD7FF and ranges[index + 1][0] == 0xE000:
            return (*ranges[:index], (ranges[index][0], ranges[index + 1][1]), *ranges[index + 2 :])
    return ranges


def _single(regex: Regex) -> str:
    if isinstance(regex, Chars) and len(regex.ranges) == 1 and regex.ranges[0][0] == regex.ranges[0][1]:
        return chr(regex.ranges[0][0])
    return ""


def _runs(items: tuple[Regex, ...]) -> Iterator[tuple[list[str], Regex]]:
    for is_text, group in groupby(items, key=lambda item: bool(_single(item))):
        members = list(group)
        if is_text:
            yield [_single(item) for item in members], members[0]
        else:
            yield from (([], item) for item in members)


def _range(low: int, high: int) -> str:
    return _escape(low) if low == high else f"{_escape(low)}-{_escape(high)}"


def _escape(code: int) -> str:
    """A code point inside ``[...]``."""
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
