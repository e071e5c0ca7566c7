"""What prompt, output format and engine need to agree on: names of generations, where calls end, who may reason."""

from __future__ import annotations

import re

from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:-]+|__+")


def engine_name(reply_id: str, index: int, client_id: str) -> str:
    """What a generation is called in its engine: the reply's id, the choice's number, and the client's own id.

    Ours is in front, unique and of one length, because clients may share an id, SGLang aborts whatever begins with a
    given name, and a name that begins as its health probes do is not answered. Of the client's id, what vLLM's
    connectors would read as an address (between runs of underscores) and anything odd becomes a dash.
    """
    ours = f"{reply_id}-{index:04}"
    return f"{ours}.{_NOT_IN_NAMES.sub('-', client_id)}" if client_id else ours


def closing_markers(format: Format) -> frozenset[str]:
    """What ends a call of this format, or the section of calls."""
    texts = (text.strip() for calls in format.calls for text in (calls.close, calls.section_close))
    return frozenset(text for text in texts if text)


def may_reason(format: Format, start: ReplyStart) -> bool:
    """Whether the reply starts inside reasoning or may still open it."""
    if format.reasoning is None and format.channels is None:
        return False
    return start is not ReplyStart.CONTENT
