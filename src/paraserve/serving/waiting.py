"""A server that listens while its engine is not there yet: every request is a 503 that says so.

Never knows how a deployment is made. One invariant: a signal ends the wait as it ends a server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paraserve.api.errors import encode_error
from paraserve.deployment import Deployment
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, retry_after

Serve = Callable[[list[socket.socket]], Awaitable[None]]


async def not_ready(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of that time."""
    error = RequestError("The engine is not there yet.", status=503, code=ErrorCode.ENGINE_UNHEALTHY)
    await Response(encode_error(error), error.status, retry_after(2), "application/json")(scope, receive, send)


async def deployed_while_listening(
    deploying: Awaitable[Deployment], serve: Serve, stop: Callable[[], None], listening: socket.socket
) -> Deployment | None:
    """The deployment when it is made; None where a signal came first. Raises what making it raises.

    Args:
        serve: serves `not_ready` on sockets until a signal, or until ``stop`` is called.
        listening: stays open.
    """
    making = asyncio.ensure_future(deploying)
    serving = asyncio.ensure_future(serve([listening.dup()]))
    try:
        await asyncio.wait({making, serving}, return_when=asyncio.FIRST_COMPLETED)
        if not making.done():
            return None
        return making.result()
    finally:
        making.cancel()
        stop()
        await asyncio.wait({making, serving})
