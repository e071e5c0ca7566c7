"""Reads a client's own grammar (Lark's syntax, as tools of OpenAI's APIs give it) into one regular expression.

Where no rule needs itself, a grammar is a regular language, and that is what a ``pattern`` in a JSON schema can say:
the argument is then enforced by the same code as every other. Invariant: what is not understood gives None and never
another language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from paraserve.grammar.pattern import PatternError, read_pattern

LONGEST = 10_000
"""Characters of a grammar, and of the expression: each use of a rule repeats it."""

_COMMON: Mapping[str, str] = {
    "LF": r"\n",
    "CR": r"\r",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+-]?[0-9]+",
    "LETTER": r"[A-Za-z]",
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "WORD": r"[A-Za-z]+",
    "CNAME": r"[_A-Za-z][_A-Za-z0-9]*",
}
_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<regex>/(?:[^/\\\n]|\\.)+/)"""
    r"""|(?P<alias>->\s*\w+)|(?P<name>[A-Za-z_]\w*)|(?P<repeat>[*+?]|~\s*\d+(?:\s*\.\.\s*\d+)?)|(?P<sign>[()|\[\]])"""
)
_STATEMENT = re.compile(r"^[?!]*([A-Za-z_]\w*)(?:\.-?\d+)?\s*:(.*)$", re.DOTALL)
_IMPORT = re.compile(r"^%import\s+common\.(\w+)(?:\s*->\s*(\w+))?$")


class _NotRegular(Exception):
    pass


def argument_pattern(syntax: str | None, definition: str | None) -> str | None:
    """The expression that all of a string must match, in the dialect of JSON schemas; None: it cannot be said."""
    if not definition or len(definition) > LONGEST:
        return None
    try:
        if syntax not in ("lark", "regex"):
            return None
        inner = _dots(definition) if syntax == "regex" else _Grammar(definition).rule("start", ())
        pattern = f"^(?:{inner})$"
        read_pattern(pattern)
    except (_NotRegular, PatternError, RecursionError):
        return None
    return pattern


class _Grammar:
    def __init__(self, definition: str) -> None:
        self._rules: dict[str, str] = {}
        self._done: dict[str, str] = {}
        for statement in _statements(definition):
            if imported := _IMPORT.match(statement):
                if imported[1] not in _COMMON:
                    raise _NotRegular
                self._done[imported[2] or imported[1]] = _COMMON[imported[1]]
            elif (rule := _STATEMENT.match(statement)) and rule[1] not in self._rules:
                self._rules[rule[1]] = rule[2]
            else:
                raise _NotRegular

    def rule(self, name: str, inside: tuple[str, ...]) -> str:
        """The expression of a rule. ``inside``: those that it is needed for."""
        if name not in self._done:
            if name in inside or name not in self._rules:
                raise _NotRegular
            tokens = _tokens(self._rules[name])
            found = self._choice(tokens, (*inside, name))
            if tokens or len(found) > LONGEST:
                raise _NotRegular
            self._done[name] = found
        return self._done[name]

    def _choice(self, tokens: list[tuple[str, str]], inside: tuple[str, ...]) -> str:
        """Alternatives up to a closing sign. ``tokens`` are taken from their front."""
        branches = [""]
        while tokens and tokens[0][1] not in (")", "]"):
            kind, text = tokens.pop(0)
            if text == "|":
                branches.append("")
                continue
            if kind == "alias":
                continue
            item = self._item(kind, text, tokens, inside)
            while tokens and tokens[0][0] == "repeat":
                item = f"(?:{item}){_quantifier(tokens.pop(0)[1])}"
            branches[-1] += item
            if len(branches[-1]) > LONGEST:
                raise _NotRegular
        return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"

    def _item(self, kind: str, text: str, tokens: list[tuple[str, str]], inside: tuple[str, ...]) -> str:
        if kind == "name":
            return self.rule(text, inside)
        if kind == "string":
            return _literal(text)
        if kind == "regex":
            return f"(?:{_dots(text[1:-1])})"
        if text not in ("(", "["):
            raise _NotRegular
        inner = self._choice(tokens, inside)
        if not tokens or tokens.pop(0)[1] != {"(": ")", "[": "]"}[text]:
            raise _NotRegular
        return f"(?:{inner})" if text == "(" else f"(?:{inner})?"


def _statements(definition: str) -> list[str]:
    """One a rule or directive: a line that begins with ``|`` or with space goes on with the one before."""
    found: list[str] = []
    for line in definition.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("//"):
            continue
        if found and (line[0].isspace() or bare.startswith("|")) and not bare.startswith("%"):
            found[-1] += "\n" + bare
        else:
            found.append(bare)
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _NotRegular
        at = token.end()
        if token.lastgroup != "space":
            if token.lastgroup in ("string", "regex") and text[at : at + 1].isalpha():  # flags
                raise _NotRegular
            found.append((str(token.lastgroup), token[0]))
    return found


def _literal(text: str) -> str:
    """A quoted text; its escapes are those of an expression."""
    escaped = re.sub(r"\\.|[^\w\s\\]", lambda sign: sign[0] if sign[0][0] == "\\" else f"\\{sign[0]}", text[1:-1])
    return f"(?:{escaped})"


def _dots(expression: str) -> str:
    """The dialect's dot leaves out a line feed only, a JSON schema's some other signs too."""
    return re.sub(
        r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?$)|\.",
        lambda part: r"[^\n]" if part[0] == "." else part[0],
        expression,
        flags=re.DOTALL,
    )


def _quantifier(text: str) -> str:
    if text[0] != "~":
        return text
    least, _, most = text[1:].partition("..")
    return f"{{{least.strip()},{most.strip()}}}" if most else f"{{{least.strip()}}}"
