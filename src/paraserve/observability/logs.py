"""How log lines look: text for people, one JSON object a line for machines.

structlog's processors render the records of the standard library's ``logging``, so that every module and library writes
through them unchanged. Three invariants: a record is one line (but for a stack, in text), whatever a client managed to
get into it; the server's own keys are on none; and a stack never shows the values of variables.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, TextIO

import msgspec
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.processors import EventRenamer, JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import add_log_level, add_logger_name
from structlog.typing import EventDict, Processor

from paraserve.secrets import blotted, client_text, keys_in_force, spellings
from paraserve.settings import ServerSettings

FIELDS = "fields"
"""The key of ``extra`` under which a caller gives a line's fields: a mapping from name to value."""
request_id: ContextVar[str] = ContextVar("request_id")
"""The id of the request on whose behalf the current task runs; on every line that it writes."""

_CHATTY = ("httpx", "httpcore", "uvicorn.error")


def configure_logging(settings: ServerSettings, stream: TextIO) -> bool:
    """Send the process's log to ``stream``. Returns whether its lines are JSON."""
    terminal = stream.isatty()
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not terminal)
    handler = LogStream(stream)
    given = (settings.engine_api_key, settings.reasoning_key, settings.store_password)
    secrets = [*settings.api_key, *settings.engine_fields_key, *filter(None, given)]
    handler.setFormatter(LineFormatter(as_json=as_json, color=terminal, secrets=secrets))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    # No line shows these, and to find them out costs as much as to write it.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))
    return as_json


class LogStream(logging.StreamHandler[TextIO]):
    """A record that cannot be shown is told of by its origin: the library would print its arguments, keys and all."""

    def handleError(self, record: logging.LogRecord) -> None:
        self.stream.write(f"a log record of {record.name} ({record.module}:{record.lineno}) cannot be shown\n")


class LineFormatter(logging.Formatter):
    """structlog's processors on a record. Its own ``ProcessorFormatter`` copies every record, which costs half as much
    again as the line does.

    Args:
        color: colours for a terminal, in text.
        secrets: texts that must not be shown.
    """

    def __init__(self, *, as_json: bool, color: bool = False, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        time = TimeStamper("iso", key="time") if as_json else TimeStamper("%Y-%m-%d %H:%M:%S.%f", utc=False, key="time")
        about: list[Processor] = [time, add_log_level, add_logger_name, EventRenamer("event"), _add_fields]
        safe: list[Processor] = [format_exc_info, _withhold]
        shape: list[Processor] = [JSONRenderer(_json)] if as_json else [_escape, _console(color)]
        self._processors: list[Processor] = [*about, *safe, *shape, _Blotter(secrets)]

    def format(self, record: logging.LogRecord) -> str:
        line: Any = {"event": record.getMessage(), "_record": record, "exc_info": record.exc_info}
        level = record.levelname.lower()
        for process in self._processors:
            line = process(None, level, line)
        return str(line)


def _console(color: bool) -> Processor:
    # Without this formatter it takes the one of whatever package is installed, and some show locals.
    return ConsoleRenderer(
        colors=color, sort_keys=False, timestamp_key="time", pad_event_to=0, exception_formatter=plain_traceback
    )


def _add_fields(_logger: Any, _name: str, event: EventDict) -> EventDict:
    current = request_id.get(None)
    if current is not None:
        event["request_id"] = current
    event.update(getattr(event["_record"], FIELDS, {}))
    return event


def _withhold(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """What is said about a case, or by a failure, may hold what a client sent."""
    if event["event"] != event.pop("_record").msg:
        event["event"] = client_text(event["event"])
    if "exception" in event:
        event["exception"] = client_text(event["exception"])
    return event


def _json(event: EventDict, **_: Any) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:  # half of a character; the standard library escapes it
        return json.dumps(event, default=str)


def _escape(_logger: Any, _name: str, event: EventDict) -> EventDict:
    """Without what would move a terminal's cursor or begin a line of its own."""
    shown = {name: _printable(value) if isinstance(value, str) else value for name, value in event.items()}
    if "exception" in event:
        shown["exception"] = "\n".join(map(_printable, event["exception"].split("\n")))
    return shown


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Blotter:
    """The last processor: what it is given is the line."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = spellings(secrets)

    def __call__(self, _logger: Any, _name: str, line: Any) -> str:
        return blotted(line, (*self._secrets, *keys_in_force.get()))
