"""What a client or router says to the engine itself: fields and headers that go on as they are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.types import Scope

from paraserve.api.observed import REQUEST_ID_HEADER, record_of
from paraserve.api.traced import trace_headers
from paraserve.api.trusted_callers import is_trusted
from paraserve.engines.base import RoutingHints
from paraserve.protocol.body import decode_body
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.sampling import SamplingFields
from paraserve.secrets import client_text
from paraserve.settings import ServerSettings

log = logging.getLogger(__name__)

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_value = msgspec.json.Decoder(Any)

_ROUTING_FIELDS = ("data_parallel_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room")
_RANK_HEADER = "x-data-parallel-rank"
_ROUTING_HEADERS = frozenset({_RANK_HEADER.encode(), b"x-smg-routing-key"})
"""Fields and headers that say where a request should run."""


def engine_extras(body: bytes, fields: SamplingFields, scope: Scope, settings: ServerSettings) -> dict[str, Any]:
    """The fields of a body that the operator lets through. What is left out is named in the log at debug.

    Raises:
        RequestError: the caller is not one of those who may send them.
    """
    passed, debug = settings.engine_extra_fields, log.isEnabledFor(logging.DEBUG)
    if not passed and not debug:
        return {}
    sent = decode_body(_raw_fields, body)
    unknown = sent.keys() - {*fields.__struct_fields__, *passed}
    if unknown:
        log.debug("fields that no stage reads: %s", client_text(", ".join(sorted(unknown)))[:200])
    found = {name: decode_body(_any_value, bytes(sent[name])) for name in passed if name in sent}
    _check_trusted([name for name, value in found.items() if value is not None], scope, settings)
    return found


def routing_hints(fields: SamplingFields, scope: Scope, settings: ServerSettings) -> RoutingHints:
    """Where to run, handed on and never invented.

    Raises:
        RequestError: the caller is not one of those who may say it, or a rank is none.
    """
    sent = reversed(scope["headers"])  # the first of several wins
    headers = {name.decode(): value.decode("latin-1") for name, value in sent if name in _ROUTING_HEADERS}
    named = [name for name in _ROUTING_FIELDS if getattr(fields, name) is not None]
    _check_trusted([*named, *headers], scope, settings)
    if not _is_rank(headers.get(_RANK_HEADER, "0")):
        raise field_error(_RANK_HEADER, "must be a rank of the engine")
    return RoutingHints(
        priority=fields.priority,
        lora=fields.lora_path,
        cache_salt=fields.cache_salt or None,
        data_parallel_rank=fields.data_parallel_rank,
        bootstrap_host=fields.bootstrap_host,
        bootstrap_port=fields.bootstrap_port,
        bootstrap_room=fields.bootstrap_room,
        headers={
            REQUEST_ID_HEADER: record_of(scope).id,
            **headers,
            **trace_headers(scope),
        },
    )


def _check_trusted(named: Sequence[str], scope: Scope, settings: ServerSettings) -> None:
    if named and not is_trusted(scope, settings):
        raise RequestError(
            f"{named[0]}: is for callers whom the operator of this server names",
            param=named[0],
            code=ErrorCode.UNTRUSTED_CALLER,
        )


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
