"""A request body as one of our types: every way in which it can be wrong is a 400.

Half of a surrogate pair is none of them. Clients that cut text in the middle of an emoji send one as an escape, which
JSON allows and UTF-8 does not: it is read as U+FFFD. Invariant: a body that decodes as it is, is decoded as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, from_validation

T = TypeVar("T")

_SURROGATES = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[89a-fA-F][0-9a-fA-F]{2})")
"""What looks like an escaped pair, or a half of one: an escape only where its backslash is not itself escaped."""
_HALF, _BACKSLASH, _REPLACEMENT = len(rb"\ud800"), ord("\\"), rb"\ufffd"


def decoder_of(type: type[T]) -> Callable[[bytes], T]:
    """Decodes a body as ``type``, as `decode_body` does."""
    return partial(decode_body, msgspec.json.Decoder(type))


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode JSON. Raises `RequestError`: ``invalid_json``, or the field that has the wrong type or value."""
    try:
        return _decode(decoder, body)
    except msgspec.ValidationError as error:
        whole = with_whole_numbers(body, error)
        if whole is not None:
            return decode_body(decoder, whole)
        raise from_validation(error, expected=decoder.type) from None
    except RecursionError:
        raise RequestError("The body is nested too deeply.", code=ErrorCode.INVALID_JSON) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"The body is not valid JSON: {error}", code=ErrorCode.INVALID_JSON) from None


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        whole = with_whole_characters(body)
        if whole == body:
            raise
        return decoder.decode(whole)


_FRACTION = re.compile(r"^Expected `int\b[^`]*`, got `float` - at `\$\.?(?P<path>[^`]*)`$")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def with_whole_numbers(body: bytes, error: msgspec.ValidationError) -> bytes | None:
    """The JSON text with ``5`` for ``5.0`` in the place where an integer is asked for, which JSON's schemas call one.
    None: that is not what was wrong."""
    at = _FRACTION.match(str(error))
    if at is None or "..." in at["path"]:
        return None
    document: Any = msgspec.json.decode(body)
    *steps, last = [int(index) if index else name for index, name in _STEP.findall(at["path"])]
    holder = document
    for step in steps:
        holder = holder[step]
    if not holder[last].is_integer():
        return None
    holder[last] = int(holder[last])
    return msgspec.json.encode(document)


def with_whole_characters(body: bytes) -> bytes:
    """A JSON text in which each escaped half of a surrogate pair is the escape of U+FFFD; all else is as it was."""

    def whole(found: re.Match[bytes]) -> bytes:
        start = ahead = found.start()
        while ahead and body[ahead - 1] == _BACKSLASH:
            ahead -= 1
        is_pair = len(found[0]) > _HALF
        if (start - ahead) % 2:  # the text of an escape, and what follows it is half of a pair
            return found[0][:_HALF] + (_REPLACEMENT if is_pair else b"")
        return found[0] if is_pair else _REPLACEMENT

    return _SURROGATES.sub(whole, body)
