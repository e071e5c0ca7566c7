"""Several engines of the same model behind one engine contract.

Never knows how an engine is reached, or what is cached where: a request goes to the engine with the fewest requests
in flight, and what is cleverer than that is a router's job. Two invariants: a request moves to another engine only
while nothing of it has run (it could not be delivered, or was turned away), so that a request which kills an engine
does not visit them all; and an engine that is put aside comes back by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from paraserve.engines.base import (
    Engine,
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Generation,
    Sink,
)
from paraserve.engines.relay import Relay
from paraserve.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

_FAILURES_IN_A_ROW = 3
"""Failures other than "not there" that put an engine aside: one alone may be the request's doing."""

_TURNED_AWAY = frozenset({ErrorCode.ENGINE_UNREACHABLE, ErrorCode.ENGINE_OVERLOADED, ErrorCode.ENGINE_UNHEALTHY})
_NOT_THERE = frozenset({ErrorCode.ENGINE_UNREACHABLE, ErrorCode.ENGINE_UNHEALTHY})
_NO_FAULT = frozenset({ErrorCode.ENGINE_OVERLOADED, ErrorCode.OVERLOADED})
_SILENT_LOOKS = 2
"""Looks in a row at which an engine in use has made nothing and is not well: it is frozen, and put aside before its
users' timeouts say so."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds until an engine that is aside is asked again: doubled each time, up to the longest."""

    first: float = 1.0
    longest: float = 30.0
    look: float = 5.0
    """Between looks at the engines in use."""


@dataclass(eq=False, slots=True)
class _Member:
    engine: Engine
    number: int
    started: bool = False
    aside: bool = False
    in_flight: int = 0
    failures: int = 0
    chunks: int = 0
    seen: int = 0
    """Of its chunks, at the last look."""
    silent: int = 0


class BalancedEngine:
    """Least requests in flight over the engines that are well.

    Args:
        engines: two or more, all of one model. One that does not start is brought in when it does.
    """

    def __init__(self, engines: Sequence[Engine], *, backoff: Backoff | None = None) -> None:
        self._members = [_Member(engine, number) for number, engine in enumerate(engines, 1)]
        self._backoff = backoff or Backoff()
        self._info: EngineInfo | None = None
        self._probes: set[asyncio.Task[None]] = set()

    @property
    def stranger(self) -> str:
        """Of engines that all are strangers, what the first one runs."""
        strangers = [member.engine.stranger for member in self.started()]
        return strangers[0] if strangers and all(strangers) else ""

    @property
    def info(self) -> EngineInfo:
        """What every engine can do: the smallest limits, the common capabilities."""
        if self._info is None:
            raise RuntimeError("the engines have not been started")
        return self._info

    async def start(self) -> None:
        """Start all; at least one has to. Raises `EngineStartError`."""
        outcomes = await asyncio.gather(*(self._join(member) for member in self._members), return_exceptions=True)
        problems = [outcome for outcome in outcomes if outcome is not None]
        if unforeseen := [problem for problem in problems if not isinstance(problem, EngineStartError)]:
            raise unforeseen[0]
        if len(problems) == len(self._members):
            raise problems[0]
        for member, problem in zip(self._members, outcomes, strict=True):
            if problem is not None:
                self._put_aside(member, str(problem))
        self._in_background(self._watch())

    async def stop(self) -> None:
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        await asyncio.gather(*(member.engine.stop() for member in self._members))

    async def health(self) -> EngineHealth:
        """Well while one engine is; those that are not are put aside."""
        asked = [member for member in self._members if not member.aside]
        answers = await asyncio.gather(*(member.engine.health() for member in asked))
        for member, answer in zip(asked, answers, strict=True):
            if not answer.ok:
                self._put_aside(member, answer.reason)
        if any(answer.ok for answer in answers):
            return EngineHealth(True)
        return EngineHealth(False, answers[0].reason if answers else "every engine is put aside")

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        return _BalancedGeneration(self, request, sink)

    def started(self) -> list[_Member]:
        return [member for member in self._members if member.started]

    def pick(self, tried: Sequence[_Member]) -> _Member:
        """When all are aside, one of them is asked all the same: it may be back, and a wrong no helps nobody."""
        left = [member for member in self.started() if member not in tried]
        well = [member for member in left if not member.aside]
        return min(well or left, key=lambda member: member.in_flight)

    def judge(self, member: _Member, error: EngineError) -> None:
        if error.code in _NOT_THERE:
            self._put_aside(member, error.message)
        elif error.status >= 500 and error.code not in _NO_FAULT:
            member.failures += 1
            if member.failures >= _FAILURES_IN_A_ROW:
                self._put_aside(member, error.message)
        else:
            member.failures = 0

    async def _join(self, member: _Member) -> None:
        await member.engine.start()
        info = member.engine.info
        if self._info is not None and info.vocab_size != self._info.vocab_size:
            await member.engine.stop()
            raise EngineStartError(f"engine {member.number} runs another model: their vocabularies differ in size")
        self._info = info if self._info is None else _common(self._info, info)
        member.started = True

    def _put_aside(self, member: _Member, reason: str) -> None:
        if member.aside:
            return
        member.aside = True
        logger.warning("engine %d is put aside: %s", member.number, reason)
        self._in_background(self._probe(member))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._probes.add(task)
        task.add_done_callback(self._probes.discard)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._backoff.look)
            await asyncio.gather(*(self._look_at(member) for member in self.started() if not member.aside))

    async def _look_at(self, member: _Member) -> None:
        busy = member.in_flight > 0 and member.chunks == member.seen
        member.seen = member.chunks
        if not busy or (await member.engine.health()).ok or member.chunks != member.seen:
            member.silent = 0
            return
        member.silent += 1
        if member.silent >= _SILENT_LOOKS:
            self._put_aside(member, "it makes nothing and does not say that it is well")

    async def _probe(self, member: _Member) -> None:
        wait = self._backoff.first
        while True:
            await asyncio.sleep(wait)
            if await self._is_back(member):
                break
            wait = min(wait * 2, self._backoff.longest)
        member.aside, member.failures, member.silent = False, 0, 0
        logger.warning("engine %d is back", member.number)

    async def _is_back(self, member: _Member) -> bool:
        if member.started:
            return not member.engine.stranger and (await member.engine.health()).ok
        try:
            await self._join(member)
        except EngineStartError as error:
            logger.debug("engine %d is still away: %s", member.number, error)
            return False
        return True


