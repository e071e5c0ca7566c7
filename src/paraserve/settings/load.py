"""From a command line, an environment and a file to settings.

Invariant: a `ServerSettings` from `load_settings` is complete and consistent, and its values come from the command
line, else the environment, else the file, else the declared default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraserve.settings.access import access_warnings, check_access
from paraserve.settings.declare import ConfigurationError, options_of
from paraserve.settings.policies import PRESETS
from paraserve.settings.server import ServerSettings
from paraserve.settings.sources import Given, read_arguments, read_environment, read_file


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings with where each value that is not a default came from (option name to flag, variable or file key)."""

    settings: ServerSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load_settings(
    arguments: Sequence[str], environment: Mapping[str, str], *, config: str | None = None
) -> LoadedSettings:
    """Read the command line, the environment and the file that ``config`` names.

    Raises:
        ConfigurationError: with one line that names the flag, variable or file key to change.
    """
    options = options_of(ServerSettings)
    sources = [read_file(options, Path(config))] if config else []
    sources += [read_environment(options, environment), read_arguments(options, arguments)]
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given in sources:
        _expand_preset(given)
        values |= given.values
        origins |= given.origins
    settings = ServerSettings(**values)
    _check(settings, origins)
    warnings = [line for given in sources for line in given.warnings]
    return LoadedSettings(settings, origins, (*warnings, *access_warnings(settings)))


def _expand_preset(given: Given) -> None:
    for name, value in PRESETS[given.values.get("openai_compat", "none")].items():
        if name not in given.values:
            given.values[name] = value
            given.origins[name] = given.origins["openai_compat"]


def _check(settings: ServerSettings, origins: Mapping[str, str]) -> None:
    """Refuse what does not go together."""
    engine = origins.get("engine", "--engine")
    if settings.engine in ("sglang", "vllm") and not settings.model_path:
        raise ConfigurationError(
            f"{engine}: {settings.engine} needs --model-path with the checkpoint's tokenizer files"
        )
    if settings.engine == "scripted" and settings.engine_script is None:
        raise ConfigurationError(f"{engine}: the scripted engine needs --engine-script PATH")
    for url in settings.engine_url:
        if not url.startswith(("http://", "https://")):
            source = origins["engine_url"]
            shown = url.rpartition("@")[2]  # what stands before is a password
            raise ConfigurationError(
                f"{source}: {shown!r} is not valid: expected http://host:port or https://host:port"
            )
    if settings.engine_wire == "zmq" and (settings.engine not in ("sglang", "vllm") or settings.engine_url):
        raise ConfigurationError(
            f"{origins['engine_wire']}: zmq is for an SGLang or a vLLM that is started here; use --engine-wire http"
        )
    if settings.response_store == "memory" and settings.workers > 1:
        raise ConfigurationError(f"{origins['response_store']}: memory is of one process, and --workers starts several")
    check_access(settings, origins)
    dependents = {
        "max_queued_requests_per_key": "max_concurrent_requests_per_key",
        "openai_kimi_sampling": "openai_kimi_compat",
        "openai_streaming_error_preflight_seconds": "openai_streaming_error_preflight",
    }
    for name, needed in dependents.items():
        if getattr(settings, name) != getattr(_DEFAULTS, name) and not getattr(settings, needed):
            flag = "--" + needed.replace("_", "-")
            raise ConfigurationError(f"{origins[name]}: has no effect without {flag}")


_DEFAULTS = ServerSettings()
