"""Who may say where a request runs, and what else the engine itself is told: whom the operator names, else nobody.

Never knows engines, nor what is said. Invariant: whoever cannot be made out is not trusted; what a proxy says of the
client never counts, only who the connection is from.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence

from starlette.types import Scope

from paraserve.api.keys import digest, presented_key
from paraserve.settings import ServerSettings

PEER = "peer"
"""In a scope's state: the address at the other end of the connection, whatever is said of the client behind it."""


def is_trusted(scope: Scope, settings: ServerSettings) -> bool:
    who = settings.engine_fields_from
    if who == "anyone" or (who == "proxies" and _is_among(settings.trusted_proxies, scope)):
        return True
    sent = digest(presented_key(scope))
    matches = [hmac.compare_digest(sent, digest(key.encode())) for key in settings.engine_fields_key]
    return any(matches)


def _is_among(proxies: Sequence[str], scope: Scope) -> bool:
    peer = scope["state"].get(PEER, scope.get("client"))
    if peer is None:
        return False
    try:
        address = ipaddress.ip_address(peer[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(proxy == "*" or address in ipaddress.ip_network(proxy) for proxy in proxies)
