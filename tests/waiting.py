"""Waiting for what a test expects: as short as it takes, and as long as only a failure does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds after which what was expected does not come any more, however busy the machine is."""


async def until(holds: Callable[[], object]) -> None:
    """Wait until it holds; a spy has no event for it."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
