"""A client's own grammar as one expression: it says the same language, or it is left alone."""

from __future__ import annotations

import re

import pytest

from paraserve.grammar import argument_pattern

PATCH = r'''
start: begin hunk+ end
begin: "*** Begin" LF   // the first line
end: "*** End" LF?

hunk: add | delete
add: "*** Add: " filename LF line+ -> added
delete: "*** Delete: " filename LF
filename: /(.+)/
line: "+" /(.*)/ LF
    | "-" /[^.\n]*/ LF

%import common.LF
'''  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "admitted", "refused"),
    [
        (
            PATCH,
            ["*** Begin\n*** Add: a.py\n+x = 1\n+\n*** Delete: b\n*** End", "*** Begin\n*** Add: a\r\n-x\n*** End\n"],
            ["", "*** Begin\n*** End", "*** Begin\n*** Add: a\n*** End", "*** Begin\n*** Delete: a\n-.\n*** End"],
        ),
        ('start: "a"~2..3 ["b"] (C | /d.e/)\nC: "c" "."', ["aac.", "aaabc.", "aad\te"], ["ac.", "aacx", "aad\ne"]),
        ('start: "a\\n" | \n  | "[x]"', ["a\n", "", "[x]"], ["a", "x"]),
        ('?start.2: x\n!x: "y"+', ["y", "yy"], [""]),
        ("start: W INT\n%import common.WS_INLINE -> W\n%import common.INT", ["  2", "\t10"], ["2", " "]),
    ],
)  # fmt: skip
def test_a_grammar_without_recursion_is_its_expression(
    definition: str, admitted: list[str], refused: list[str]
) -> None:
    pattern = argument_pattern("lark", definition)
    assert pattern is not None
    assert [text for text in admitted if not re.search(pattern.replace("$", r"\Z"), text)] == []
    assert [text for text in refused if re.search(pattern.replace("$", r"\Z"), text)] == []


def test_an_expression_is_taken_whole_and_its_dot_is_anything_but_a_line_feed() -> None:
    assert argument_pattern("regex", r"a.[.]\.") == r"^(?:a[^\n][.]\.)$"


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [
        ("lark", 'start: "(" start ")" | "a"'),
        ("lark", "start: missing"),
        ("lark", 'start: "a"i'),
        ("lark", 'start: "a"\n%ignore " "'),
        ("lark", "start: WORDS\n%import common.WORDS"),
        ("lark", 'start: ("a"'),
        ("lark", 'start: "a")'),
        ("lark", 'start: /(?=a)b/'),
        ("lark", 'start: "a".."z"'),
        ("lark", 'start: a{b}\na: "x"'),
        ("lark", "\n".join(['start: a0 a0', *(f"a{i}: a{i + 1} a{i + 1}" for i in range(30)), 'a30: "x"'])),
        ("lark", "start: a+\na: " + "b " * 4000 + '\nb: "' + "x" * 1900 + '"'),
        ("lark", 'start: "' + "x" * 10_000 + '"'),
        ("regex", "[" * 9_999),
        ("lark", ""),
        ("lark", None),
        ("regex", "("),
        ("gbnf", 'root ::= "a"'),
        (None, "a"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_no_expression(syntax: str | None, definition: str | None) -> None:
    assert argument_pattern(syntax, definition) is None
