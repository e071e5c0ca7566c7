"""How SGLang says that a sequence has ended, over HTTP and by its schedulers' messages alike.

Never knows where it was said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from paraserve.engines.base import EngineError, EngineRequest, Finish
from paraserve.engines.checks import garbled
from paraserve.engines.http.remote import ignores_eos


class Reason(Protocol):
    """The fields of a ``finish_reason``."""

    @property
    def type(self) -> str: ...
    @property
    def matched(self) -> int | str | list[int] | None: ...
    @property
    def message(self) -> str | None: ...
    @property
    def status_code(self) -> int | None: ...


def finish_of(reason: Reason, refused: Callable[[int, str], EngineError]) -> Finish:
    """Raises `EngineError` for an end that is a refusal, as ``refused`` says it, or a failure."""
    matched = reason.matched[-1] if isinstance(reason.matched, list) and reason.matched else reason.matched
    match reason.type:
        case "stop":
            return Finish("stop", matched if isinstance(matched, int) else None)
        case "length":
            return Finish("length")
        case "abort" if reason.status_code is None:
            return Finish("abort")
        case "abort":
            raise refused(reason.status_code or 500, reason.message or "")
    raise garbled()


def stops_kept_here(request: EngineRequest) -> frozenset[int]:
    """An SGLang that ignores end tokens looks for no stop ids either: they are found here."""
    return frozenset(request.sampling.stop_token_ids if ignores_eos(request) else ())


def through_stop(ids: Sequence[int], stops: AbstractSet[int]) -> int | None:
    """How many of the ids there are up to the first stop id and with it; None where there is none."""
    if not stops or stops.isdisjoint(ids):
        return None
    return next(at for at, token_id in enumerate(ids, 1) if token_id in stops)
