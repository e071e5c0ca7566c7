"""A request body as one of our types: every way in which it can be wrong is a 400."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from paraserve.protocol.errors import RequestError, from_validation

T = TypeVar("T")


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode JSON. Raises `RequestError`: ``invalid_json``, or the field that has the wrong type or value."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise from_validation(error) from None
    except RecursionError:
        raise RequestError("The body is nested too deeply.", code="invalid_json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
