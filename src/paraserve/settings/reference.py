"""The reference of declared options: for a terminal and as Markdown. Both show every option, in declared order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from paraserve.settings.declare import Option

_INDENT = 6


def terminal_reference(options: Sequence[Option], width: int) -> str:
    """Grouped lines for ``--help``, at most ``width`` columns wide."""
    blocks = []
    for group, members in _groups(options):
        entries = "\n".join(_terminal_entry(option, width) for option in members)
        blocks.append(f"{group}:\n{entries}")
    return "\n\n".join(blocks)


def markdown_reference(options: Sequence[Option]) -> str:
    """One table per group."""
    blocks = []
    for group, members in _groups(options):
        rows = "".join(
            f"| {_usage_markdown(option)} | {_cell(option.default_text)} | {_cell(option.help)} |\n"
            for option in members
        )
        blocks.append(f"## {group}\n\n| Flag | Default | What it does |\n|---|---|---|\n{rows}")
    return "\n".join(blocks)


def _groups(options: Sequence[Option]) -> Iterable[tuple[str, Iterable[Option]]]:
    return groupby(options, key=lambda option: option.group)


def _usage(option: Option) -> str:
    if option.kind == "switch":
        return f"{option.flag}, --no-{option.key}"
    return f"{option.flag} {option.value_text}"


def _usage_markdown(option: Option) -> str:
    if option.kind != "choice":
        return f"`{option.flag} {option.value_text}`".replace(" `", "`")
    return f"`{option.flag}` " + " \\| ".join(f"`{choice}`" for choice in option.choices)


def _terminal_entry(option: Option, width: int) -> str:
    text = f"{option.help} (default: {option.default_text})"
    lines = textwrap.wrap(text, max(width - _INDENT, 30), break_on_hyphens=False)
    return "\n".join([f"  {_usage(option)}", *(" " * _INDENT + line for line in lines)])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
