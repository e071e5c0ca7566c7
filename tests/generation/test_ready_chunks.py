"""Chunks are handed on as soon as there is one, and together when there are several."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paraserve.engines.base import EngineChunk, EngineError
from paraserve.generation.ready import MOST, ReadyChunks
from tests.waiting import PATIENCE


class Source:
    """Gives chunks by hand; ``log`` says how its generator ended."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[EngineChunk | EngineError | None] = asyncio.Queue()
        self.log: list[str] = []

    def put(self, *ids: int) -> None:
        for token_id in ids:
            self.queue.put_nowait(EngineChunk([token_id]))

    async def chunks(self) -> AsyncIterator[EngineChunk]:
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, EngineError):
                    raise item
                yield item
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # an abort that takes a moment
            self.log.append("cancelled")
            raise
        finally:
            self.log.append("closed")


async def take(ready: ReadyChunks) -> list[EngineChunk]:
    return await ready


def ids(chunks: list[EngineChunk]) -> list[int]:
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


async def test_the_first_chunk_waits_for_nothing_beyond_it() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    source.put(1, 2)
    assert ids(await ready) == [1]
    assert source.queue.qsize() == 1
    await ready.aclose()


async def test_what_has_piled_up_comes_together_and_in_order() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    source.put(0, 1, 2, 3)
    assert ids(await ready) == [0]
    assert ids(await ready) == [1, 2, 3]
    source.put(4, 5)
    assert ids(await ready) == [4, 5]
    await ready.aclose()
    assert source.log == ["cancelled", "closed"]


async def test_a_chunk_on_an_idle_stream_comes_alone_and_at_once() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    for token_id in range(3):
        asyncio.get_running_loop().call_later(0.005, source.put, token_id)
        assert ids(await asyncio.wait_for(take(ready), PATIENCE)) == [token_id]
    source.queue.put_nowait(None)
    assert await ready == []
    await ready.aclose()
    assert source.log == ["closed"]


async def test_one_hand_over_is_bounded_and_lets_others_run() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    source.put(0, *range(3 * MOST))
    await ready
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    assert ids(await ready) == list(range(MOST))
    assert ran == [1]
    await ready.aclose()


async def test_a_failure_comes_behind_the_chunks_before_it() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    source.put(0, 1, 2)
    source.queue.put_nowait(EngineError(502, "engine_error", "it failed"))
    await ready
    assert ids(await ready) == [1, 2]
    with pytest.raises(EngineError, match="it failed"):
        await ready
    await ready.aclose()
    assert source.log == ["closed"]


async def test_cancelling_a_wait_reaches_the_generator() -> None:
    source = Source()
    ready = ReadyChunks(source.chunks())
    source.put(0, 1)
    await ready
    await ready  # the next step has begun to wait
    waiting = asyncio.create_task(take(ready))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert source.log == ["cancelled", "closed"]
    await ready.aclose()


async def test_closing_before_anything_was_taken_is_fine() -> None:
    source = Source()
    await ReadyChunks(source.chunks()).aclose()
    assert source.log == []
