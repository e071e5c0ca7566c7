"""A real llama.cpp for tests and scripts: the embedded server with its adapter, while a block lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from paraserve.engines.child import ChildServer
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, embedded_program
from paraserve.engines.llama_cpp.engine import LlamaCppEngine


@asynccontextmanager
async def embedded(
    token_bytes: Callable[[int], bytes], options: EmbeddedOptions, on_phase: Callable[[str], None] | None = None
) -> AsyncIterator[LlamaCppEngine]:
    """Args:
    token_bytes: the bytes of an id, from the tokenizer of the same model.
    """
    server = ChildServer(embedded_program(options))
    try:
        engine = LlamaCppEngine(token_bytes, await server.start(), on_phase=on_phase)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()
    finally:
        await server.stop()


async def busy_slots(engine: LlamaCppEngine) -> int:
    """Sequences that the server works on now (queued ones are not counted)."""
    return sum(slot["is_processing"] for slot in await engine._ask("/slots"))
