"""The description of an output format: what a model family emits, as data.

A `Format` says how reasoning, content and tool calls are *spelled*: exactly, with every separator, so that a reply can
be written from it (`grammar/`), and the machine that reads it (`reading/parser.py`) can be built from it. It never
knows how text arrives, what a token is, or which checkpoint uses it.

Three rules give the strings their meaning:

1. A string is a *template*: ``{name}``, ``{id}``, ``{index}``, ``{key}``, ``{type}``, ``{string}`` and ``{sources}``
   are fields, all else is literal. Braces that are no field stand for themselves.
2. Whitespace in a template is *layout*: written as it stands, and read leniently (any run of it, or none). It is
   part of nothing. Two exceptions: a single space in front of a word is literal (it separates words inside a tag), and
   the whitespace at the two edges of a parameter's value (the end of ``Parameters.open``, the start of
   ``Parameters.close``) is exact: at most that much is taken away.
3. The ``…_before`` and ``…_after`` strings (also ``Calls.before``, ``Format.lead`` and the whitespace at the edges of
   the markers around content) are *separators* between a marker and free text. A reader takes away at most the
   separator, never more: what is left belongs to the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from paraserve.formats.templates import units

IdStyle = Literal["generic", "counted", "nine"]
"""``call_`` and 24 hex digits; ``functions.{name}:{index}`` counted over the conversation; nine alphanumerics."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A block of reasoning at the head of a reply."""

    open: str
    close: str
    open_after: str = ""
    close_before: str = ""
    close_after: str = ""
    also: tuple[tuple[str, str], ...] = ()
    """Other pairs of markers around the same kind of block: the template chooses one."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return (self.open, self.close), *self.also

    @property
    def opens(self) -> tuple[str, ...]:
        return tuple(opening for opening, _ in self.pairs)

    @property
    def closes(self) -> tuple[str, ...]:
        return tuple(closing for _, closing in self.pairs)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """The arguments are one JSON object; the name stands in the call's header. Where its brace must stand there for
    the header to be one, it is ``braced``."""

    braced: bool = False


@dataclass(frozen=True, slots=True)
class JsonEnvelope:
    """The whole call is one JSON object that holds the name and the arguments under keys; the first key is written."""

    name_keys: tuple[str, ...] = ("name",)
    arguments_keys: tuple[str, ...] = ("arguments", "parameters")
    id_key: str | None = None
    """Written after the arguments, where the family writes it. A reader has given its own id by then."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """One element for each argument: strings raw, all else as a literal.

    Without ``{type}`` or ``{string}`` in ``open`` a value's type is known only from the tool's schema.
    """

    open: str
    close: str
    style: Literal["json", "python_scalars", "python"] = "json"
    """How the family writes what is no string: JSON; ``True``/``False``/``None`` but JSON containers; Python's repr."""
    also_opens: tuple[str, ...] = ()
    """What models write in place of ``open``. Read where the key is declared and was not given yet."""
    also_closes: tuple[str, ...] = ()
    """What models write in place of ``close``. Read where what follows can only follow a value."""
    entities: tuple[tuple[str, str], ...] = ()
    """What the family writes in a key for characters that mean something around it, in the order of replacement."""
    wraps: bool = False
    """Models write all arguments as one object, the value of a first key that is none of the tool's."""

    def spelled(self, key: str) -> str:
        for char, entity in self.entities:
            key = key.replace(char, entity)
        return key

    def meant(self, key: str) -> str:
        for char, entity in reversed(self.entities):
            key = key.replace(entity, char)
        return key


@dataclass(frozen=True, slots=True)
class Elements:
    """Like `Parameters`, with containers as nested elements: ``{tag}<key>…{tag}</key>``, array members as ``item``."""

    tag: str
    item: str = "item"


@dataclass(frozen=True, slots=True)
class Keywords:
    """Python keyword arguments, without the parentheses around them (those are the call's ``open`` and ``close``).
    With a ``quote`` they are written as in `QuotedObject`, without its braces."""

    quote: str = ""
    loose: bool = False
    """Models leave quotes inside strings without an escape."""


@dataclass(frozen=True, slots=True)
class QuotedObject:
    """A JSON-like object with bare keys and strings between ``quote`` marks, nothing escaped."""

    quote: str


Arguments = JsonObject | JsonEnvelope | Parameters | Elements | Keywords | QuotedObject


@dataclass(frozen=True, slots=True)
class Calls:
    """One way to spell tool calls: ``before section_open (open arguments close) between … section_close``.

    A bare spelling has no marker that announces it: it is looked for only where the content starts.
    """

    open: str
    arguments: Arguments
    close: str = ""
    section_open: str = ""
    section_close: str = ""
    between: str = ""
    before: str = ""
    """Separator between text and the first call."""
    bare: bool = False
    announced: str = ""
    """What text may hold of its own accord and such a spelling begins with, where calls are looked for in text too."""
    also_closes: tuple[str, ...] = ()
    """Closing markup that is understood as well, right after the arguments."""
    first_index: int = 0
    """What ``{index}`` counts from."""
    repeats: bool = False
    """Models write all the calls again behind the section's end."""
    glued: bool = False
    """Nothing that could be told from a name ends the name: the longest declared one that stands there is meant."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Replies made of messages with a header: ``opens`` … ``messages`` body ``closes``.

    What a message is, its header says: ``call`` (a regular expression with a group ``name``) makes it a tool call,
    ``reasoning`` makes it reasoning, anything else is content. Without ``call`` calls stand in the bodies: the first of
    `Format.calls` is written, its message's header with it, and the others are read.
    """

    opens: tuple[str, ...]
    """What is one of ``messages`` as well is a whole header."""
    messages: tuple[str, ...]
    """What ends a header, and is a part of it."""
    closes: tuple[str, ...]
    call: str
    reasoning: str
    preamble: str
    """How content is opened when calls follow."""
    glued: str = ""
    """What models write right behind a name, with nothing between."""
    continues: str = ""
    """What the rest of a header begins with whose opener the prompt has written; all of it, with a field in it."""


