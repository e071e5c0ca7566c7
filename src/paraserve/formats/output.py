"""The parser that reads a format: the machine for descriptions, the runner for declared regions. Knows nothing else."""

from __future__ import annotations

from paraserve.formats.declared.parser import RegionParser
from paraserve.formats.reading.parser import OutputParser
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.spec import Format


def parser_for(format: Format) -> type[ReplyParser]:
    """The class whose instances read replies in this format; both take the same arguments."""
    return RegionParser if format.regions is not None else OutputParser
