"""What an operator sees of a run: the steps of its start, and in one line why that failed."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, TextIO

import uvloop

from paraserve.observability.logs import FIELDS, configure_logging
from paraserve.serving.open_files import raise_limit
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError

START_FAILED = 1
"""The exit code of a start that failed."""

log = logging.getLogger(__name__)


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


def run_until_stopped(settings: ServerSettings, main: Callable[[Progress], Coroutine[Any, Any, int]]) -> int:
    """Run ``main`` in an event loop, with log and progress on standard error. Returns the exit code of the process."""
    as_json = configure_logging(settings, sys.stderr)
    progress = Progress(sys.stderr, as_json=as_json)
    raise_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main(progress))
    except StartError as error:
        progress.fail(str(error))
        return START_FAILED
