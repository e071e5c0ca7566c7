"""Whether a worker's event loop still turns: it says so every second, and one that does not is of no use to anybody.

Never knows processes. One invariant: time in which nobody looked counts as one look, so that a supervisor which was
stopped itself blames no worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BEAT_SECONDS = 1.0
LOOK_SECONDS = 5.0
SILENT_LOOKS = 4
"""Far longer than anything that is done in an event loop, even on a machine that has too much to do."""


class Pulse:
    """Args:
    on_silence: called once, when the beats have stopped.
    """

    def __init__(self, on_silence: Callable[[], None]) -> None:
        self._on_silence = on_silence
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Beats are expected from here on."""
        self._wait()

    def beat(self) -> None:
        self._silent = 0

    def end(self) -> None:
        """No more are expected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._silent += 1
        if self._silent > SILENT_LOOKS:
            self._on_silence()
        else:
            self._wait()
