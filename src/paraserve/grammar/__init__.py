"""Grammars that make an engine obey: tool calls in the family's own syntax, replies that are JSON of a schema.

A description of a format and a JSON schema become one tree (``tree.py``), and the tree becomes the syntax that an
engine takes. Never knows a family's name or an engine. The law: every reply that a grammar admits parses, with the
same description, to calls whose arguments (or to content that) the schema admits.
"""

from paraserve.grammar.client_lark import argument_pattern
from paraserve.grammar.constraint import GrammarTarget, response_format_constraint, tool_call_constraint
from paraserve.grammar.limits import Writing
from paraserve.grammar.nodes import GrammarError

__all__ = [
    "GrammarError",
    "GrammarTarget",
    "Writing",
    "argument_pattern",
    "response_format_constraint",
    "tool_call_constraint",
]
