"""A request body as one of our types: every way in which it can be wrong is a 400.

Half of a surrogate pair is none of them. Clients that cut text in the middle of an emoji send one as an escape, which
JSON allows and UTF-8 does not: it is read as U+FFFD. Invariant: a body that decodes as it is, is decoded as it is.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, from_validation

T = TypeVar("T")

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""One escape of a JSON text, a whole pair as one; the group is half of a pair."""


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode JSON. Raises `RequestError`: ``invalid_json``, or the field that has the wrong type or value."""
    try:
        return _decode(decoder, body)
    except msgspec.ValidationError as error:
        raise from_validation(error) from None
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


def with_whole_characters(body: bytes) -> bytes:
    """A JSON text in which each escaped half of a surrogate pair is the escape of U+FFFD; all else is as it was."""
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
