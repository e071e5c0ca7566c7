"""The messages of vLLM's core, as its own front ends write and read them: MessagePack, and no sockets.

Never knows text. The facts are those of vLLM 0.32; the order of fields comes from the installed release
(``engines/wire/layout.py``). Two invariants: what vLLM's front end would refuse or put right is refused or put right
here, for the core reads requests in a thread that does not survive a bad one; and the end tokens are named in each
request, because the core knows none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paraserve.engines.base import LEAST_LOGPROB, Constraint, EngineError, EngineRequest, Finish, TokenLogprob
from paraserve.engines.checks import garbled
from paraserve.engines.http.remote import ignores_eos
from paraserve.engines.vllm.engine import FIELD, sampling_params, structured_outputs
from paraserve.engines.wire.layout import Layout, Row, check_names, reader
from paraserve.engines.wire.refusals import ABOVE_ZERO, FINITE, Ranges, check_values
from paraserve.protocol.error_codes import ErrorCode

SOURCES = {
    "v1/engine/__init__.py": ("EngineCoreRequest", "EngineCoreOutput", "EngineCoreOutputs", "UtilityOutput"),
    "sampling_params.py": ("SamplingParams", "StructuredOutputsParams"),
    "lora/request.py": ("LoRARequest",),
}
"""The classes whose layout is read, by the file of the package that declares them."""

BACKEND = "xgrammar"
"""One for an engine's whole life: the first request with a constraint would fix it. It has every kind that is ours."""
_DEEPEST_JSON, _TAG_AROUND_IT = 64, 16

_REQUEST = ("request_id", "prompt_token_ids", "sampling_params", "mm_features", "pooling_params", "arrival_time",
            "lora_request", "cache_salt", "data_parallel_rank", "client_index", "priority",
            "reasoning_ended")  # fmt: skip
_PARAMS = ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
           "frequency_penalty", "repetition_penalty", "stop_token_ids", "ignore_eos", "seed", "n", "detokenize",
           "logprobs", "logit_bias", "structured_outputs", "_eos_token_id", "_all_stop_token_ids")  # fmt: skip
_RANGES: Ranges = {
    "temperature": (0.0, 2.0),
    "repetition_penalty": (ABOVE_ZERO, FINITE),
    "top_k": (0, 2**31 - 1),
    "max_tokens": (1, 2**31 - 1),
}
_STOP, _LENGTH, _ABORT, _, _REPETITION = range(5)
"""Reasons of an end. The fourth is an error."""
_NUMBERS = {"<i4": "i", "<i8": "q", "<f4": "f"}

_Array = tuple[str, tuple[int, int], msgspec.msgpack.Ext | int]
_Scores = tuple[_Array, _Array, msgspec.Raw, msgspec.Raw]

_decode_scores = msgspec.msgpack.Decoder(_Scores).decode


class _Prefill(msgspec.Struct):
    num_cached_tokens: int = 0


class Messages:
    """What is sent and read, as the installed release lays it out. Raises `UnknownLayout`."""

    def __init__(self, layout: Layout) -> None:
        check_names(layout, "SamplingParams", _PARAMS)
        check_names(layout, "StructuredOutputsParams", (*FIELD.values(), "_backend"))
        self.request = Row(layout, "EngineCoreRequest", _REQUEST)
        self.lora = Row(layout, "LoRARequest", ("lora_name", "lora_int_id", "lora_path"))
        output = reader(layout, "EngineCoreOutput", {
            "request_id": (str, ""), "new_token_ids": (list[int], []),
            "new_logprobs": (msgspec.Raw, msgspec.Raw(b"\xc0")), "finish_reason": (int | None, None),
            "stop_reason": (int | str | None, None), "prefill_stats": (_Prefill | None, None),
        })  # fmt: skip
        utility = reader(layout, "UtilityOutput", {
            "call_id": (int, 0), "failure_message": (str | None, None), "result": (tuple[None, Any] | None, None),
        })  # fmt: skip
        outputs = reader(layout, "EngineCoreOutputs", {
            "outputs": (list[output], []), "utility_output": (utility | None, None),  # type: ignore[valid-type]
        })  # fmt: skip
        self.read = msgspec.msgpack.Decoder(outputs).decode


