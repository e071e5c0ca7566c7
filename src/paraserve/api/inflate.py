"""Compressed request bodies, taken apart as they come and never beyond the limit of what they may hold.

``gzip`` and ``deflate`` (zlib's form), which Python has in itself, and ``zstd``, which it has from 3.14 on. Invariant:
a body of few bytes that unfolds to many (a bomb), or that asks for much memory to be unfolded in, costs no more than
the limit and a window of 8 MiB.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_ZSTD_WINDOW_LOG = 23
"""8 MiB, which decoders should have room for (RFC 8878, 3.1.1.1.2); a body may ask for terabytes."""


class Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Plain:
    """A body that is not compressed."""

    def feed(self, data: bytes, room: int) -> bytes:
        return data

    def finish(self) -> None:
        return None


class Inflater:
    """A compressed one."""

    def __init__(self, decompressor: Decompressor) -> None:
        self._inflate = decompressor

    def feed(self, data: bytes, room: int) -> bytes:
        """More of the body: at most one byte beyond ``room``, which says that it is too large.

        Raises:
            RequestError: 400 for data that is none of this encoding.
        """
        if not data:
            return b""
        if self._inflate.eof:
            raise _broken()
        try:
            return self._inflate.decompress(data, room + 1)
        except (zlib.error, zstd.ZstdError):
            raise _broken() from None

    def finish(self) -> None:
        """Raises `RequestError` for a body that is cut."""
        if not self._inflate.eof or self._inflate.unused_data:
            raise _broken()


def _gzip() -> Decompressor:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _deflate() -> Decompressor:
    return zlib.decompressobj(zlib.MAX_WBITS)


def _zstd() -> Decompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


ENCODINGS: Mapping[str, Callable[[], Decompressor]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
}


def inflater(encoding: str) -> Plain | Inflater:
    """What reads a body with this ``Content-Encoding``. Raises `RequestError` (415) for one that is not known."""
    if encoding == "identity":
        return Plain()
    if encoding not in ENCODINGS:
        raise RequestError(
            f"Request bodies may be compressed as {', '.join(ENCODINGS)}, not as {encoding[:50]!r}.",
            status=415,
            code=ErrorCode.UNSUPPORTED_ENCODING,
        )
    return Inflater(ENCODINGS[encoding]())


def _broken() -> RequestError:
    return RequestError("The request body is not what its Content-Encoding says.", code=ErrorCode.INVALID_COMPRESSION)
