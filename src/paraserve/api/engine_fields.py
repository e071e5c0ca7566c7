"""What a client or router says to the engine itself: fields and headers that go on as they are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.types import Scope

from paraserve.api.observed import REQUEST_ID_HEADER, record_of
from paraserve.api.traced import trace_headers
from paraserve.engines.base import RoutingHints
from paraserve.protocol.body import decode_body
from paraserve.protocol.sampling import SamplingFields
from paraserve.secrets import client_text

log = logging.getLogger(__name__)

_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any_value = msgspec.json.Decoder(Any)

_ROUTING = frozenset({b"x-smg-routing-key", b"x-data-parallel-rank"})
"""Headers that say where a request should run."""


def engine_extras(body: bytes, fields: SamplingFields, passed: Sequence[str]) -> dict[str, Any]:
    """The fields of a body that the operator lets through. What is left out is named in the log at debug."""
    debug = log.isEnabledFor(logging.DEBUG)
    if not passed and not debug:
        return {}
    sent = decode_body(_raw_fields, body)
    unknown = sent.keys() - {*fields.__struct_fields__, *passed}
    if unknown:
        log.debug("fields that no stage reads: %s", client_text(", ".join(sorted(unknown)))[:200])
    return {name: decode_body(_any_value, bytes(sent[name])) for name in passed if name in sent}


def routing_hints(fields: SamplingFields, scope: Scope) -> RoutingHints:
    """Where to run, handed on and never invented."""
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
            **{
                name.decode(): value.decode("latin-1")
                for name, value in reversed(scope["headers"])  # the first of several wins
                if name in _ROUTING
            },
            **trace_headers(scope),
        },
    )
