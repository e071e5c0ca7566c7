"""The course of one generation in time: when the engine was asked, when tokens came, how it failed.

Observes and never decides. Invariant: what it holds does not grow with the length of the reply, and taking a chunk
makes no object that outlives the call.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter

from paraserve.engines.base import EngineError

GAP_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.0075,
    0.01,
    0.015,
    0.02,
    0.025,
    0.03,
    0.04,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
    1.0,
    2.5,
    5.0,
)
"""Upper bounds, in seconds, of the classes into which the time between tokens falls; one more class is above them:
from a small model on a good GPU to a stall that users see."""


class Timings:
    """Moments are `time.perf_counter` seconds, None for what has not happened.

    ``gaps`` counts tokens by the time since the token before, in the classes of `GAP_BOUNDS`; tokens that came in one
    chunk share its time evenly. The first chunk has no time before it.
    """

    __slots__ = ("asked", "ended", "failure", "first", "gap_seconds", "gaps", "last")

    def __init__(self) -> None:
        self.asked: float | None = None
        self.first: float | None = None
        self.ended: float | None = None
        self.failure: EngineError | None = None
        self.gaps = [0] * (len(GAP_BOUNDS) + 1)
        self.gap_seconds = 0.0
        self.last = 0.0

    def ask(self) -> None:
        self.asked = perf_counter()

    def take(self, tokens: int) -> None:
        """A chunk with this many tokens has come."""
        if not tokens:
            return
        now = perf_counter()
        if self.first is None:
            self.first = now
        else:
            gap = now - self.last
            self.gaps[bisect_left(GAP_BOUNDS, gap / tokens)] += tokens
            self.gap_seconds += gap
        self.last = now

    def take_gaps(self) -> tuple[list[int], float]:
        """Gaps and their sum since the last call."""
        taken = (self.gaps, self.gap_seconds)
        self.gaps, self.gap_seconds = [0] * len(self.gaps), 0.0
        return taken

    def end(self) -> None:
        self.ended = perf_counter()
