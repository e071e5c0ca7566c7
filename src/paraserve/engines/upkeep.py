"""An engine of ours after its start: when it dies it is started again, more slowly each time.

Never knows who is served. One invariant: while there is no engine, whoever asked to be told knows why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import ChildServer

STEADY_SECONDS = 60.0
"""An engine that has lived this long was no trouble: the next one starts at once."""
LONGEST_WAIT = 30.0

log = logging.getLogger(__name__)


async def keep_running(
    server: ChildServer, *, restart: bool, on_away: Callable[[str], None], on_back: Callable[[], None]
) -> str:
    """Watch over a child that has been started, until cancelled.

    Args:
        restart: whether it is started again; else this ends with the child.
        on_away: told why there is no engine, in words that a client may see.

    Returns:
        What the operator is told of its end.
    """
    wait = 0.0
    while True:
        began = time.monotonic()
        what = f"the engine's process has ended with {await server.ended()}"
        on_away(what)
        if not restart:
            return what
        if time.monotonic() - began > STEADY_SECONDS:
            wait = 0.0
        started = False
        while not started:
            log.error("%s: starting it again%s", what, f" in {wait:g} seconds" if wait else "")
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait or 1.0)
            try:
                await server.start()
                started = True
            except EngineStartError as error:
                what = f"the engine does not start ({error})"
        log.warning("the engine is back")
        on_back()
