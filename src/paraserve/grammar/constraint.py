"""The grammar of a whole reply: reasoning, then calls, or content, or free text with calls in it.

Knows how a description puts the parts of a reply in a row, nothing of values or of engine syntax. Invariant: what
cannot be said exactly is a `GrammarError`, never a silently wider grammar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from paraserve.formats.spec import Calls, Format
from paraserve.formats.templates import fill, is_special, units
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import tree
from paraserve.grammar.arguments import CallWriter
from paraserve.grammar.lark import write_lark
from paraserve.grammar.nodes import AnyValue, GrammarError, Object, Schema
from paraserve.grammar.regex import ANY_CHAR, chars, without
from paraserve.grammar.schema import read_schema
from paraserve.grammar.spelling import JSON
from paraserve.grammar.structural_tag import write_ebnf, write_structural_tag
from paraserve.grammar.tree import Tree, optional, sequence
from paraserve.grammar.values import Scope, ValueWriter

GrammarTarget = Literal["structural_tag", "lark", "ebnf"]
"""The JSON that SGLang and vLLM compile with xgrammar; the text that llama.cpp compiles with llguidance; the text that
all of them take, with the least to say of free text."""


def tool_call_constraint(
    format: Format,
    tools: Sequence[ToolSpec],
    choice: str,
    *,
    target: GrammarTarget,
    parallel: bool = True,
    start: ReplyStart = ReplyStart.HEADER,
    tokens: Mapping[str, int] | None = None,
    lenient: bool = False,
) -> str | None:
    """The constraint for a tool choice, or None where nothing is to be enforced.

    ``required`` and a tool's name: calls and nothing else (reasoning may come first), exactly one without
    ``parallel``. ``auto``: None unless a tool is strict; then free text in which every call that is opened is
    well-formed and, of a strict tool, has arguments that its schema admits.

    Args:
        choice: ``auto``, ``required`` or the name of one of ``tools``.
        start: where the rendered prompt leaves the model.
        tokens: text to id of the vocabulary's added tokens; the ``lark`` target matches markers by id.
        lenient: drop the schema keywords that cannot be expressed instead of refusing them.

    Raises:
        GrammarError: for a schema or a choice that cannot be expressed; ``path`` starts at ``tools`` or
            ``tool_choice``.
    """
    if choice == "none" or (choice == "auto" and not any(tool.strict for tool in tools)):
        return None
    chosen = [(index, tool) for index, tool in enumerate(tools) if choice in ("auto", "required", tool.name)]
    if not chosen:
        why = f"no tool is named {choice!r}" if choice != "required" else "there are no tools to call"
        raise GrammarError(why, keyword="tool_choice", path="tool_choice")
    if format.declared and choice == "auto":
        why = f"the format {format.name!r} is read by a declaration, of which free text cannot be kept apart"
        raise GrammarError(why, keyword="strict", path="tools")
    plan = _Plan(format, target, start, parallel, lenient)
    plan.add_tools(chosen, enforce_all=choice != "auto")
    body = plan.free_text_with_calls() if choice == "auto" else plan.only_calls()
    return plan.write(body, tokens)


def response_format_constraint(
    format: Format,
    schema: Any,
    *,
    target: GrammarTarget,
    tools: Sequence[ToolSpec] = (),
    parallel: bool = True,
    start: ReplyStart = ReplyStart.HEADER,
    tokens: Mapping[str, int] | None = None,
    lenient: bool = False,
    path: str = "response_format",
) -> str:
    """The constraint for a JSON reply: content that ``schema`` admits (None: any JSON object), reasoning free first.

    With ``tools`` (choice ``auto``) the reply is either such content or tool calls. The other arguments are those of
    `tool_call_constraint`; ``path`` is where the schema stands in the request.

    Raises:
        GrammarError: for a schema that cannot be expressed.
    """
    plan = _Plan(format, target, start, parallel, lenient)
    read = read_schema({"type": "object"} if schema is None else schema, path=path, lenient=lenient)
    spelling = replace(JSON, avoid=plan.content_markers(calls=bool(tools)))
    value = ValueWriter(spelling, plan.scope("content", path, read, lenient=lenient)).value(read.root)
    body = plan.content(value)
    if tools and format.calls and not format.declared:
        plan.add_tools(list(enumerate(tools)), enforce_all=False)
        body = tree.choice([body, plan.only_calls()])
    return plan.write(body, tokens)


@dataclass(slots=True)
class _Plan:
    """One grammar in the making."""

    format: Format
    target: GrammarTarget
    start: ReplyStart
    parallel: bool
    lenient: bool
    rules: dict[str, Tree] = field(default_factory=dict)
    made: dict[Any, Tree] = field(default_factory=dict)
    calls: list[Tree] = field(default_factory=list)

    def write(self, body: Tree, tokens: Mapping[str, int] | None) -> str:
        root = sequence(self.head(), body, tree.Literal(self.format.end), tree.EndTokens(self.format.stop_tokens))
        grammar = tree.Grammar(root, self.rules)
        if self.target == "structural_tag":
            return write_structural_tag(grammar)
        if self.target == "ebnf":
            return write_ebnf(grammar)
        added = {text: number for text, number in (tokens or {}).items() if text.strip()}
        marking = {t: i for t, i in added.items() if self.format.needs_token(t) or t in self.format.stop_tokens}
        return write_lark(grammar, marking)

    def scope(self, key: str, path: str, schema: Schema, *, lenient: bool) -> Scope:
        exact = self.target == "lark"
        return Scope(key, path, schema.definitions, self.rules, intersections=exact, lenient=lenient, made=self.made)

    # --- calls ---------------------------------------------------------------------------------------------------

    @property
    def spelling(self) -> Calls:
        return self.format.calls[0]

    @property
    def close(self) -> str:
        """What of a call's close the model writes: an end token is the engine's to see."""
        return "" if self.ends_reply else self.spelling.close

    @property
    def ends_reply(self) -> bool:
        """Whether a call's close is the end of the reply, so that there can be only one."""
        endless = self.format.declared is not None and not self.format.declared.call_ends
        return endless or self.spelling.close in self.format.stop_tokens

    def add_tools(self, chosen: Sequence[tuple[int, ToolSpec]], *, enforce_all: bool) -> None:
        declared = self.format.declared
        if not self.format.calls:
            none = "it has no tool calls: name one that has with --tool-call-parser, or --tool-template"
            why = declared.unwritten if declared and declared.unwritten else none
            raise GrammarError(f"the format {self.format.name!r}: {why}", keyword="tools", path="tools")
        for index, tool in chosen:
            if declared and not declared.spells(self.written_opening(tool.name), tool.name):
                why = f"the format {self.format.name!r} cannot spell the name {tool.name!r}"
                raise GrammarError(why, keyword="name", path=f"tools[{index}].function.name")
            path = f"tools[{index}].function.parameters"
            enforce = enforce_all or tool.strict
            schema = self.parameters(tool, path, enforce=enforce)
            scope = self.scope(str(index), path, schema, lenient=self.lenient or not enforce)
            writer = CallWriter(self.spelling, self.format.ids, scope, declared.call_ends if declared else ())
            self.calls.append(writer.call(tool.name, schema.root, close=self.close))

    def written_opening(self, name: str) -> str:
        """What opens a region of calls: a list in it is a part of its content."""
        section = self.spelling.section_open
        return section.removesuffix("[") if section else fill(self.spelling.open, name=name, id="", index="0")

    def parameters(self, tool: ToolSpec, path: str, *, enforce: bool) -> Schema:
        """The schema of a tool's arguments; of a tool that is not strict, as much of it as can be expressed."""
        parameters = tool.parameters or {"type": "object", "properties": {}}
        try:
            return read_schema(parameters, path=path, lenient=self.lenient or not enforce)
        except GrammarError:
            if enforce:
                raise
            return Schema(Object((), AnyValue()))

    def section(self) -> Tree:
        """All the calls of a reply, from the first marker to the last."""
        one, many = tree.choice(self.calls), self.parallel and not self.ends_reply
        opened = tree.prefixed(self.spelling.section_open, one)
        closing = tree.Literal(self.spelling.section_close)
        if many and not (self.spelling.section_open or self.spelling.between):
            return tree.Many(one, 1, None)
        more = tree.Many(tree.prefixed(self.spelling.between, one), 0, None) if many else tree.EMPTY
        return sequence(opened, more, closing)

    def only_calls(self) -> Tree:
        frame = ""
        if self.format.content_required:
            opened = self.start is ReplyStart.CONTENT
            frame = ("" if opened else self.format.content_open) + self.format.content_close
        return sequence(tree.Literal(frame), optional(tree.Literal(self.spelling.before)), self.section())

    # --- text ----------------------------------------------------------------------------------------------------

    @property
    def openers(self) -> tuple[str, ...]:
        """What begins a call or a section of them, in every spelling that a reader understands and has a marker."""
        found = []
        for calls in self.format.read_calls:
            for template in (calls.section_open, calls.open) if not calls.bare else ():
                first = units(template)[:1]
                found += [text for text in first if template.startswith(text) and any(map(str.isalpha, text))]
        return tuple(dict.fromkeys(found))

    @property
    def markers(self) -> tuple[str, ...]:
        """What free text must not hold, so that no reader takes it for something else."""
        found = [*self.openers, *self.format.frame_markers]
        if self.format.reasoning:
            found += [*self.format.reasoning.opens, *self.format.reasoning.closes]
        if self.format.channels:
            channels = self.format.channels
            found += [*channels.opens, *channels.messages, *channels.closes]
        return tuple(dict.fromkeys(found))

    @property
    def text_markers(self) -> tuple[str, ...]:
        """What an answer with calls in it must not hold. Markers around content that may be left out are free: a reader
        drops them wherever they stand."""
        return tuple(text for text in self.markers if text not in self.format.frame_markers)

    def content_markers(self, *, calls: bool) -> tuple[str, ...]:
        """What a reader would not take for content in the middle of content."""
        found = [*self.format.frame_markers, *(self.openers if calls else ())]
        block = self.format.reasoning
        found += [text for text in (*block.opens, *block.closes) if is_special(text)] if block else []
        if self.format.channels:
            channels = self.format.channels
            found += [*channels.opens, *channels.messages, *channels.closes]
        return tuple(dict.fromkeys(found))

    def head(self) -> Tree:
        """What the model writes before its answer: the reasoning, or the separator in its place."""
        block, lead = self.format.reasoning, optional(tree.Literal(self.format.lead))
        if block is None or self.start is ReplyStart.CONTENT:
            return lead
        after = optional(tree.Literal(block.close_after))
        if self.start is ReplyStart.REASONING:
            return sequence(tree.choice([tree.Until(close, self.markers) for close in block.closes]), after)
        blocks = [sequence(tree.Literal(begin), tree.Until(end, self.markers), after) for begin, end in block.pairs]
        return sequence(lead, optional(tree.choice(blocks)))

    def content(self, body: Tree) -> Tree:
        """An answer and nothing after it, in the markers that the family puts around answers."""
        opened = self.format.content_required and self.start is ReplyStart.CONTENT
        opening = "" if opened else self.format.content_open
        closing = self.format.content_close if self.format.content_required else ""
        return sequence(tree.Literal(opening), body, tree.Literal(closing))

    def free_text_with_calls(self) -> Tree:
        if self.format.channels:
            return self.channel_text()
        if self.format.content_required:
            opening = "" if self.start is ReplyStart.CONTENT else self.format.content_open
            text = tree.Until(self.format.content_close, self.markers)
            return sequence(tree.Literal(opening), text, tree.Many(self.section(), 0, 1))
        if self.spelling.bare:
            return self.bare_text()
        opener = self.openers[0]
        section = sequence(tree.Until(opener, self.text_markers), _after(opener, self.section()))
        most = None if self.parallel else 1
        return sequence(tree.Many(section, 0, most), tree.Tail(self.text_markers))

    def bare_text(self) -> Tree:
        """Calls from the first character on, or text that cannot be taken for them."""
        starts = "{[" + "".join(calls.open[:1] + calls.section_open[:1] for calls in self.format.calls if calls.bare)
        text = tree.Tail(self.markers, without(ANY_CHAR, chars(starts + " \t\r\n")))
        return tree.choice([self.section(), tree.Many(text, 0, 1)])

    def channel_text(self) -> Tree:
        """A preamble and a call, a call, or an answer: each a message of its own."""
        assert self.format.channels is not None
        until = tree.Until(self.format.content_close, self.markers)
        preamble = optional(sequence(tree.Literal(self.format.channels.preamble), until))
        answer = sequence(tree.Literal(self.format.content_open), tree.Tail(self.markers))
        return sequence(preamble, tree.choice([self.section(), answer]))


def _after(opener: str, section: Tree) -> Tree:
    """``section`` without the ``opener`` at its beginning, which has been read already."""
    match section:
        case tree.Alternation(items):
            return tree.Alternation(tuple(_after(opener, item) for item in items))
        case tree.Row((first, *rest)):
            return sequence(_after(opener, first), *rest)
        case tree.Many(item, least, most):
            assert least == 1
            return sequence(_after(opener, item), tree.Many(item, 0, most))
        case tree.Literal(text):
            return tree.Literal(text.removeprefix(opener))
        case _:
            return section
