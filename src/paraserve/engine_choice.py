"""Which model the settings name, and how an engine of ours is started for it or reached where it runs already.

Knows settings and engines' options; it must never read a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path
from paraserve.serving.progress import StartError
from paraserve.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class SharedEngine:
    """Where an engine of ours listens that another process has started. Nothing of it: there is none.

    Args:
        unix_socket: of the embedded server.
        url: of SGLang or vLLM.
        defers_constraints: whether that one holds constraints back until the reasoning has ended.
    """

    unix_socket: str | None = None
    url: str | None = None
    defers_constraints: bool = False


NOT_SHARED = SharedEngine()


def model_path_of(settings: ServerSettings) -> Path:
    """Raises `StartError`, or `EngineStartError` where the default model is not installed."""
    if settings.model_path:
        return Path(settings.model_path)
    if settings.engine == "llama.cpp":
        return default_model_path()
    raise StartError(
        f"--engine {settings.engine} needs --model-path: a directory with the checkpoint's tokenizer files"
    )


def embedded_options(settings: ServerSettings, model_path: Path) -> EmbeddedOptions:
    return EmbeddedOptions(
        model_path=str(model_path),
        context_length=settings.context_length or 0,
        slots=settings.parallel,
        threads=settings.threads or 0,
        verbose=settings.log_level == "debug",
    )
