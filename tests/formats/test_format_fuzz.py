"""Random marker soup never breaks the laws: no exception, the same result in every split, valid JSON, nothing lost.

`PARASERVE_FORMAT_FUZZ_CHARS` sets how many characters are tried in all (twenty million in CI, more by hand), and
`PARASERVE_FORMAT_FUZZ_SEED` which ones.
"""

from __future__ import annotations

import os
import random
import re

import pytest

from paraserve.formats.families import FORMATS
from paraserve.formats.reading.patterns import source_of
from paraserve.formats.spec import Format, JsonEnvelope
from paraserve.formats.templates import Text, is_special, units
from paraserve.formats.types import ReplyStart, TextEnd
from tests.formats.formats_kit import TOOLS, Folded, parse, random_split
from tests.formats.golden_replies import REPLIES

CHARACTERS = int(os.environ.get("PARASERVE_FORMAT_FUZZ_CHARS", "400000"))
SEED = int(os.environ.get("PARASERVE_FORMAT_FUZZ_SEED", "1"))
FRAGMENTS = [
    *[
        "save_note",
        "list_shelves",
        "v2.set-rate",
        "nobody",
        "functions.save_note:0",
        "functions.nobody:1",
        "title",
        "stars",
        "label",
        "opts",
        "body",
        "rate",
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        ":",
        ",",
        "=",
        "<",
        ">",
        "|",
        "\\",
        "/",
        "null",
        "true",
        "None",
        "True",
        "12",
        "-3.5e2",
        "01",
        "nul",
        "é",
        "🌤️",
        "\\u00e9",
        "\\n",
        '{"name":"save_note","arguments":{"title":"',
        '{"name":"list_shelves"',
        '"arguments":',
        '"parameters":{',
        '{"title":"x","stars":3}',
        '{"stars":[1,{"a":null}]}',
        "{}",
        "save_note(title=",
        "list_shelves()",
        "x='y'",
        "to=functions.save_note",
        "analysis",
        "final",
        "json",
        'type="string"',
        'string="true"',
    ],
    *["\n", "\n\n", " ", "\t", "\r\n", "json\n"],
]
REASONS: tuple[TextEnd, ...] = ("stop", "length", "abort")


def soup(format: Format, chooser: random.Random) -> str:
    """Markers, halves of markers, pieces of a real reply, and unique words, in any order."""
    markers = sorted(format.marker_texts) or ["<x>"]
    reply = REPLIES.get(format.name, "plain")
    made = []
    for _ in range(chooser.randint(1, 40)):
        kind = chooser.random()
        if kind < 0.35:
            made.append(chooser.choice(markers))
        elif kind < 0.45:
            marker = chooser.choice(markers)
            made.append(marker[: chooser.randint(1, len(marker))])
        elif kind < 0.6:
            begin = chooser.randrange(len(reply))
            made.append(reply[begin : begin + chooser.randint(1, 120)])
        elif kind < 0.7:
            made.append(f"w{chooser.randrange(10**6)}w")
        else:
            made.append(chooser.choice(FRAGMENTS))
    return "".join(made)


def words(text: str) -> set[str]:
    return set(re.findall(r"w\d+w", text))


def visible(folded: Folded) -> str:
    return folded.reasoning + folded.content + "".join(call.name + call.arguments for call in folded.calls)


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_soup_keeps_the_laws(format: Format) -> None:
    chooser = random.Random(f"{format.name}{SEED}")
    left = CHARACTERS // len(FORMATS)
    while left > 0:
        text = soup(format, chooser)
        left -= len(text)
        options = {
            "start": chooser.choice(list(ReplyStart)),
            "parse_tool_calls": chooser.random() < 0.9,
            "undeclared": chooser.choice(["content", "content", "call"]),
            "tools": TOOLS,
        }
        reason = chooser.choice(REASONS)
        whole, parser = parse(format, text, reason, **options)
        for chunks in (list(text), random_split(text, chooser.randrange(2**32))):
            cut, cut_parser = parse(format, chunks, reason, **options)
            assert cut.comparable == whole.comparable, (text, chunks, options, reason)
            assert cut_parser.broken_calls == parser.broken_calls, (text, chunks, options, reason)
            assert cut_parser.stray_markers == parser.stray_markers, (text, chunks, options, reason)
        assert parser.completed_calls == sum(call.ended for call in whole.calls)
        lost = words(text) - words(visible(whole))
        open_call = reason != "stop" and parser.open_call
        assert all(may_lose(format, text, word, cut=open_call) for word in lost), (text, lost, options, reason)


IN_MARKUP = (
    r"<[^<>]*$",  # a tag, or the half of one
    r"(?:type|string|name|key)=\"[^\"]*$",
    r"(?:parameter|arg_key)[^>]*$|<\w*arg_key[^<]*$",
    r"\[CALL_ID\][^\[]*$",
)
KEY = re.compile(r'(?:<[^<>\s"]*?parameter(?: name=|[= ])?|argument key=|<\w*arg_key>)"?([^"<>]*)')


def may_lose(format: Format, text: str, word: str, *, cut: bool) -> bool:
    """Words inside markup itself are markup: a message header, a tag, an id, a namespace before a name, an entry of an
    envelope that means nothing, and what a cut left of the header of a call that it left open. Lost is too, as
    docs/formats.md says, the value of an argument that was given before."""
    before, _, behind = text.partition(word)
    if format.channels:  # the first header's opener may stand in the prompt
        begins = "|".join(re.escape(text) for opener in format.channels.opens for text in units(opener)[:1])
        ends = "|".join(map(re.escape, format.channels.messages))
        if re.search(rf"(?:^|{begins})(?:(?!{ends}).)*$", before, re.DOTALL):
            return True
    envelopes = [calls.arguments for calls in format.calls if isinstance(calls.arguments, JsonEnvelope)]
    if any(f'"{key}"' in before for envelope in envelopes for key in envelope.name_keys):
        return True
    opening = {unit for calls in format.calls for unit in units(calls.section_open + calls.open)}
    header = "|".join(map(re.escape, opening))
    if cut and re.search(rf"(?:{header})(?:{header}|[^<])*(?:</?\w*arg_\w+>[^<]*)?$", before):
        return True
    if cut and any(calls.open.startswith("{name}") for calls in format.calls) and re.fullmatch(r"[^\s(){}<>]*", behind):
        return True
    keys = [key.strip() for key in KEY.findall(before)]
    namespace = re.match(r"[^\s<>{}]*[.:/]", behind) is not None
    return len(keys) > len(set(keys)) or namespace or any(re.search(inside, before, re.DOTALL) for inside in IN_MARKUP)


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_text_without_tools_is_lost_in_no_character(format: Format) -> None:
    """Content is the text, but for special tokens, which were never meant as text, and whitespace at them: a late block
    between two of them is reasoning."""
    if format.channels or format.frame_markers:
        return
    block = format.reasoning
    markers = (*block.opens, *block.closes) if block else ()
    dropped = [marker for marker in (*markers, *format.asides) if is_special(marker)]
    marker = re.compile("|".join(source_of((Text(text),), str) for text in dropped) or "(?!)")
    chooser = random.Random(f"{format.name}{SEED}")
    for _ in range(30):
        text = "Go " + soup(format, chooser)
        folded, _ = parse(format, random_split(text, 1), parse_tool_calls=False, start=ReplyStart.CONTENT)
        assert not folded.calls
        if marker.search(text):
            shown = sorted("".join((folded.content + folded.reasoning).split()))
            assert shown == sorted("".join(marker.sub("", text).split())), text
        else:
            assert (folded.content, folded.reasoning) == (text, ""), text
