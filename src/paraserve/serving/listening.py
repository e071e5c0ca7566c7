"""The sockets that the server listens on, and how they are written as a URL."""

from __future__ import annotations

import socket

from paraserve.settings import ServerSettings
from paraserve.start_error import StartError


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. It is bound before the model loads, so that a port that is taken is told at once.

    Raises:
        StartError: it cannot be had.
    """
    return _bound(host, port)


def listen_together(host: str, port: int, count: int) -> list[socket.socket]:
    """Bound sockets of one port, over which the kernel spreads connections evenly once they are listened on.

    Raises:
        StartError: the port cannot be had for ourselves.
    """
    _bound(host, port).close()  # without sharing: another server that shares its port would go unnoticed
    first = _bound(host, port, shared=True)
    taken: int = first.getsockname()[1]
    return [first, *(_bound(host, taken, shared=True) for _ in range(1, count))]


def _bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port or --host"
        ) from None
    return listening


def url_of(settings: ServerSettings, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if settings.ssl_certfile else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
