"""How long a client is waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds.

    Args:
        head: from a request's first byte (or a new connection's start) to the end of its head.
        body_silence: between two pieces of a request's body.
        slow_client: how long a client may read nothing of a reply that waits for it.
        idle: between a response and the next request.
        refused: how long the rest of a request is still read that was refused, so that its client, which may be
            writing, gets to read why. Also in bytes.
    """

    head: float = 30.0
    body_silence: float = 60.0
    slow_client: float = 60.0
    idle: float = 180.0
    refused: float = 10.0
    refused_bytes: int = 64 << 20


Phase = Literal["head", "body_silence", "idle", "refused"]
"""What a client is waited for, by the name of its limit: the rest of a head, more of a body, the next request, the end
of what is not wanted."""

LAST = ConnectionLimits(head=2.0, body_silence=2.0, slow_client=2.0, refused=0.5)
"""For a connection that has one of the process's last descriptors."""
