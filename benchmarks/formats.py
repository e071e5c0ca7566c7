"""What the output parser costs for each chunk of text, for every family.

Run: ``python benchmarks/formats.py [format ...]``. Each figure is microseconds for a chunk of four characters (about a
token), the mean CPU time of a run, the best of three: content, reasoning, and one long string argument, with
1,000, 10,000 and 100,000 chunks. Flat rows are the point: a chunk must not cost more late in a long reply.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from datetime import date

import checkout  # noqa: F401 - the tests' kits

from paraserve.formats.families import FORMATS
from paraserve.formats.reading.parser import OutputParser
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, ToolSpec
from tests.formats.render import Call, render

COUNTS = (1_000, 10_000, 100_000)
RUNS = 3
WORDS = ("tok ", "the ", "Wort", ", a ", "line", "s.\n\n", "x=1;", "été ")
TOOL = ToolSpec("save_note", {"type": "object", "properties": {"body": {"type": "string"}}})


def chunks_of(count: int) -> list[str]:
    return [WORDS[i % len(WORDS)] for i in range(count)]


def time_feeds(parser: OutputParser, chunks: Sequence[str]) -> float:
    """Microseconds for one feed."""
    feed = parser.feed
    begin = time.process_time()
    for chunk in chunks:
        feed(chunk)
    return (time.process_time() - begin) / len(chunks) * 1e6


def best_of_runs(format: Format, where: str, chunks: Sequence[str]) -> float:
    return min(time_feeds(parser_in(format, where), chunks) for _ in range(RUNS))


def parser_in(format: Format, where: str) -> OutputParser:
    """A parser that stands in content, in reasoning, or inside a string argument."""
    start = {"content": ReplyStart.CONTENT, "reasoning": ReplyStart.REASONING, "argument": ReplyStart.CONTENT}[where]
    parser = OutputParser(format, tools=(TOOL,), start=start)
    if where == "argument":
        text = render(format, calls=[Call(TOOL.name, {"body": "BODY"}, "abcDEF123")], start=start)
        parser.feed(text[: text.index("BODY")])
    parser.feed("Go ")
    return parser


def rows(formats: Sequence[Format]) -> list[tuple[str, str, list[float]]]:
    table = []
    for format in formats:
        for where in ("content", "reasoning", "argument"):
            if (where == "reasoning" and not format.reasoning) or (where == "argument" and not format.calls):
                continue
            table.append((format.name, where, [best_of_runs(format, where, chunks_of(count)) for count in COUNTS]))
    return table


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("format", nargs="*", help="only these families")
    wanted = arguments.parse_args().format
    table = rows([f for f in FORMATS if not wanted or f.name in wanted])
    print(f"{date.today()}, Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    print()
    print("| format | text | " + " | ".join(f"{count:,} chunks" for count in COUNTS) + " |")
    print("|---|---|" + "---|" * len(COUNTS))
    for name, where, figures in table:
        print(f"| {name} | {where} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |")
    worst = {where: max(max(f) for _, w, f in table if w == where) for where in {w for _, w, _ in table}}
    print("\nWorst: " + ", ".join(f"{where} {figure:.2f} µs" for where, figure in sorted(worst.items())))


if __name__ == "__main__":
    main()
