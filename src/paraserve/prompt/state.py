"""Where a rendered prompt leaves the model: before, inside or past its reasoning.

Never knows a model's name: it reads the prompt's tail and the markers that the caller's format description gives. One
invariant: an answer depends on nothing but text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart

TAIL_CHARS = 512


@dataclass(frozen=True, slots=True)
class StartMarkers:
    """What at a prompt's end says where the reply starts, of one output format."""

    reasoning: Sequence[tuple[str, str]] = ()
    """Pairs of the marker that opens reasoning and the one that closes it; empty for models without."""
    content: Sequence[str] = ()
    """Texts after which a reply is content although no reasoning was closed."""

    @classmethod
    def of(cls, format: Format) -> StartMarkers:
        return cls(
            reasoning=format.reasoning.pairs if format.reasoning else (),
            content=(format.content_open,) if format.content_open else (),
        )


def reply_start(prompt: str, markers: StartMarkers) -> ReplyStart:
    """Read the end of a prompt that waits for a reply.

    Args:
        prompt: the rendered text; only its last `TAIL_CHARS` matter.
        markers: whitespace around them is ignored.
    """
    tail = prompt[-TAIL_CHARS:].rstrip()
    ends = [(closing.strip(), ReplyStart.CONTENT) for _, closing in markers.reasoning]
    ends += [(opening.strip(), ReplyStart.REASONING) for opening, _ in markers.reasoning]
    ends += [(opener.strip(), ReplyStart.CONTENT) for opener in markers.content]
    fitting = [(len(end), start) for end, start in ends if end and tail.endswith(end)]
    return max(fitting, key=lambda found: found[0])[1] if fitting else ReplyStart.HEADER
