"""Templates as regular expressions that know the difference between "no" and "not yet".

A streaming reader must tell three things apart: the text matches, it cannot match any more, or it may still match when
more comes. `Pattern` answers all three for a sequence of template pieces, `Markers` for several literals with their
separators, and delimiters that a checkpoint declares (`declared/anchors.py`) are written with the same two functions.
None knows what a match means.

Theory: one source is written twice, as it stands and as *part*, where each character may also be the text's end
(``(?:a|\\Z)``). What the part matches when the whole does not is exactly a beginning of the whole that runs into that
end. Where a longer text could change a match, not only make one, the end leaves a *mark* in an empty group
(``(?:\\Z()|a)``): alternatives are tried in order of their priority, so the first way that succeeds is final if it has
no mark, and is not known yet if it has one. That is exact for greedy and lazy repetition alike. Descriptions are
written so that the shortest match is the right one, and need no marks. Invariant: every source is bounded in length, so
that what is held back is bounded too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from paraserve.formats.templates import Field, Lacked, Piece, Space, Text, marks, pieces

layout = "[ \\t\\r\\n]{0,64}"
"""Whitespace that means nothing."""
_NAME = "[^ \\t\\r\\n<>{}()\\[\\]\"'|｜,\\\\]{1,256}?"
_WORD_FIELDS = {"name": _NAME, "index": "[0-9]{0,9}?", "sources": "[0-9:,\\[\\] ]{0,256}?"}
_MAX_FIELD = 512
_FIELDS = ("name", "id", "index", "key", "type", "string", "sources")
_QUOTE = '"'
# Fields are lazy: the shortest text that makes a header is the one that a reader of single characters sees first.

Atom = Callable[[str], str]
"""Writes the source of one character, or of a class with its repetition."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """An expression for the whole, and for a part of it at the text's end. Fields become groups of their names."""

    whole: re.Pattern[str]
    part: re.Pattern[str]
    marks: tuple[int, ...] = ()
    """The groups of ``part`` that say that the end of the text was reached."""

    def match(self, text: str, position: int) -> re.Match[str] | None:
        return self.whole.match(text, position)

    def may_match(self, text: str, position: int) -> bool:
        """Whether more text could still make it match. Ask only after `match` said no."""
        return self.part.match(text, position) is not None

    def settled(self, text: str, position: int) -> re.Match[str] | bool | None:
        """The match that no longer text can change, None, or True for "not yet". Only of a marked pattern."""
        match = self.part.match(text, position)
        return True if match and any(match[mark] is not None for mark in self.marks) else match

    def find(self, text: str, position: int) -> tuple[re.Match[str] | None, int]:
        """The first match and where it begins, or where the end of the text begins that may still become one."""
        if match := self.whole.search(text, position):
            return match, match.start()
        part = self.part.search(text, position)
        return None, part.start() if part else len(text)


def compile_sources(source: Callable[[Atom], str]) -> Pattern:
    """The pattern of a source that is written with an `Atom` for everything that takes text and is not optional."""
    whole = re.compile(source(lambda atom: atom), re.DOTALL)
    return Pattern(whole, re.compile(source(_or_end), re.DOTALL))


def compile_marked(source: Callable[[Atom], str]) -> Pattern:
    """Like `compile_sources`, where a longer text could change what matches."""
    whole = re.compile(source(lambda atom: atom), re.DOTALL)
    part = re.compile(source(lambda atom: f"(?:\\Z()|{atom})"), re.DOTALL)
    named = set(part.groupindex.values())
    return Pattern(whole, part, tuple(group for group in range(1, part.groups + 1) if group not in named))


def _or_end(char: str) -> str:
    return f"(?:{char}|\\Z)"


def any_of(chars: Collection[str]) -> re.Pattern[str]:
    return re.compile("[" + "".join(map(re.escape, sorted(chars))) + "]" if chars else r"(?!)")


def literal(text: str, atom: Atom) -> str:
    return "".join(atom(re.escape(char)) for char in text)


def any_closer(atom: Atom) -> str:
    """A closing tag of any name."""
    return literal("</", atom) + atom(r"[^<>/\s]{1,64}") + atom(">")


def compile_pattern(sequence: Sequence[Piece], ahead: Sequence[Sequence[Piece]] = ()) -> Pattern:
    """``sequence``, followed (after layout) by one of ``ahead``, which is looked at and not taken."""
    return compile_sources(lambda atom: source_of(sequence, atom, *_FIELDS) + (_ahead(ahead, atom) if ahead else ""))


def _ahead(tails: Sequence[Sequence[Piece]], atom: Atom) -> str:
    return f"(?={layout}{one_of(source_of(tail, atom) for tail in tails)})"


def one_of(sources: Iterable[str]) -> str:
    return f"(?:{'|'.join(sources) or '(?!)'})"


