"""How log lines look: text for people, one JSON object a line for machines.

Works on the standard library's ``logging``, so that every module and library writes through it unchanged. Two
invariants: a record is one line (but for a stack, in text), whatever a client managed to get into it, and the
server's own keys are on none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from paraserve.settings import ServerSettings

FIELDS = "fields"
"""The key of ``extra`` under which a caller gives a line's fields: a mapping from name to value."""
request_id: ContextVar[str] = ContextVar("request_id")
"""The id of the request on whose behalf the current task runs; on every line that it writes."""

_REDACTED = "[redacted]"
_SHORTEST_SECRET = 4
"""Characters. A shorter key would cut up ordinary words, and protects nothing."""
_CHATTY = ("httpx", "httpcore", "uvicorn.error")
_COLORS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_PLAIN = "\x1b[0m"


def configure_logging(settings: ServerSettings, stream: TextIO) -> bool:
    """Send the process's log to ``stream``. Returns whether its lines are JSON."""
    terminal = stream.isatty()
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not terminal)
    handler = logging.StreamHandler(stream)
    secrets = [*settings.api_key, *([settings.engine_api_key] if settings.engine_api_key else [])]
    handler.setFormatter(LineFormatter(as_json=as_json, color=terminal, secrets=secrets))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.root.level))
    return as_json


class LineFormatter(logging.Formatter):
    """Args:
    color: the severity of warnings and errors is coloured, in text.
    secrets: texts that must not be shown.
    """

    def __init__(self, *, as_json: bool, color: bool = False, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._as_json = as_json
        self._color = color
        spelled = {spelling for secret in secrets for spelling in (secret, json.dumps(secret)[1:-1])}
        self._secrets = sorted((s for s in spelled if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        line = self._json(record) if self._as_json else self._text(record)
        for secret in self._secrets:
            line = line.replace(secret, _REDACTED)
        return line

    def _json(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode("utf-8", "replace")

    def _text(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        shown = f"{_COLORS[level]}{level:<8}{_PLAIN}" if self._color and level in _COLORS else f"{level:<8}"
        moment = _moment(record).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        parts = [moment, shown, f"{record.name}:", _printable(record.getMessage())]
        parts += [f"{name}={_value(value)}" for name, value in _fields(record).items()]
        stack = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return " ".join(parts) + stack


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(record, FIELDS, {})
    current = request_id.get(None)
    return fields if current is None else {"request_id": current, **fields}


def _printable(text: str) -> str:
    """Without what would move a terminal's cursor or begin a line of its own."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _value(value: Any) -> str:
    if isinstance(value, str):
        plain = value.isprintable() and value and not any(c in ' "=' for c in value)
        return value if plain else _printable(json.dumps(value, ensure_ascii=False))
    return _printable(msgspec.json.encode(value, enc_hook=str).decode("utf-8", "replace"))
