"""A generation behind which engines' generations stand one after another, and the sink of each of them.

Never knows why another one is asked for. Invariant: who holds it back or ends it reaches the one that runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from paraserve.engines.base import Engine, EngineChunk, EngineRequest, Generation, Sink


class Relay(ABC):
    """A `Generation` for ``sink``, and a `Sink`. The first request is asked for by the subclass."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.over = False
        self.running: Generation
        self._paused = False

    def ask(self, engine: Engine, request: EngineRequest) -> None:
        self.running = engine.submit(request, self)
        if self._paused:
            self.running.pause()

    @abstractmethod
    def take(self, chunk: EngineChunk) -> None: ...

    def end(self, error: Exception | None) -> None:
        self.over = True
        self.sink.end(error)

    def abort(self) -> None:
        if not self.over:
            self.over = True
            self.running.abort()

    def pause(self) -> None:
        self._paused = True
        self.running.pause()

    def resume(self) -> None:
        self._paused = False
        self.running.resume()
