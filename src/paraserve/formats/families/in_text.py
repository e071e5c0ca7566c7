"""Calls that no marker announces, read behind text and in a fenced block too, for operators who ask for it.

Such a call is told from an answer that shows JSON by nothing but what it says, so that it is no default. The same for
every family whose calls are bare.
"""

from dataclasses import replace

from paraserve.formats.spec import Calls, Format, JsonEnvelope


def with_calls_in_text(format: Format) -> Format:
    """The format, with its bare calls wherever text goes on."""
    found = [spelled for calls in format.calls if calls.bare for spelled in _in_text(calls)]
    return replace(format, calls=(*format.calls, *found))


def _in_text(calls: Calls) -> tuple[Calls, ...]:
    match calls.arguments:
        case JsonEnvelope(name_keys=(key, *_)):
            begins = f'{calls.section_open}{{"{key}"'
        case _:
            begins = calls.section_open
    fenced = (
        replace(calls, bare=False, announced="```", section_open=fence + calls.section_open)
        for fence in ("```json\n", "```\n")
    )
    closed = (replace(fence, section_close=f"{fence.section_close}\n```") for fence in fenced)
    return (*closed, replace(calls, bare=False, announced=begins))
