"""Which format a checkpoint writes, and which of the two readers reads it.

A family that we know is a description, and one machine reads all of them (`reading/`): it knows separators, streams
arguments, forgives what models get wrong. What only the checkpoint itself declares (``response_template``) is run as it
stands (`declared/`): it says what a description cannot, and not what one must know. Knows nothing of either's inside.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from paraserve.formats.declared.content import UnsupportedTemplateError
from paraserve.formats.declared.parser import RegionParser
from paraserve.formats.declared.response_template import read_response_template
from paraserve.formats.reading.parser import OutputParser
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.registry import detect
from paraserve.formats.spec import Format

log = logging.getLogger(__name__)


def checkpoint_format(
    chat_template: str | None, added_tokens: Collection[str], response_template: Mapping[str, Any] | None
) -> Format | None:
    """The format that a checkpoint writes; None when nothing speaks for any (the caller takes ``plain`` and warns).

    A declared ``response_template`` serves where the chat template is of no known family: our own descriptions know
    the separators, which a declaration does not. One that cannot be run is not used, with a warning.
    """
    found = detect(chat_template, added_tokens)
    if response_template is None or (found is not None and found.name != "think"):
        return found
    try:
        return read_response_template(response_template)
    except UnsupportedTemplateError as error:
        log.warning("the checkpoint's response_template is not used: %s", error)
        return found


def parser_for(format: Format) -> type[ReplyParser]:
    """The class whose instances read replies in this format; both take the same arguments."""
    return OutputParser if format.declared is None else RegionParser