def sampling_map(request: EngineRequest, ends: Sequence[int]) -> dict[str, Any]:
    """``SamplingParams``. Raises `EngineError` for what vLLM's front end would refuse.

    Args:
        ends: the model's end tokens. The core knows one as such, the others are stop ids to it.
    """
    sampling, ignored = request.sampling, ignores_eos(request)
    check_values(sampling, _RANGES)
    stops = [*sampling.stop_token_ids]
    params = sampling_params(sampling) | {
        "ignore_eos": ignored,
        "_eos_token_id": ends[0] if ends and not ignored else None,
        "stop_token_ids": stops if ignored else [*stops, *ends[1:]],
        "_all_stop_token_ids": [*stops, *ends],  # what min_tokens holds back, whatever is ignored
    }
    if request.logprobs is not None:
        params["logprobs"] = request.logprobs
    if sampling.logit_bias:
        params["logit_bias"] = dict(sampling.logit_bias)
    if request.constraint is not None:
        check_constraint_value(request.constraint)
        params["structured_outputs"] = {**structured_outputs(request.constraint), "_backend": BACKEND}
    return params


def check_constraint_value(constraint: Constraint) -> None:
    """Raises `EngineError` for what ends the core instead of a request."""
    value = constraint.value
    if constraint.kind == "json_object":
        return
    deepest = _DEEPEST_JSON + (_TAG_AROUND_IT if constraint.kind == "structural_tag" else 0)
    is_json = constraint.kind in ("json_schema", "structural_tag")
    empty = not value.strip() and constraint.kind != "regex"
    if empty or "\0" in value or (is_json and not _shallow(value, deepest)):
        raise EngineError(
            400, ErrorCode.INVALID_CONSTRAINT, f"The engine takes no such {constraint.kind}.", param=constraint.param
        )


def _shallow(text: str, deepest: int) -> bool:
    """Whether it is JSON of no more levels than that."""
    try:
        level = [msgspec.json.decode(text)]
    except (msgspec.DecodeError, RecursionError):
        return False
    for _ in range(deepest):
        level = [child for node in level for child in _children(node)]
        if not level:
            return True
    return False


def _children(node: Any) -> list[Any]:
    nodes = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [child for child in nodes if isinstance(child, dict | list)]


def finish_of(reason: int, matched: int | str | None, ids: Sequence[int]) -> Finish | None:
    """None for an end that is a failure."""
    if reason == _STOP:
        # No reason: the model's own end token, which is the last id.
        last = ids[-1] if ids else None
        return Finish("stop", last if matched is None else matched if isinstance(matched, int) else None)
    if reason in (_LENGTH, _REPETITION):
        return Finish("length")
    return Finish("abort") if reason == _ABORT else None


def failure_of(request: EngineRequest, *, fresh: bool) -> EngineError:
    """The core gives no reasons. What fails before its first token and has a constraint did not compile."""
    if request.constraint is not None and fresh:
        message = "The engine refused the constraint: it does not compile."
        return EngineError(400, ErrorCode.INVALID_CONSTRAINT, message, param=request.constraint.param)
    return EngineError(502, ErrorCode.ENGINE_ERROR, "The engine failed while it generated.")


def read_logprobs(raw: msgspec.Raw, frames: Sequence[bytes], ids: Sequence[int], top: int) -> list[TokenLogprob]:
    """One for each id: itself in the first column, then the most likely ones, best first. Raises `EngineError`."""
    if not ids:
        return []
    try:
        tokens, values, *_ = _decode_scores(raw)
        columns = tokens[1][1]
        if tokens[1] != values[1] or tokens[1][0] != len(ids) or columns <= top:
            raise garbled()
        found, scores = _numbers(tokens, frames), [max(value, LEAST_LOGPROB) for value in _numbers(values, frames)]
        rows = range(0, columns * len(ids), columns)
        if [found[at] for at in rows] != list(ids):
            raise garbled()
        best = (slice(at + 1, at + 1 + top) for at in rows)
        return [
            TokenLogprob(found[at], scores[at], tuple(zip(found[likely], scores[likely], strict=True)))
            for at, likely in zip(rows, best, strict=True)
        ]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise garbled() from error


def _numbers(array: _Array, frames: Sequence[bytes]) -> list[Any]:
    """A small array lies in the message, a large one in a frame of its own."""
    kind, _, data = array
    buffer = frames[data] if isinstance(data, int) else data.data
    numbers: list[Any] = memoryview(buffer).cast("B").cast(_NUMBERS[kind]).tolist()  # type: ignore[call-overload]
    return numbers
