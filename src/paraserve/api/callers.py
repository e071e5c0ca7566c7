"""What keeps web pages away from a server that asks for no key: it would serve whoever reaches it, and a page reaches
every server on its reader's machine and network.

Never knows what a request asks for. Two invariants: a page that was not sent by this server, nor by an origin that the
operator names, has none of its POSTs served; and none is served under a name that a stranger can own, so that no page
becomes this server's own by an address that is played into its name (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from paraserve.api.errors import ErrorResponse
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError

ANY = "*"
_SHOWN = 200
"""Characters of a name that are shown."""
_NOBODYS = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
"""Ends of names that are not in the internet's directory (RFC 6761, 6762, 8375; ``internal`` by ICANN; Kubernetes)."""


class KnownCallers:
    """Args:
    names: under which the server may be called, beside those that nobody on the internet can own.
    origins: of pages that may call it, beside its own.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str], origins: Iterable[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}
        self._origins = {origin.lower() for origin in origins}
        self._known: bytes | None = None
        """The last ``Host`` that passed: most requests have the same."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        error = self._refusal(scope)
        answer = self._app if error is None else ErrorResponse(scope, error)
        return answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestError | None:
        sent, origin = b"", None
        for name, value in scope["headers"]:
            if name == b"host":
                sent = value
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
        host = sent.decode("latin-1").lower()
        if sent != self._known:
            if not self._is_known(name_of(host)):
                return _refused(
                    f"This server asks for no key and does not answer to the name {name_of(host)[:_SHOWN]!r}, which a "
                    "web page may have made up: start it with --allowed-hosts NAME, or with --api-key.",
                    ErrorCode.UNKNOWN_HOST,
                )
            self._known = sent
        if origin is not None and scope["method"] == "POST" and not self._is_ours(origin, host):
            return _refused(
                "This server asks for no key and takes no requests of other pages: start it with --allowed-origins "
                "ORIGIN, or with --api-key.",
                ErrorCode.FOREIGN_ORIGIN,
            )
        return None

    def _is_known(self, name: str) -> bool:
        if not name or "." not in name or name in self._names or ANY in self._names or name.endswith(_NOBODYS):
            return True  # HTTP/1.0 has no name, and no browser; a name without a dot is of the own network
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_ours(self, origin: str, host: str) -> bool:
        return ANY in self._origins or origin in self._origins or (host != "" and origin.partition("://")[2] == host)


def name_of(host: str) -> str:
    """A ``Host`` without its port, an address without its brackets, a name without the root's dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _refused(message: str, code: ErrorCode) -> RequestError:
    return RequestError(message, status=403, code=code)
