"""Compressed request bodies, taken apart as they come and never beyond the limit of what they may hold.

``gzip`` and ``deflate`` (zlib's form), which Python has in itself, and ``zstd``, which it has from 3.14 on. Invariant:
a body of few bytes that unfolds to many (a bomb), or that asks for much memory to be unfolded in, costs no more than
the limit and a window of 8 MiB, and it is unfolded in steps, between which others have their turns.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_ZSTD_WINDOW_LOG = 23
"""8 MiB, which decoders should have room for (RFC 8878, 3.1.1.1.2); a body may ask for terabytes."""


_STEP = 256 * 2**10
"""Bytes that are unfolded at a time."""


class Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Plain:
    """A body that is not compressed."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        return None


class Inflater:
    """A compressed one."""

    def __init__(self, decompressor: Decompressor) -> None:
        self._inflate = decompressor

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """More of the body, step by step.

        Raises:
            RequestError: 400 for data that is none of this encoding.
        """
        if not data:
            return
        if self._inflate.eof:
            raise _broken()
        yield self._step(data)
        while not (self._inflate.eof or self._inflate.needs_input):
            yield self._step(b"")

    def _step(self, data: bytes) -> bytes:
        try:
            return self._inflate.decompress(data, _STEP)
        except (zlib.error, zstd.ZstdError):
            raise _broken() from None

    def finish(self) -> None:
        """Raises `RequestError` for a body that is cut."""
        if not self._inflate.eof or self._inflate.unused_data:
            raise _broken()


class _Zlib:
    """zlib's in the manner of zstd's: it keeps what it has not unfolded yet."""

    def __init__(self, form: int) -> None:
        self._inflate = zlib.decompressobj(form)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        unfolded = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self._full = len(unfolded) == max_length
        return unfolded


def _gzip() -> Decompressor:
    return _Zlib(zlib.MAX_WBITS | 16)


def _deflate() -> Decompressor:
    return _Zlib(zlib.MAX_WBITS)


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
