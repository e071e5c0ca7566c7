"""The running server: HTTP on uvicorn, signals, drain, and what the terminal shows meanwhile.

SIGTERM and Ctrl-C stop accepting; replies that run may end within the drain timeout and are then broken off with an
error of their own, and the engine is stopped last.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from paraserve.api.app import create_app
from paraserve.api.edge import key_ring
from paraserve.api.keys import KeyFileError
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineStartError
from paraserve.http_protocol import ConnectionLimits, with_limits
from paraserve.observability.event_loop import watch_event_loop
from paraserve.observability.logs import configure_logging
from paraserve.prompt.errors import CheckpointError
from paraserve.settings import ServerSettings
from paraserve.startup import Progress, StartError, deploy
from paraserve.tls import Certificate, CertificateError

START_FAILED = 1
IDLE_CONNECTION_SECONDS = 75
"""How long a kept-alive connection may be idle: longer than the pools of usual clients and proxies keep theirs, so
that it is they who close."""


def serve(settings: ServerSettings, engine_flags: Sequence[str] = ()) -> int:
    """Run until stopped. Returns the exit code of the process.

    Args:
        engine_flags: for an engine that is started by us.
    """
    as_json = configure_logging(settings, sys.stderr)
    progress = Progress(sys.stderr, as_json=as_json)
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(_serve(settings, engine_flags, progress))
    except (EngineStartError, CheckpointError, StartError, KeyFileError, CertificateError) as error:
        progress.fail(str(error))
        return START_FAILED


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


async def _serve(settings: ServerSettings, engine_flags: Sequence[str], progress: Progress) -> int:
    key_ring(settings)
    certificate = Certificate(settings.ssl_certfile, settings.ssl_keyfile) if settings.ssl_certfile else None
    listening = _listen(settings.host, settings.port)
    try:
        deployment = await deploy(settings, progress, engine_flags)
        try:
            app = create_app(deployment)
            progress.step(f"ready on {_url(settings, listening)}", ready_facts(deployment))
            async with _beside(certificate.follow() if certificate else None, watch_event_loop(app.state.metrics)):
                await _http_server(app, settings, certificate).serve([listening])
        finally:
            await deployment.close()
    finally:
        listening.close()
    return 0


@asynccontextmanager
async def _beside(*watches: Coroutine[Any, Any, None] | None) -> AsyncIterator[None]:
    """What watches something while the server runs."""
    tasks = [asyncio.ensure_future(watch) for watch in watches if watch is not None]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _listen(host: str, port: int) -> socket.socket:
    """The socket, bound before the model loads: a port that is taken is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host"
        ) from None
    return listening


class _HTTPServer(uvicorn.Server):
    """A signal is this program's ordinary end: it is not raised again after the drain."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _http_server(app: ASGIApp, settings: ServerSettings, certificate: Certificate | None) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http=with_limits(ConnectionLimits(slow_client=settings.slow_client_timeout)),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        forwarded_allow_ips=list(settings.trusted_proxies),
        ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
        timeout_keep_alive=IDLE_CONNECTION_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
    )
    return _HTTPServer(config)


def _url(settings: ServerSettings, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.ssl_certfile else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def ready_facts(deployment: Deployment) -> dict[str, str]:
    """What an operator wants to know when the server is ready."""
    in_force = [policy.name for policy in deployment.policies.states() if policy.endpoints]
    return {
        "model": ", ".join(deployment.names),
        "context": f"{deployment.context_length} tokens",
        "engine": f"{deployment.settings.engine} {deployment.engine.info.version}".rstrip(),
        "format": deployment.format.name,
        "policies": ", ".join(in_force) or "none",
    }