def source_of(sequence: Sequence[Piece], atom: Atom, *groups: str) -> str:
    """The source of a template. Of its fields those become groups that ``groups`` names; a name with a number behind
    it stands for the field without, so that several templates can be alternatives."""
    sequence = loosened(sequence)
    named = {group.rstrip("0123456789"): group for group in groups}
    source = ""
    for index, piece in enumerate(sequence):
        match piece:
            case Text(text):
                source += literal(text, atom)
            case Lacked(text):
                source += f"(?:{layout}{literal(text, atom)}|(?!{layout}{literal(text, _or_end)}))"
            case Space():
                source += layout
            case Field(name):
                group = f"(?P<{named[name]}>" if name in named else "(?:"
                source += f"{layout}{group}{atom(_field(name, sequence[index + 1 :]))}){layout}"
    return source


def loosened(sequence: Sequence[Piece]) -> tuple[Piece, ...]:
    """With layout between any two pieces of markup, whether the family writes it or not."""
    found: list[Piece] = []
    for piece in sequence:
        if isinstance(piece, Text):
            found += [Space("")] if found and isinstance(found[-1], Lacked) else []
            for mark in marks(piece.text):
                found += [Text(mark), Space("")]
            found.pop()
        else:
            found.append(piece)
    return tuple(found)


def _field(name: str, following: Sequence[Piece]) -> str:
    if name in _WORD_FIELDS:
        return _WORD_FIELDS[name]
    stop = next((re.escape(piece.text[0]) for piece in following if isinstance(piece, Text)), "<")
    return f"[^{stop}{'' if stop == _QUOTE else '<'}\\n]{{0,{_MAX_FIELD}}}?"


def at_most(separator: str, atom: Atom) -> str:
    """The separator or what is left of it when its beginning is missing."""
    rests = (literal(separator[start:], atom) for start in range(len(separator)))
    return f"(?:{'|'.join(rests)})?" if separator else ""


class Markers:
    """The literals that mean something in one state of the machine.

    Args:
        texts: the literals (or templates), each with the separator that belongs to it rather than to the text
            before it.
        may_lack: the end of a literal without which it is the same one.
    """

    __slots__ = ("_pattern", "_search", "_search_part", "_templates", "_texts", "trigger")

    def __init__(self, texts: Mapping[str, str] | Iterable[str], may_lack: str = "") -> None:
        separators = dict(texts) if isinstance(texts, Mapping) else dict.fromkeys(texts, "")
        templates = {text for text in separators if any(isinstance(piece, Field) for piece in pieces(text))}
        groups: dict[str, list[str]] = {}
        for text in sorted(separators, key=len, reverse=True):
            groups.setdefault(separators[text], []).append(text)

        def marker(text: str, atom: Atom) -> str:
            if text in templates:
                return source_of(pieces(text), atom)
            lacking = may_lack and text.endswith(may_lack)
            return source_of((Text(text.removesuffix(may_lack)), Lacked(may_lack)) if lacking else (Text(text),), atom)

        def source(atom: Atom) -> str:
            choices = (
                f"{at_most(before, atom)}(?={any_of({text[0] for text in group}).pattern}|\\Z)"
                f"({'|'.join(marker(text, atom) for text in group)})"
                for before, group in groups.items()
            )
            return "|".join(choices) or "(?!)"

        self._pattern = compile_sources(source)
        self._texts = {"".join(text.removesuffix(may_lack).split()): text for text in separators}
        self._texts |= {"".join(text.split()): text for text in separators}
        self._templates = {text[: text.index("{")].strip(): text for text in templates}
        self._search = self._pattern.whole.search
        self._search_part = self._pattern.part.search
        self.trigger = any_of({text[0] for text in separators} | set("".join(groups)))
        """Finds a character without which no marker (nor its separator) begins."""

    def find(self, text: str, position: int) -> tuple[tuple[int, str, int] | None, int]:
        """The first marker (where its separator begins, its text, where it ends), or None; and where it begins, or
        where the end of the text begins that may still become one."""
        if match := self._search(text, position):
            return self._marker(match), match.start()
        part = self._search_part(text, position)
        return None, part.start() if part else len(text)

    def at(self, text: str, position: int) -> tuple[int, str, int] | None:
        """The marker that stands exactly here."""
        match = self._pattern.match(text, position)
        return self._marker(match) if match else None

    def may_begin(self, text: str, position: int) -> bool:
        """Whether all the text from here may still become a marker. Ask only after `at` said no."""
        return self._pattern.may_match(text, position)

    def _marker(self, match: re.Match[str]) -> tuple[int, str, int]:
        """With whitespace between its pieces a marker is the same one."""
        found = match[match.lastindex or 0]
        text = self._texts.get("".join(found.split()))
        text = text or next(text for begin, text in self._templates.items() if found.startswith(begin))
        return match.start(), text, match.end()
