"""One count of places for all workers: the supervisor gives them, the workers ask.

Invariants: a worker that ends gives back whatever it had, and a request that no longer waits leaves nothing behind on
either side, in whatever order the messages cross.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from paraserve import admission
from paraserve.admission import Caller, LocalAdmission
from paraserve.protocol.errors import RequestError
from paraserve.serving.workers.channel import Enter, Leave, Placed, Refused


class PlacesOfWorker:
    """The supervisor's side, one for each worker that lives.

    Args:
        shared: the count, of all workers.
        send: to the worker.
    """

    def __init__(self, shared: LocalAdmission, send: Callable[[Placed | Refused], None]) -> None:
        self._shared = shared
        self._send = send
        self._held: dict[int, admission.Leave] = {}
        self._waiting: dict[int, asyncio.Task[None]] = {}

    def enter(self, request: int, caller: Caller) -> None:
        leave = self._shared.enter_at_once(caller)
        if leave is None:
            waiting = self._waiting[request] = asyncio.create_task(self._wait(request, caller))
            waiting.add_done_callback(lambda _: self._waiting.pop(request))
            return
        self._held[request] = leave
        self._send(Placed(request))

    async def _wait(self, request: int, caller: Caller) -> None:
        try:
            self._held[request] = await self._shared.enter(caller)
        except RequestError as error:
            self._send(Refused(request, error.status, error.message, error.code, error.headers))
        else:
            self._send(Placed(request))

    def leave(self, request: int) -> None:
        if leave := self._held.pop(request, None):
            leave()
        elif waiting := self._waiting.get(request):
            waiting.cancel()

    def close(self) -> None:
        """The worker is gone."""
        for request in [*self._held, *self._waiting]:
            self.leave(request)


class SharedAdmission:
    """`Admission` of a worker.

    Args:
        send: to the supervisor.
    """

    def __init__(self, send: Callable[[Enter | Leave], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[None]] = {}

    def check(self, caller: Caller) -> None:
        """Only the supervisor knows, and to ask it takes waiting."""

    def enter_at_once(self, caller: Caller) -> admission.Leave | None:
        return None  # only the supervisor knows

    async def enter(self, caller: Caller) -> admission.Leave:
        request = next(self._numbers)
        answer = self._asked[request] = asyncio.get_running_loop().create_future()
        self._send(Enter(request, caller))
        refused = admitted = False
        try:
            await answer
            admitted = True
        except RequestError:
            refused = True
            raise
        finally:
            del self._asked[request]
            if not (admitted or refused):
                self._send(Leave(request))
        return partial(self._send, Leave(request))

    def answer(self, message: Placed | Refused) -> None:
        """The supervisor's. Whoever asked may have left meanwhile, and has said so."""
        asked = self._asked.get(message.request)
        if asked is None or asked.done():
            return
        if isinstance(message, Placed):
            asked.set_result(None)
            return
        asked.set_exception(
            RequestError(message.message, status=message.status, code=message.code, headers=message.headers)
        )
