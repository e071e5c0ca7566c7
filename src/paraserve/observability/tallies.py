"""What Prometheus metrics are still to be told: kept as plain numbers where requests pass, handed over where somebody
looks. The library takes a lock, checks names and walks buckets at each of two dozen numbers of a request.

Never knows what is counted. Two invariants: what is handed over is what as many calls of the library's own ``inc`` and
``observe`` would have left, and an amount that the library refuses is refused when it is given. Only for metrics whose
labels have a bounded number of values, and for one thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import Counter, Gauge, Histogram

Labels = tuple[str, ...]


class Tally(dict[Labels, float]):
    """Of a counter or a gauge."""

    def __init__(self, metric: Counter | Gauge) -> None:
        super().__init__()
        self._metric = metric

    def __missing__(self, values: Labels) -> float:
        return 0.0

    def begin(self, *values: str) -> None:
        """Show these values at zero."""
        self._metric.labels(*values)

    def add(self, values: Labels, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a count never falls")
        self[values] += amount

    def hand_over(self) -> None:
        for values, amount in self.items():
            self._metric.labels(*values).inc(amount)
        self.clear()


class HistogramTally(dict[Labels, list[float]]):
    """Of a histogram: observations in each bucket, not cumulative, and their sum at the end. Reads and writes the
    attributes that the library's own ``observe`` does: see the test that compares both."""

    def __init__(self, metric: Histogram) -> None:
        super().__init__()
        self._metric = metric
        self._bounds: Sequence[float] = metric._upper_bounds

    def __missing__(self, values: Labels) -> list[float]:
        self[values] = counts = [0.0] * (len(self._bounds) + 1)
        return counts

    def observe(self, values: Labels, amount: float | None) -> None:
        """Count one, if there is one."""
        if amount is not None:
            counts = self[values]
            counts[bisect_left(self._bounds, amount)] += 1
            counts[-1] += amount

    def add(self, values: Labels, counts: Sequence[int], total: float) -> None:
        """Args:
        counts: observations in each bucket, not cumulative, the one above all bounds last.
        total: their sum.
        """
        self[values] = [before + new for before, new in zip(self[values], (*counts, total), strict=True)]

    def hand_over(self) -> None:
        for values, (*counts, total) in self.items():
            child = self._metric.labels(*values)
            child._sum.inc(total)
            for bucket, count in zip(child._buckets, counts, strict=True):
                if count:
                    bucket.inc(count)
        self.clear()
