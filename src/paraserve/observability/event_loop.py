"""Watching the event loop: how late it wakes a sleeper is how late it serves everybody."""

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
