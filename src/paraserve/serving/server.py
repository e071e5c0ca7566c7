"""The running server: HTTP on uvicorn, signals and drain, in one process.

SIGTERM and Ctrl-C stop accepting; replies that run may end within the drain timeout and are then broken off with an
error of their own, and the engine is stopped last. Ctrl-C once more breaks them off at once.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from paraserve.api.access import key_ring
from paraserve.api.app import create_app
from paraserve.deploy import deploy
from paraserve.deployment import Deployment
from paraserve.engines.build import engine_of_ours
from paraserve.engines.child import ChildServer
from paraserve.engines.upkeep import keep_running
from paraserve.observability.event_loop import watch_event_loop
from paraserve.serving.connection_limits import ConnectionLimits
from paraserve.serving.http_protocol import HTTPConnection, with_limits
from paraserve.serving.listening import listen, url_of
from paraserve.serving.memory import release_startup_memory
from paraserve.serving.open_files import Listener, Reserve
from paraserve.serving.progress import START_FAILED, Progress, run_until_stopped
from paraserve.serving.tls import Certificate
from paraserve.serving.waiting import deployed_while_listening, not_ready
from paraserve.settings import ServerSettings

LAST_WORDS_SECONDS = 1.0
"""How long replies that the drain has broken off may take to say so."""


def serve(settings: ServerSettings, engine_flags: Sequence[str] = ()) -> int:
    """Run until stopped. Returns the exit code of the process.

    Args:
        engine_flags: for an engine that is started by us.
    """
    return run_until_stopped(settings, partial(_serve, settings, engine_flags))


async def _serve(settings: ServerSettings, engine_flags: Sequence[str], progress: Progress) -> int:
    certificate = check_access_files(settings)
    child = engine_of_ours(settings, engine_flags)
    listening = listen(settings.host, settings.port)
    try:
        deploying = deploy(settings, progress.step, partial(child.start, progress.step) if child else None)
        deployment = await when_deployed(deploying, settings, certificate, listening)
        if deployment is None:
            return 0
        try:
            app = create_app(deployment)
            ready = partial(progress.step, f"ready on {url_of(settings, listening)}", ready_facts(deployment))
            server = HTTPServer(app, settings, certificate, on_listening=ready)
            upkeep = _upkeep(child, deployment, server) if child else None
            watches = (certificate.follow() if certificate else None, watch_event_loop(app.state.metrics), upkeep)
            async with background(*watches):
                await server.serve([listening])
        finally:
            await deployment.close()
    finally:
        listening.close()
        if child is not None:
            await child.stop()
    if server.lost_engine:
        progress.fail(server.lost_engine)
        return START_FAILED
    return 0


async def when_deployed(
    deploying: Coroutine[Any, Any, Deployment],
    settings: ServerSettings,
    certificate: Certificate | None,
    listening: socket.socket,
) -> Deployment | None:
    """The deployment. With `--wait-for-engine` connections are accepted already; None where a signal comes first."""
    if not settings.wait_for_engine:
        return await deploying
    server = HTTPServer(not_ready, settings, certificate)
    return await deployed_while_listening(deploying, server.serve, server.stop, listening)


async def _upkeep(child: ChildServer, deployment: Deployment, server: HTTPServer) -> None:
    """Look after the engine; where it is not to be started again, the server ends with it."""
    health = deployment.availability

    def tell(away: str = "") -> None:
        health.away = away

    server.lost_engine = await keep_running(
        child, restart=deployment.settings.engine_restart, on_away=tell, on_back=tell
    )
    server.should_exit = True


def check_access_files(settings: ServerSettings) -> Certificate | None:
    """Read the files of keys and of the certificate, which is returned. Raises `KeyFileError`, `CertificateError`."""
    key_ring(settings)
    return Certificate(settings.ssl_certfile, settings.ssl_keyfile) if settings.ssl_certfile else None


@asynccontextmanager
async def background(*watches: Coroutine[Any, Any, None] | None) -> AsyncIterator[None]:
    """What watches something while the server runs."""
    tasks = [asyncio.ensure_future(watch) for watch in watches if watch is not None]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HTTPServer(uvicorn.Server):
    """uvicorn within this server's limits. A signal is its ordinary end: it is not raised again after the drain.

    Args:
        on_listening: called when connections are accepted.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        certificate: Certificate | None,
        on_listening: Callable[[], None] = lambda: None,
    ) -> None:
        self._protocol = with_limits(
            ConnectionLimits(slow_client=settings.slow_client_timeout, idle=settings.idle_connection_timeout)
        )
        self._reserve = Reserve()
        config = uvicorn.Config(
            app,
            http=self._protocol,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
            timeout_graceful_shutdown=math.ceil(settings.drain_timeout),
        )
        super().__init__(config)
        self._on_listening = on_listening
        self.lost_engine = ""
        """Why there is nothing left to serve with."""

    def stop(self) -> None:
        """As a signal does."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for listening in sockets or []:
            self.accept_from(listening)
        release_startup_memory()
        self._on_listening()

    def accept_from(self, listening: socket.socket) -> Listener:
        """Accept connections of a bound socket, which is closed with the server."""
        listener = Listener(
            listening,
            self._connection,
            self._reserve,
            connections=self.server_state.connections,
            make_room=self._close_idle,
            tls=self.config.ssl,
            backlog=self.config.backlog,
        )
        self.servers.append(listener)  # type: ignore[arg-type]
        return listener

    def _connection(self) -> HTTPConnection:
        return self._protocol(self.config, self.server_state, self.lifespan.state)

    def _close_idle(self) -> bool:
        connections = [cast(HTTPConnection, connection) for connection in self.server_state.connections]
        return sum(connection.close_if_idle() for connection in connections) > 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # uvicorn does not wait for what it has cancelled: their last words are still to go out.
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while self.server_state.connections and time.monotonic() < deadline:  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(0.01)
        self._reserve.close()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


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
