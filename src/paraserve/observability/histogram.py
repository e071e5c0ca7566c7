"""Prometheus metrics that cost little where requests pass: a histogram, and the values of labels.

Two invariants: what `BulkHistogram` leaves behind is what as many calls of the library's own ``observe`` would have
left, and what `Children` gives is what ``labels`` gives.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from prometheus_client import Counter, Gauge, Histogram

Metric = TypeVar("Metric", Counter, Gauge, "BulkHistogram")


class Children(dict[tuple[str, ...], Metric], Generic[Metric]):
    """A metric's children by the values of its labels, each looked up in the library once. The library checks names
    and takes a lock each time, which made a tenth of a small request (benchmarks/profile.md).

    Only for metrics whose labels have a bounded number of values.
    """

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric: Metric = metric

    def __missing__(self, values: tuple[str, ...]) -> Metric:
        child: Metric = self._metric.labels(*values)
        self[values] = child
        return child

    def begin(self, *values: str) -> None:
        """Show these values at zero."""
        self[values]


class BulkHistogram(Histogram):
    """Takes observations by the thousand, and a single one without a walk over its buckets. Reads the attributes that
    the library's own ``observe`` reads and writes: see the test that compares both."""

    def observe(self, amount: float, exemplar: Mapping[str, str] | None = None) -> None:
        """Count one. Exemplars are not kept."""
        self._sum.inc(amount)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(1)

    def add(self, counts: Sequence[int], total: float) -> None:
        """Args:
        counts: observations in each bucket, not cumulative, the one above all bounds last.
        total: their sum.
        """
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)
