"""The engine that all workers share, where it is one of ours: started once, by the supervisor.

It must never know how tokens are made: the workers have the adapters. It is not started again when it dies: requests
then fail as they do with a single process, and health says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paraserve.engine_choice import SharedEngine, embedded_options, model_path_of
from paraserve.engines.launch import prepare
from paraserve.engines.llama_cpp.embedded import EmbeddedServer
from paraserve.settings import ServerSettings


class EngineOfAll(Protocol):
    async def start(self) -> SharedEngine:
        """Where it can be reached. Raises `EngineStartError`."""
        ...

    async def wait(self) -> int:
        """The exit code, when it has ended."""
        ...

    async def stop(self) -> None: ...


def engine_of_all(settings: ServerSettings, flags: Sequence[str], step: Callable[[str], None]) -> EngineOfAll | None:
    """The engine to start. None where it runs elsewhere, or inside of each worker.

    Args:
        flags: for SGLang or vLLM.
        step: told what goes on.

    Raises:
        EngineStartError, StartError: it could not be started as it is configured.
    """
    if settings.starts_engine:
        return _Launched(settings, flags)
    if settings.engine == "llama.cpp" and not settings.engine_url:
        return _Embedded(settings, step)
    return None


class _Embedded:
    def __init__(self, settings: ServerSettings, step: Callable[[str], None]) -> None:
        self._server = EmbeddedServer(embedded_options(settings, model_path_of(settings)))
        self._step = step

    async def start(self) -> SharedEngine:
        self._step("loading the model")
        await self._server.start()
        return SharedEngine(unix_socket=self._server.unix_socket)

    async def wait(self) -> int:
        return await self._server.wait()

    async def stop(self) -> None:
        await self._server.stop()


class _Launched:
    def __init__(self, settings: ServerSettings, flags: Sequence[str]) -> None:
        assert settings.engine in ("sglang", "vllm")
        self._launch = prepare(settings.engine, str(model_path_of(settings)), flags)

    async def start(self) -> SharedEngine:
        await self._launch.server.start()
        return SharedEngine(url=self._launch.server.base_url, defers_constraints=self._launch.defers_constraints)

    async def wait(self) -> int:
        return await self._launch.server.wait()

    async def stop(self) -> None:
        await self._launch.server.stop()
