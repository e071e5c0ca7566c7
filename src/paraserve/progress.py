"""What an operator sees of a start: its steps, and in one line why it failed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

from paraserve.observability.logs import FIELDS

log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start as configured. One line for the operator."""


class Progress:
    """Start-up as a person watches it: one line a step, with its time.

    Args:
        as_json: the log is read by machines, so that the steps are lines of the log instead.
    """

    def __init__(self, stream: TextIO, *, as_json: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json
        self._began = time.monotonic()

    def step(self, text: str, facts: Mapping[str, str] = MappingProxyType({})) -> None:
        """Show a step, and below it what it found out."""
        seconds = time.monotonic() - self._began
        if self._as_json:
            log.info("%s", text, extra={FIELDS: {"seconds": round(seconds, 1), **facts}})
            return
        lines = [f"[{seconds:5.1f} s] {text}", *(f"         {name:<9} {value}" for name, value in facts.items())]
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()

    def fail(self, reason: str) -> None:
        if self._as_json:
            log.critical("%s", reason)
            return
        self._stream.write(f"error: {reason}\n")
        self._stream.flush()
