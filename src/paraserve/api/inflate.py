"""Compressed request bodies, taken apart as they come and never beyond the limit of what they may hold.

``gzip`` and ``deflate`` (zlib's form), which Python has in itself. Invariant: a body of few bytes that unfolds to many
(a bomb) costs no more memory than the limit.
"""

from __future__ import annotations

import zlib

from paraserve.protocol.errors import RequestError

_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class Plain:
    """A body that is not compressed."""

    def feed(self, data: bytes, room: int) -> bytes:
        return data

    def finish(self) -> None:
        return None


class Inflater:
    """Args: window: zlib's ``wbits``."""

    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)

    def feed(self, data: bytes, room: int) -> bytes:
        """More of the body: at most one byte beyond ``room``, which says that it is too large.

        Raises:
            RequestError: 400 for data that is none of this encoding.
        """
        try:
            return self._inflate.decompress(data, room + 1)
        except zlib.error:
            raise _broken() from None

    def finish(self) -> None:
        """Raises `RequestError` for a body that is cut."""
        if not self._inflate.eof or self._inflate.unused_data:
            raise _broken()


def inflater(encoding: str) -> Plain | Inflater:
    """What reads a body with this ``Content-Encoding``. Raises `RequestError` (415) for one that is not known."""
    if encoding == "identity":
        return Plain()
    if encoding not in _WINDOWS:
        raise RequestError(
            f"Request bodies may be compressed as {', '.join(_WINDOWS)}, not as {encoding[:50]!r}.",
            status=415,
            code="unsupported_encoding",
        )
    return Inflater(_WINDOWS[encoding])


def _broken() -> RequestError:
    return RequestError("The request body is not what its Content-Encoding says.", code="invalid_compression")
