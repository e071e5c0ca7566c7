"""An engine behind HTTP: what every such engine's adapter has in common.

Never knows an engine's bodies: a subclass writes the request and reads the events. How a request runs stands in
`generation.py`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from paraserve.engines.base import (
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Generation,
    Sink,
)
from paraserve.engines.http.client import EngineHTTP, HTTPTimeouts
from paraserve.engines.http.generation import EventDecoder, RemoteGeneration
from paraserve.engines.http.identity import Identity
from paraserve.engines.http.refusals import refusal
from paraserve.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the checkpoint says about the model, for what an engine does not tell.

    Attributes:
        vocab_size: ids are below it. Neither SGLang nor vLLM reports it, and an id beyond it can end SGLang.
        context_length: None is "what the engine reports"; the smaller of both holds.
    """

    vocab_size: int
    context_length: int | None = None
    eos_token_ids: frozenset[int] = frozenset()


class RemoteEngine(ABC):
    """An engine's adapter: one server, one connection pool."""

    def __init__(
        self, base_url: str, facts: ModelFacts, *, timeouts: HTTPTimeouts | None = None, api_key: str | None = None
    ) -> None:
        self.facts = facts
        self.http = EngineHTTP(base_url, timeouts=timeouts, api_key=api_key)
        self.identity = Identity(self._identify, self._learn_again, self.http.base_url)
        self._info: EngineInfo | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    title: str
    generate_path: str
    abort_path: str

    @abstractmethod
    async def learn(self) -> EngineInfo:
        """Ask the server what it is. Raises `EngineError` and `EngineStartError`."""

    @abstractmethod
    async def identify(self) -> str:
        """What the server calls its model, empty where it does not say. Raises `EngineError` and `EngineStartError`."""

    @abstractmethod
    def body(self, request: EngineRequest) -> dict[str, Any]:
        """The engine's spelling of a request."""

    @abstractmethod
    def decoder(self, request: EngineRequest) -> EventDecoder: ...

    def name(self, request: EngineRequest) -> str:
        """What the engine will call the generation, if nothing between here and there renames it."""
        return request.request_id

    @abstractmethod
    def abort_body(self, name: str) -> dict[str, Any]: ...

    @abstractmethod
    async def health(self) -> EngineHealth: ...

    def headers(self, request: EngineRequest) -> Mapping[str, str]:
        return request.routing.headers

    def refused(self, status: int, message: str, request: EngineRequest) -> EngineError:
        """The error for a status that the engine answered instead of a stream, or named in an event."""
        return refusal(status, message, request.constraint)

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise RuntimeError("the engine has not been started")
        return self._info

    async def start(self) -> None:
        await self.http.open()
        try:
            self._info = await self.learn()
            await self.identity.learn()
        except (EngineError, EngineStartError) as error:
            await self.http.close()
            raise EngineStartError(f"{self.title} at {self.http.base_url}: {error}") from error

    async def _identify(self) -> str:
        try:
            return await self.identify()
        except EngineStartError as error:
            raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine does not say what it runs.") from error

    async def _learn_again(self) -> None:
        try:
            self._info = await self.learn()
        except EngineStartError as error:
            logger.warning("%s: it does not say what it can do: %s", self.http.base_url, error)

    @property
    def stranger(self) -> str:
        return self.identity.stranger

    async def stop(self) -> None:
        await self.identity.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        await self.http.close()

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        return RemoteGeneration(self, request, sink)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in the background; `stop` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def ignores_eos(request: EngineRequest) -> bool:
    """What SGLang and vLLM are told. With a constraint both write on behind the end of the grammar, which is the
    reply's (seen with SGLang 0.5.23 and vLLM 0.32)."""
    return request.sampling.ignore_eos and request.constraint is None


def cached_prompt_tokens(reported: int | None, prompt_tokens: int | None) -> int | None:
    """How many prompt tokens came from the prefix cache, None where the number cannot be that.

    Every engine computes at least the prompt's last token, so "all of them" is what a decode server says that was
    handed the whole prompt by its prefill server: it is no cache hit and not reported as one.
    """
    if reported is None or (prompt_tokens is not None and reported >= prompt_tokens):
        return None
    return reported
