"""What is measured while the server runs, whoever asks: above all how late the event loop wakes a sleeper, which is how
late it serves everybody."""

from __future__ import annotations

import asyncio

from paraserve.observability.metrics import Metrics

INTERVAL_SECONDS = 0.25


async def watch_event_loop(metrics: Metrics, interval: float = INTERVAL_SECONDS) -> None:
    """Measure until cancelled. ``interval`` in seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval
        await asyncio.sleep(interval)
        metrics.observe_lag(max(0.0, loop.time() - due))


async def count_while_running(metrics: Metrics, interval: float = 1.0) -> None:
    """Keep the counts of tokens fresh until cancelled, where a scrape may be answered by another process.

    ``interval`` in seconds.
    """
    while True:
        await asyncio.sleep(interval)
        metrics.count_running()
