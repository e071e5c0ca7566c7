"""The line that each request leaves in the log, and what it may show of bodies.

Invariants: no header but the request id is ever logged, media and other blobs are shown as their length, and what is
shown of a body is bounded in size and in the time that it takes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from paraserve.observability.logs import FIELDS
from paraserve.observability.record import RequestRecord
from paraserve.secrets import REDACTED, client_text

Detail = Literal["off", "metadata", "parameters", "bodies"]

log = logging.getLogger("paraserve.requests")

CONTENT_FIELDS = frozenset({"messages", "prompt", "tools", "functions", "documents", "tokens", "input"})
"""Fields of a request that are what it says and not how it is to be answered."""

_WINDOW = 2**17
"""Characters of a body that are looked at, and so the most that is shown."""
_PARAMETER = 200
"""Characters shown of one parameter."""
_MOST_PARAMETERS = 100
"""Fields of a body that are shown: no request of any client has as many."""
_DATA_URL = re.compile(r'(data:[\w.+/-]{1,100}[;,])[^"\s]{64,}')
_BASE64 = re.compile(r"(?<![\w+/=-])(?:[A-Za-z0-9+/=_-]|\\/|\\u00(?:2[bBfFdD]|3[dD])){256,}+")
"""Base64 as JSON writers spell it: some escape the slash, the plus and the equals sign."""
_CREDENTIAL = re.compile(
    r'("(?:[^"\\]{0,40}(?:api[_-]?key|authorization|secret|passw(?:or)?d|[a-z][_-]token)|bearer|credentials?|token)"'
    r'\s*:[\s\[]*")(?:[^"\\]|\\.)*',
    re.IGNORECASE,
)
_LONGEST_KEY = 4096
"""Characters of a reply that are kept beyond those that are shown: a key may be cut by the end of the first, and then
it is not found."""


def shortened(body: bytes | bytearray, size: int) -> str:
    """A body as the log shows it: blobs as their length, credentials blotted out, cut to ``size`` characters."""
    text = _shown(body)
    return text if len(text) <= size and len(body) <= _WINDOW else f"{text[:size]}...({len(body)} bytes in all)"


def _shown(body: bytes | bytearray) -> str:
    text = client_text(body[:_WINDOW].decode("utf-8", "replace"), _WINDOW)
    text = _DATA_URL.sub(lambda match: f"{match[1]}...({len(match[0])} characters)", text)
    text = _BASE64.sub(lambda match: f"{match[0][:16]}...({len(match[0])} characters)", text)
    return _CREDENTIAL.sub(rf"\1{REDACTED}", text)


def parameters(body: bytes) -> dict[str, Any]:
    """The fields of a request, those that hold content as their number of items; nothing where it is no object."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}
    return {
        client_text(name)[:_PARAMETER]: _items(raw) if name in CONTENT_FIELDS else _parameter(name, bytes(raw))
        for name, raw in islice(fields.items(), _MOST_PARAMETERS)
    }


def _items(raw: msgspec.Raw) -> int:
    try:
        return len(msgspec.json.decode(raw, type=list[msgspec.Raw]))
    except msgspec.DecodeError:
        return 1


def _parameter(name: str, raw: bytes) -> Any:
    pair = shortened(msgspec.json.encode(name) + b":" + raw, len(name) + _PARAMETER)
    shown = pair.partition(":")[2]
    try:
        return msgspec.json.decode(shown)
    except msgspec.DecodeError:
        return shown


class RequestLog:
    """Args:
    detail: how much a line says.
    size: characters shown of a body.
    probes: endpoints that are asked every few seconds: logged at debug when all is well.
    """

    def __init__(self, detail: Detail, size: int, probes: Collection[str] = ()) -> None:
        self._detail = detail
        self._probes = probes
        self.reply_size = size + _LONGEST_KEY if detail == "bodies" else 0
        """Bytes of a reply that the record should keep."""
        self._size = size

    def take_body(self, record: RequestRecord, body: bytes) -> None:
        """Keep what the line will show of a request's body."""
        if self._detail == "parameters":
            record.sent = {"parameters": parameters(body)}
        elif self._detail == "bodies":
            record.sent = {"body": shortened(body, self._size)}

    def write(self, record: RequestRecord) -> None:
        """Write the line of a request that has ended."""
        level = self._level(record)
        if self._detail != "off" and log.isEnabledFor(level):
            fields = {**line_of(record), **record.sent}
            if self.reply_size:
                fields["reply"] = _shown(record.reply)[: self._size]
            log.log(level, "request", extra={FIELDS: fields})

    def _level(self, record: RequestRecord) -> int:
        if record.status >= 500:
            return logging.WARNING
        return logging.DEBUG if record.endpoint in self._probes and record.status < 400 else logging.INFO


def line_of(record: RequestRecord) -> dict[str, Any]:
    """The fields that every detail has. What a request did not come to is left out."""
    fields: dict[str, Any] = {
        "method": record.method,
        "endpoint": record.endpoint,
        "path": client_text(record.path)[:_PARAMETER] if record.endpoint == "other" else None,
        "model": record.model,
        "stream": record.stream or None,
        "status": record.status,
        "error": record.error,
        "broken_off": record.broken_off,
        "policies": record.policies,
        "normalizations": record.normalizations,
        "seconds": round(record.seconds, 4),
        **(_reply_fields(record) if record.runs else {}),
    }
    return {name: value for name, value in fields.items() if value is not None and value not in ("", (), [])}


def _reply_fields(record: RequestRecord) -> Mapping[str, Any]:
    usage = record.usage()
    choices = [run.choice for run in record.runs]
    return {
        "reply_id": record.reply_id,
        "choices": len(choices) if len(choices) > 1 else None,
        "finish_reasons": [choice.end.finish_reason for choice in choices if choice.end is not None],
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cached_tokens": usage.cached_tokens,
        "tool_calls": sum(choice.completed_calls for choice in choices) or None,
        "broken_tool_calls": sum(choice.broken_calls for choice in choices) or None,
        "stray_markers": sum(choice.stray_markers for choice in choices) or None,
        "preparation_seconds": _rounded(record.preparation_seconds),
        "queue_seconds": _rounded(record.queue_seconds),
        "first_token_seconds": _rounded(record.first_token_seconds),
        "engine_seconds": _rounded(record.engine_seconds),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
