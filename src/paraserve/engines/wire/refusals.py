"""What is not done by an engine's own messages, whichever engine it is: at the start, and of a request.

Never knows messages. Invariant: a value that an engine's front end would refuse is refused with the client's field.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from paraserve.engines.base import EngineError, EngineRequest, Sampling
from paraserve.protocol.error_codes import ErrorCode

Ranges = dict[str, tuple[float, float]]

ABOVE_ZERO, FINITE = sys.float_info.min, sys.float_info.max
COMMON: Ranges = {
    "top_p": (ABOVE_ZERO, 1.0),
    "min_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "min_tokens": (0, 2**31 - 1),
    "seed": (-(2**63), 2**63 - 1),
}
_MEDIA_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


class NotByWire(Exception):
    """Why HTTP is the way, in words for the operator."""


def refuse_media(model_path: Path) -> None:
    """Raises `NotByWire` where the engine's HTTP server would prepare images and the like."""
    if found := [name for name in _MEDIA_FILES if (model_path / name).exists()]:
        raise NotByWire(f"the model takes media ({found[0]}), which the engine's HTTP server prepares")


def vocab_size(model_path: Path) -> int | None:
    """The rows of the model's output, which a tokenizer may have more tokens than."""
    try:
        config = json.loads((model_path / "config.json").read_text())
    except (OSError, ValueError):
        return None
    size = config.get("vocab_size", config.get("text_config", {}).get("vocab_size"))
    return size if isinstance(size, int) else None


def refused(field: str, message: str) -> EngineError:
    return EngineError(400, ErrorCode.INVALID_VALUE, f"{field}: {message}.", param=field)


def check_values(sampling: Sampling, ranges: Ranges) -> None:
    """Raises `EngineError` for a value out of an engine's range."""
    for name, (low, high) in (COMMON | ranges).items():
        value = getattr(sampling, name)
        if value is not None and not low <= value <= high:
            raise refused(name, f"{value} is out of the engine's range")
    if sampling.min_tokens > sampling.max_tokens:
        raise refused("min_tokens", f"{sampling.min_tokens} are more than the {sampling.max_tokens} of max_tokens")


def check_rank(request: EngineRequest) -> None:
    if rank := request.routing.data_parallel_rank:
        raise refused("data_parallel_rank", f"{rank} is no rank of this engine")


def no_such_adapter() -> EngineError:
    return EngineError(404, ErrorCode.MODEL_NOT_FOUND, "The engine has no such model or adapter.", param="model")
