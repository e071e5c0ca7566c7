"""Writes a grammar tree in the Lark dialect of llguidance, which llama.cpp's server takes as ``grammar``.

Knows the dialect's syntax and its lexer, nothing of schemas or families. Invariants: every shared node becomes one
rule; a marker that is one token of the vocabulary is matched by its id and by nothing else, so that a marker can
never be spelled by ordinary tokens and free text can never hold it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from paraserve.grammar.limits import go_on
from paraserve.grammar.regex import ANY_TEXT, Both, Cat, Regex, has_both, quantifier, write
from paraserve.grammar.regex import text as regex_text
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

HEADER = "%llguidance {}\n"
_ANY = "/(?s:.*)/"


def write_lark(grammar: Grammar, tokens: Mapping[str, int]) -> str:
    """``grammar`` as Lark. ``tokens``: text to id of the marker tokens of the vocabulary."""
    return _Writer(grammar, tokens).text()


class _Writer:
    def __init__(self, grammar: Grammar, tokens: Mapping[str, int]) -> None:
        self.grammar = grammar
        self.tokens = tokens
        texts = sorted((re.escape(text) for text in tokens), key=len, reverse=True)
        self.marker = re.compile("|".join(texts)) if texts else None
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        self.terminals: dict[str, str] = {}
        self.regexes: dict[int, str] = {}
        self.uses = count_uses(grammar.root, *grammar.rules.values())
        self.rule_names = {key: f"r{number}" for number, key in enumerate(grammar.rules)}

    def text(self) -> str:
        start = self.expression(self.grammar.root)
        for key, tree in self.grammar.rules.items():
            self.lines.append(f"{self.rule_names[key]}: {self.expression(tree)}")
        return "\n".join((HEADER + f"start: {start}", *self.lines)) + "\n"

    def expression(self, tree: Tree) -> str:
        """What stands for ``tree`` in a rule's body: a name where it is shared, else its text."""
        if id(tree) in self.names:
            return self.names[id(tree)]
        if self.uses.get(id(tree), 0) > 1 and children(tree):
            name = self.names[id(tree)] = f"s{len(self.names)}"
            self.lines.append(f"{name}: {self.body(tree)}")
            return name
        return self.body(tree)

    def body(self, tree: Tree) -> str:
        go_on()
        match tree:
            case Literal(text):
                return self.literal(text)
            case Pattern(regex):
                if id(regex) not in self.regexes:
                    self.regexes[id(regex)] = self.terminal(self.language(regex))
                return self.regexes[id(regex)]
            case Word():
                return self.word(tree)
            case Until():
                return self.until(tree)
            case Tail(excludes, first):
                return self.terminal(self.free(None if first is None else Cat((first, ANY_TEXT)), excludes))
            case Row(items):
                return " ".join(self.expression(item) for item in items)
            case Alternation(items):
                return "(" + " | ".join(self.expression(item) for item in items) + ")"
            case Many(item, least, most):
                return f"({self.expression(item)})" + quantifier(least, most)
            case Rule(key):
                return self.rule_names[key]
            case EndTokens(texts):
                ids = [f"<[{self.tokens[text]}]>" for text in texts if text in self.tokens]
                return f"({' | '.join(ids)})?" if ids else '""'

    def pieces(self, text: str) -> list[str]:
        """Literal text in Lark: strings, and ids for the tokens in it."""
        found, position = [], 0
        for match in self.marker.finditer(text) if self.marker else ():
            if match.start() > position:
                found.append(quoted(text[position : match.start()]))
            found.append(f"<[{self.tokens[match[0]]}]>")
            position = match.end()
        if position < len(text):
            found.append(quoted(text[position:]))
        return found

    def literal(self, text: str) -> str:
        return " ".join(self.pieces(text)) or '""'

    def word(self, tree: Word) -> str:
        before, after = [*(self.marker.finditer(tree.before) if self.marker else ())], None
        if self.marker:
            after = self.marker.search(tree.after)
        cut = before[-1].end() if before else 0
        end = after.start() if after else len(tree.after)
        piece = Cat((regex_text(tree.before[cut:]), tree.regex, regex_text(tree.after[:end])))
        parts = [*self.pieces(tree.before[:cut]), self.terminal(self.language(piece)), *self.pieces(tree.after[end:])]
        return " ".join(parts)

    def until(self, tree: Until) -> str:
        match = self.marker.search(tree.close) if self.marker else None
        if match is None:
            # A text marker: the first place where it stands ends the text, so the terminal is lazy.
            name = f"u{len(self.lines)}"
            whole = f"{self.free(tree.regex, tree.excludes)} {quoted(tree.close)}"
            self.lines.append(f"{name}[lazy]: {self.terminal(whole)}")
            return name
        lead, rest = tree.close[: match.start()], tree.close[match.start() :]
        body = self.free(tree.regex, (*tree.excludes, match[0]))
        head = self.terminal(f"{body} {quoted(lead)}" if lead else body)
        return f"{head} {self.literal(rest)}"

    def free(self, regex: Regex | None, excludes: tuple[str, ...]) -> str:
        """Text that holds none of ``excludes``; a marker that starts with a token is excluded by that token's text."""
        words = sorted({self.leading_token(word) for word in excludes})
        parts = [] if regex is None else [self.language(regex)]
        parts += [f"~/(?s:.*)({'|'.join(_regex_text(word) for word in words)})(?s:.*)/"] if words else []
        return f"({' & '.join([_ANY, *parts])})"

    def leading_token(self, word: str) -> str:
        match = self.marker.match(word) if self.marker else None
        return match[0] if match else word

    def language(self, regex: Regex) -> str:
        """A terminal expression; intersections stand outside of regex literals."""
        if not has_both(regex):
            return f"/{write(regex, _escape) or '()'}/"
        if isinstance(regex, Both):
            return "(" + " & ".join(self.language(item) for item in regex.items if item != ANY_TEXT) + ")"
        parts = getattr(regex, "items", None)
        if parts is None:
            raise ValueError("an intersection under a repetition")
        joint = " " if type(regex).__name__ == "Cat" else " | "
        return "(" + joint.join(self.language(item) for item in parts) + ")"

    def terminal(self, expression: str) -> str:
        name = self.terminals.get(expression)
        if name is None:
            name = self.terminals[expression] = f"T{len(self.terminals)}"
            self.lines.append(f"{name}: {expression}")
        return name


def _escape(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"


def _regex_text(text: str) -> str:
    return "".join(_escape(ord(char)) for char in text)