class _BalancedGeneration(Relay):
    """A request on the member that has it now."""

    def __init__(self, engines: BalancedEngine, request: EngineRequest, sink: Sink) -> None:
        super().__init__(sink)
        self._engines = engines
        self._request = request
        self._tried: list[_Member] = []
        self._begun = False
        self._ask_another()

    def _ask_another(self) -> None:
        self._member = self._engines.pick(self._tried)
        self._tried.append(self._member)
        self._member.in_flight += 1
        self.ask(self._member.engine, self._request)

    def take(self, chunk: EngineChunk) -> None:
        self._begun = True
        self._member.chunks += 1
        self.sink.take(chunk)

    def end(self, error: Exception | None) -> None:
        self._member.in_flight -= 1
        if error is None:
            self._member.failures = 0
        elif isinstance(error, EngineError):
            self._engines.judge(self._member, error)
            others = len(self._tried) < len(self._engines.started())
            if error.code in _TURNED_AWAY and others and not self._begun:
                self._ask_another()
                return
        super().end(error)

    def abort(self) -> None:
        if not self.over:
            self._member.in_flight -= 1
        super().abort()


def _common(one: EngineInfo, other: EngineInfo) -> EngineInfo:
    return EngineInfo(
        context_length=min(one.context_length, other.context_length),
        vocab_size=one.vocab_size,
        eos_token_ids=one.eos_token_ids,
        constraints=one.constraints & other.constraints,
        defers_constraints=one.defers_constraints and other.defers_constraints,
        prompt_logprobs=one.prompt_logprobs and other.prompt_logprobs,
        media=one.media & other.media,
        version=one.version,
        max_logprobs=min(one.max_logprobs, other.max_logprobs),
        logit_bias=one.logit_bias and other.logit_bias,
        cache_salts=one.cache_salts and other.cache_salts,
        max_prompt_tokens=min((n for n in (one.max_prompt_tokens, other.max_prompt_tokens) if n), default=None),
        seeds=one.seeds and other.seeds,
        min_tokens=one.min_tokens and other.min_tokens,
    )
