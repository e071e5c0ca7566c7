"""What in Python's text only its context decides, as models write it: a set or a dict, and which quote ends a string.

It answers as `patterns.Pattern` does: yes, no, or None for "not yet". What it looks at is bounded.
"""

from __future__ import annotations

import re

from paraserve.formats.reading.patterns import Atom, compile_sources, layout

_FIRST_OF_SET = re.compile(
    r"\{\s*(?P<first>'(?:[^'\\]|\\.){0,256}'|\"(?:[^\"\\]|\\.){0,256}\"|[^\s,:\[\]{}()=\"'<]{1,64})?\s*", re.DOTALL
)
_LONGEST_FIRST = 520


def begins_set(text: str, position: int, *, final: bool) -> bool | None:
    """Whether the brace here opens a set: a comma or the end follows its first value, and no colon."""
    match = _FIRST_OF_SET.match(text, position)
    assert match is not None
    after = text[match.end() : match.end() + 1]
    if match["first"] and after:
        return after in ",}"
    if final or (after and after not in "'\"") or len(text) - position > _LONGEST_FIRST:
        return False
    return None


def _behind_argument(atom: Atom) -> str:
    key = atom(r"[^:={}\[\]()\"',<]{1,128}") + atom("=")
    ends = atom(r"\)") + layout + atom(r"[,\]<]")
    return f"{layout}(?:{atom(',')}{layout}(?:{key}|{ends})|{ends})"


_BEHIND_ARGUMENT = compile_sources(_behind_argument)
_BEHIND_KEY = compile_sources(lambda atom: layout + atom(":"))
_BEHIND_ITEM = compile_sources(lambda atom: layout + atom(r"[,\]})]"))


def closes_string(text: str, position: int, *, inside: str, is_key: bool) -> bool | None:
    """Whether the quote before the position ends a string: only where what follows can only follow one. ``inside`` is
    the bracket that is open."""
    follows = _BEHIND_KEY if is_key else _BEHIND_ARGUMENT if inside == "(" else _BEHIND_ITEM
    if follows.match(text, position):
        return True
    return None if follows.may_match(text, position) else False
