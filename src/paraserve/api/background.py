"""A reply that runs without a client: what becomes of it is in the store.

While it runs it says so to the store, where any server sees that it does, and sees itself that it was cancelled.
Invariant: what it ends as is stored and on its record, however it ends, but for a server that is killed and a store
that is away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from paraserve.admission import Leave
from paraserve.api.encoders.responses import ResponsesFold
from paraserve.api.errors import as_request_error, internal_error, stopping
from paraserve.api.replies import RunReply
from paraserve.api.shelf import BEAT_SECONDS, Shelf
from paraserve.engines.base import EngineError
from paraserve.generation.events import ReplyEvent
from paraserve.observability.record import RequestRecord
from paraserve.protocol.errors import RequestError
from paraserve.protocol.responses import ResponseObject

log = logging.getLogger(__name__)


class Store(Protocol):
    async def __call__(self, response: ResponseObject, *, running: bool = False) -> None:
        """Raises `RequestError` (503)."""
        ...


class BackgroundReply:
    """Args:
    store: `Shelf.put` with what the request said.
    """

    def __init__(self, shelf: Shelf, fold: ResponsesFold, store: Store, record: RequestRecord) -> None:
        self._record = record
        self._shelf = shelf
        self._fold = fold
        self.put = store

    async def run(self, run: RunReply, enter: Callable[[], Awaitable[Leave]]) -> None:
        work = asyncio.ensure_future(self._work(run, enter))
        try:
            while not (await asyncio.wait({work}, timeout=BEAT_SECONDS))[0]:
                if not await self._goes_on():
                    self._record.leave()
                    return
            outcome = self._outcome(work)
            if await self._goes_on():
                await self.put(outcome)
        except RequestError as error:
            log.warning("a response in the background was not stored: %s", error.message)
        except asyncio.CancelledError:
            self._record.stop()
            await self.put(self._fold.failed(stopping()))
            raise
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    async def _goes_on(self) -> bool:
        return await self._shelf.beat(self._fold.form.response.id)

    async def _work(self, run: RunReply, enter: Callable[[], Awaitable[Leave]]) -> ResponseObject:
        leave = await enter()
        try:
            await self.put(msgspec.structs.replace(self._fold.form.response, status="in_progress"), running=True)
            await run(self._take)
        finally:
            leave()
        return self._fold.whole()

    def _outcome(self, work: asyncio.Future[ResponseObject]) -> ResponseObject:
        """What the reply ended as; a bug fails it and nothing else."""
        error = work.exception()
        if error is None:
            return work.result()
        if isinstance(error, EngineError | RequestError):
            failure = as_request_error(error)
        else:
            log.error("a response in the background failed", exc_info=error)
            failure = internal_error()
        self._record.fail(failure.status, failure.code)
        return self._fold.failed(failure)

    def _take(self, events: Sequence[ReplyEvent]) -> None:
        for event in events:
            self._fold.take(event)
