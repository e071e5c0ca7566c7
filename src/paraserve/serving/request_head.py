"""What the head of a request must be, beyond what llhttp sees to, and what ASGI makes of it.

Never knows connections. Invariant: what RFC 9112 leaves open about where a request's body ends is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import httptools
from starlette.types import Scope

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, retry_after

MAX_HEAD_BYTES = 64 << 10
"""Request line and headers together, as most servers and proxies have it; and what may stand between two pieces of a
body, or behind it: sizes of chunks, their extensions, trailers."""
MAX_HEADERS = 200

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]*")

Headers = Sequence[tuple[bytes, bytes]]


def fault_of_head(method: str, url: bytes, version: str, headers: Headers) -> RequestError | None:
    """Why the request is none, or None."""
    if method == "CONNECT":
        return RequestError("This server is no tunnel.", status=405, code=ErrorCode.METHOD_NOT_ALLOWED)
    size, hosts, codings = len(url), [], []
    for name, value in headers:
        size += len(name) + len(value)
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    if size > MAX_HEAD_BYTES or len(headers) > MAX_HEADERS:
        return head_too_large()
    if version not in ("1.0", "1.1"):
        return RequestError("This server speaks HTTP/1.1.", status=505, code=ErrorCode.INVALID_HTTP)
    if len(hosts) > 1 or (version == "1.1" and not hosts) or not all(map(_HOST.fullmatch, hosts)):
        return RequestError("The request must name its host, once, in a Host header.", code=ErrorCode.INVALID_HTTP)
    if codings and version == "1.0":
        return RequestError("HTTP/1.0 has no Transfer-Encoding.", code=ErrorCode.INVALID_HTTP)
    if codings not in ([], [b"chunked"]):
        return RequestError(
            "The only Transfer-Encoding that is taken is chunked.", status=501, code=ErrorCode.INVALID_HTTP
        )
    return None


def awaits_continue(version: str, headers: Headers) -> bool:
    """Whether the client sends its body only when it is asked to. HTTP/1.0 knows no such thing."""
    return version == "1.1" and any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)


def scope_of(method: str, url: bytes, version: str, headers: Headers, connection: Mapping[str, Any]) -> Scope:
    """ASGI's scope. ``connection`` is what all requests of the connection have in common."""
    parsed = httptools.parse_url(url)
    path = (parsed.path or b"/").decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": version,
        **connection,
        "method": method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": parsed.path or b"/",
        "query_string": parsed.query or b"",
        "headers": headers,
    }


def no_http() -> RequestError:
    return RequestError("This is no HTTP/1.1 request.", code=ErrorCode.INVALID_HTTP)


def head_too_large() -> RequestError:
    return RequestError(
        f"The request's head is larger than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers.",
        status=431,
        code=ErrorCode.HEAD_TOO_LARGE,
    )


def no_room() -> RequestError:
    return RequestError(
        "The server has no room for another connection.",
        status=503,
        code=ErrorCode.OVERLOADED,
        headers=retry_after(),
    )
