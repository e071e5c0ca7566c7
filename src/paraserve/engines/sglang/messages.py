"""The messages of SGLang's schedulers, as its own front end writes and reads them: MessagePack, and no sockets.

Never knows text. The facts are those of SGLang 0.5.23; the order of fields is what the launcher tells. Two invariants:
what SGLang's front end would refuse or put right is refused or put right here, for the scheduler checks no ids and no
values; and nothing is unpickled.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from paraserve.engines.base import LEAST_LOGPROB, EngineRequest, TokenLogprob
from paraserve.engines.http.remote import ignores_eos
from paraserve.engines.sglang.engine import constraint_params, sampling_params
from paraserve.engines.wire.layout import Layout, Row, reader
from paraserve.engines.wire.refusals import ABOVE_ZERO, FINITE, Ranges, check_values

_REQUEST = ("rid", "input_text", "input_ids", "input_embeds", "mm_inputs", "token_type_ids", "sampling_params",
            "return_logprob", "logprob_start_len", "top_logprobs_num", "token_ids_logprob", "stream",
            "require_reasoning", "priority", "cache_salt")  # fmt: skip
_PARAMS = ("max_new_tokens", "min_new_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
           "frequency_penalty", "repetition_penalty", "stop_token_ids", "ignore_eos", "n", "skip_special_tokens",
           "spaces_between_special_tokens", "no_stop_trim", "sampling_seed", "logit_bias", "json_schema", "regex",
           "ebnf", "structural_tag", "stop_strs", "stop_regex_strs", "is_normalized")  # fmt: skip
_RANGES: Ranges = {
    "temperature": (0.0, FINITE),
    "repetition_penalty": (ABOVE_ZERO, 2.0),
    "top_k": (0, 2**30),
    "max_tokens": (0, 2**31 - 1),
}
_EVERY_TOKEN = 2**30
"""A ``top_k`` that is off."""
_GREEDY = 1e-6
_ARRAY = 1

_encode = msgspec.msgpack.Encoder().encode


class _FinishReason(msgspec.Struct):
    type: str
    matched: int | str | list[int] | None = None
    message: str | None = None
    status_code: int | None = None


class Messages:
    """What is sent and read, as the installed release lays it out. Raises `UnknownLayout`."""

    def __init__(self, layout: Layout) -> None:
        self._request = Row(layout, "TokenizedGenerateReqInput", _REQUEST)
        self._params = Row(layout, "SamplingParams", _PARAMS)
        self._abort = Row(layout, "AbortReq", ("rid",))
        ids = list[msgspec.msgpack.Ext | None] | None
        columns = list[Any] | None
        batch = reader(layout, "BatchTokenIDOutput", {
            "rids": (list[str], []), "finished_reasons": (list[_FinishReason | None], []), "output_ids": (ids, None),
            "prompt_tokens": (list[int], []), "cached_tokens": (list[int], []),
            "output_token_logprobs_val": (columns, None), "output_token_logprobs_idx": (columns, None),
            "output_top_logprobs_val": (columns, None), "output_top_logprobs_idx": (columns, None),
            "input_token_logprobs_val": (columns, None), "input_token_logprobs_idx": (columns, None),
            "input_top_logprobs_val": (columns, None), "input_top_logprobs_idx": (columns, None),
        }, tagged=True)  # fmt: skip
        self.read_batch = msgspec.msgpack.Decoder(batch).decode
        abort = reader(
            layout, "AbortReq", {"rid": (str, ""), "finished_reason": (_FinishReason | None, None)}, tagged=True
        )
        self.read_abort = msgspec.msgpack.Decoder(abort).decode

    def request(self, name: str, request: EngineRequest) -> bytes:
        """Raises `EngineError` for what SGLang's front end would refuse."""
        check_values(request.sampling, _RANGES)
        constraint, routing = request.constraint, request.routing
        scored = request.logprobs is not None or request.prompt_logprobs
        row = self._request.of({
            "rid": name,
            "input_ids": packed(request.token_ids),
            "sampling_params": self._params.of(normalized(request)),
            "return_logprob": scored,
            "logprob_start_len": 0 if request.prompt_logprobs else -1,
            "top_logprobs_num": request.logprobs or 0,
            "stream": True,
            "require_reasoning": request.in_reasoning and not (constraint and constraint.covers_reasoning),
            "priority": routing.priority,
            "cache_salt": routing.cache_salt,
        })  # fmt: skip
        return _encode(["TokenizedGenerateReqInput", *row])

    def abort(self, name: str) -> bytes:
        return _encode(["AbortReq", *self._abort.of({"rid": name})])


def normalized(request: EngineRequest) -> dict[str, Any]:
    """``SamplingParams`` as they are behind SGLang's own ``normalize``."""
    params = sampling_params(request.sampling) | constraint_params(request.constraint)
    params |= {"ignore_eos": ignores_eos(request), "stop_strs": [], "stop_regex_strs": [], "is_normalized": True}
    params["stop_token_ids"] = params["stop_token_ids"] or None
    if params["top_k"] == -1:
        params["top_k"] = _EVERY_TOKEN
    if params["temperature"] < _GREEDY:
        params |= {"temperature": 1.0, "top_k": 1}
    return params


def packed(ids: Sequence[int]) -> msgspec.msgpack.Ext:
    kind = _encode("q")
    return msgspec.msgpack.Ext(_ARRAY, struct.pack(">I", len(kind)) + kind + array("q", ids).tobytes())


def unpacked(ids: msgspec.msgpack.Ext | None) -> list[int]:
    """Raises `ValueError`, `struct.error` or `LookupError` for what is no array of ids."""
    if ids is None:
        return []
    (about,) = struct.unpack_from(">I", ids.data)
    found = array("q")
    found.frombytes(memoryview(ids.data)[4 + about :])
    return found.tolist()


def scores_of(batch: Any, at: int, part: str, top: int) -> list[TokenLogprob | None]:
    """Those of one request's new tokens (``part`` is ``output``) or of its prompt (``input``)."""
    ids, values = (_column(batch, f"{part}_token_logprobs_{kind}", at) for kind in ("idx", "val"))
    top_ids, top_values = (_column(batch, f"{part}_top_logprobs_{kind}", at) if top else [] for kind in ("idx", "val"))
    rows: list[TokenLogprob | None] = []
    for place, (token, value) in enumerate(zip(ids, values, strict=True)):
        likely = zip(top_ids[place] or (), top_values[place] or (), strict=True) if place < len(top_ids) else ()
        best = tuple(sorted(likely, key=lambda pair: -pair[1])[:top])
        unscored = value is None and part == "input"
        rows.append(None if unscored else TokenLogprob(token, LEAST_LOGPROB if value is None else value, best))
    return rows


def _column(batch: Any, name: str, at: int) -> list[Any]:
    rows = getattr(batch, name)
    found = rows[at] if rows else None
    return found or []