class Declaration(Protocol):
    """A message as a checkpoint declares it (`declared/`), where that says more than a description can."""

    @property
    def unwritten(self) -> str:
        """Why no spelling of calls can be given to write (`Format.calls`); empty where one can."""
        ...

    @property
    def literals(self) -> Iterator[str]:
        """All literal pieces of delimiters."""
        ...

    @property
    def call_ends(self) -> tuple[str, ...]:
        """What ends a region of calls wherever it stands."""
        ...

    def spells(self, opening: str, name: str) -> bool:
        """Whether what opens a call, with arguments behind it, is read as one of this name."""
        ...

    def without_calls(self) -> Declaration: ...
    def without_reasoning(self) -> Declaration: ...


@dataclass(frozen=True, slots=True)
class Format:
    """What one family emits. ``calls[0]`` is what is written; the others are understood as well."""

    name: str
    reasoning: Reasoning | None = None
    calls: tuple[Calls, ...] = ()
    channels: Channels | None = None
    declared: Declaration | None = None
    """Replies are read by it where there is one; ``calls`` is only written then."""
    lead: str = ""
    """Separator that the model writes after a bare header, or after a block of reasoning that the prompt closed."""
    content_open: str = ""
    content_close: str = ""
    end: str = ""
    """Written after everything else, before the stop token."""
    may_lack: str = ""
    """What models leave out at the end of a marker around reasoning and content."""
    asides: tuple[str, ...] = ()
    """Marks within text that are no part of it (citations)."""
    content_required: bool = False
    """``content_open`` and ``content_close`` are written around empty content too."""
    ids: IdStyle = "generic"
    stop_tokens: tuple[str, ...] = ()
    """End tokens of the family's tokenizers; a checkpoint's own files have the last word."""

    @property
    def read_calls(self) -> tuple[Calls, ...]:
        """The spellings that a reader looks for."""
        return self.calls[1:] if self.channels and not self.channels.call else self.calls

    @property
    def frame_markers(self) -> tuple[str, ...]:
        """Markers around content, which a reader drops. Whitespace at their edges is a separator."""
        return tuple(dict.fromkeys(m.strip() for m in (self.content_open, self.content_close, self.end) if m))

    @property
    def marker_texts(self) -> frozenset[str]:
        """Every literal piece of markup. Special tokens that are a part of one must stay in the decoded text."""
        return frozenset(_literals(self))

    def needs_token(self, text: str) -> bool:
        """Whether a special token of this text is part of the markup, so that ``skip_special_tokens`` must keep it."""
        return bool(text) and any(text in marker for marker in self.marker_texts)


PLAIN = Format("plain")


@dataclass(frozen=True, slots=True)
class ToolText:
    """How tools are said in plain messages, for chat templates that know none. What stands in braces is filled in."""

    format: Format
    """Reads the calls."""
    instructions: str
    """For ``{tools}``, one declaration a line."""
    call: str
    """For ``{call}``, a JSON object with name and arguments."""
    result: str
    """For ``{result}``."""


def compose(reasoning: Format, tools: Format) -> Format:
    """The reasoning of one format with the tool calls of another.

    Raises:
        ValueError: where one of the two frames its replies in a way that the other cannot live in (channels, or
            markers around content) and they are not the same.
    """
    if reasoning == tools:
        return tools
    if reasoning.declared or tools.declared:
        return _compose_declared(reasoning, tools)
    framed = [f.name for f in (reasoning, tools) if f.channels or f.frame_markers]
    both = (reasoning.reasoning or reasoning.channels) and (tools.calls or tools.channels)
    if len(framed) > 1 or (framed and both):
        raise ValueError(f"format {framed[0]!r} cannot be combined with another: it frames the whole reply")
    base = reasoning if reasoning.channels or reasoning.frame_markers else tools
    stops = tuple(dict.fromkeys((*tools.stop_tokens, *reasoning.stop_tokens)))
    return replace(
        base,
        name=f"{reasoning.name}+{tools.name}",
        reasoning=reasoning.reasoning,
        calls=tools.calls,
        ids=tools.ids,
        lead=reasoning.lead,
        stop_tokens=stops,
    )


def _compose_declared(reasoning: Format, tools: Format) -> Format:
    """One half of a declaration; the other half can only be nothing."""
    if tools == PLAIN and reasoning.declared:
        return replace(reasoning, calls=(), declared=reasoning.declared.without_calls())
    if reasoning == PLAIN and tools.declared:
        return replace(tools, reasoning=None, declared=tools.declared.without_reasoning())
    raise ValueError("the checkpoint's response_template cannot be combined with another format")


def _literals(format: Format) -> Iterator[str]:
    if format.declared:
        yield from format.declared.literals
    templates = [*format.frame_markers]
    if format.reasoning:
        templates += [*format.reasoning.opens, *format.reasoning.closes]
    if format.channels:
        channels = format.channels
        templates += [*channels.opens, *channels.messages, *channels.closes, channels.preamble]
    for calls in format.calls:
        templates += [calls.section_open, calls.open, calls.close, calls.section_close]
        match calls.arguments:
            case Parameters(open=opening, close=closing):
                templates += [opening, closing]
            case Elements(tag=mark) | QuotedObject(quote=mark):
                templates.append(mark)
            case _:
                pass
    for template in templates:
        yield from units(template)
