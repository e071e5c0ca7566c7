"""SGLang's schedulers by the sockets of its own front end, one message a step for all requests.

Never knows how messages lie (``messages.py``). Invariant: names are of one length, because SGLang aborts whatever
begins with the name that it is given.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import zmq

from paraserve.engines.base import EngineChunk, EngineError, EngineInfo, EngineRequest, Finish, Sampling
from paraserve.engines.checks import garbled
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.client import HTTPTimeouts, broken
from paraserve.engines.http.refusals import refusal
from paraserve.engines.http.remote import ModelFacts, cached_prompt_tokens
from paraserve.engines.sglang.ends import finish_of, stops_kept_here, through_stop
from paraserve.engines.sglang.engine import BACKEND_KINDS, XGRAMMAR, limits
from paraserve.engines.sglang.messages import Messages, scores_of, unpacked
from paraserve.engines.wire.engine import WireEngine, WireRun
from paraserve.engines.wire.refusals import check_rank, no_such_adapter
from paraserve.engines.wire.sockets import Sockets

HEALTH_CHECK = "HEALTH_CHECK"
"""How the name of a request begins that is answered, however busy the scheduler is, and counted nowhere."""

RETRY_SECONDS = 0.02


class SGLangWireEngine(WireEngine):
    """The adapter. ``address`` is of schedulers that were started by ``launcher.py``; its facts are what that tells."""

    title = "SGLang"

    def __init__(self, address: EngineAddress, facts: ModelFacts, *, timeouts: HTTPTimeouts | None = None) -> None:
        super().__init__(facts, timeouts or HTTPTimeouts())
        assert address.wire is not None
        self._directory = address.wire.directory
        self._told = address.wire.facts
        self._messages = Messages(self._told["layout"])
        self._asked: set[asyncio.Future[None]] = set()

    def bind(self, sockets: Sockets) -> None:
        where = f"ipc://{self._directory}/input"
        self._input = sockets.bind(zmq.PUSH, where, lambda _: None, came=self.came, went=self.went)
        sockets.bind(zmq.PULL, f"ipc://{self._directory}/tokens", self._read)
        sockets.bind(zmq.PULL, f"ipc://{self._directory}/answers", self._read_answer)
        sockets.bind(zmq.DEALER, f"ipc://{self._directory}/rpc", lambda _: None)

    def learn(self) -> EngineInfo:
        whole_length, prompt_length = limits(dict(self._told), self.facts.context_length)
        vocab_size = min(self.facts.vocab_size, self._told["vocab_size"] or self.facts.vocab_size)
        return EngineInfo(
            context_length=whole_length,
            max_prompt_tokens=prompt_length,
            vocab_size=vocab_size,
            eos_token_ids=self.facts.eos_token_ids,
            constraints=BACKEND_KINDS.get(str(self._told["grammar_backend"]), XGRAMMAR),
            defers_constraints=bool(self._told["reasoning_parser"]),
            prompt_logprobs=True,
            version=self._told["version"],
            cache_salts=True,
            seeds=bool(self._told["enable_deterministic_inference"]),
        )

    async def probe(self) -> None:
        """By a token that is made for nobody; whatever comes then is an answer."""
        heard = asyncio.get_running_loop().create_future()
        self._asked.add(heard)
        try:
            self._ask()
            await heard
        finally:
            self._asked.discard(heard)

    def _ask(self) -> None:
        question = EngineRequest("", [0], Sampling(max_tokens=1, temperature=0.0))
        self._send(self._messages.request(HEALTH_CHECK + next(self._names), question))

    def came(self) -> None:
        """A scheduler that was started again connects before its model is loaded, and answers when it is."""
        if self._info is None:
            super().came()
            return
        try:
            self._ask()
        except zmq.ZMQError:  # it can be written to a moment later
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.came)

    def send(self, name: str, request: EngineRequest) -> None:
        if request.routing.lora is not None:
            raise no_such_adapter()
        check_rank(request)
        self._send(self._messages.request(name, request))

    def send_abort(self, names: Collection[str]) -> None:
        for name in names:
            self._send(self._messages.abort(name))

    def _send(self, message: bytes) -> None:
        self._input.send(message, zmq.NOBLOCK)

    def _read(self, frames: list[bytes]) -> None:
        self._heard()
        try:
            batch = self._messages.read_batch(frames[0])
            columns = list(zip(batch.rids, batch.finished_reasons, batch.output_ids or (), strict=True))
        except (msgspec.DecodeError, ValueError):
            self.cannot_be_read()
            return
        now, strays = asyncio.get_running_loop().time(), []
        for at, (name, reason, ids) in enumerate(columns):
            run = self.runs.get(name)
            if run is None:
                if reason is None and not name.startswith((self.front_end, HEALTH_CHECK)):
                    strays.append(name)  # of somebody who was here before us
                continue
            run.heard = now
            try:
                self._hand_on(run, batch, at, unpacked(ids), reason)
            except EngineError as error:
                self.fail(run, error, abort=reason is None)
            except (ValueError, LookupError, TypeError, struct.error):
                self.fail(run, garbled(), abort=reason is None)
        self.leave(strays)

    def _hand_on(self, run: WireRun, batch: Any, at: int, ids: list[int], reason: Any) -> None:
        request = run.request
        finish = None if reason is None else finish_of(reason, _refusal(request))
        chunk = EngineChunk(ids, None, finish)
        if request.logprobs is not None:
            scores = [score for score in scores_of(batch, at, "output", request.logprobs) if score is not None]
            if [score.token_id for score in scores[: len(ids)]] != ids:
                raise garbled()
            chunk.logprobs = scores[: len(ids)]
        if run.fresh:
            chunk.prompt_tokens = batch.prompt_tokens[at]
            chunk.cached_tokens = cached_prompt_tokens(batch.cached_tokens[at], chunk.prompt_tokens)
            if request.prompt_logprobs:
                chunk.prompt_logprobs = scores_of(batch, at, "input", request.logprobs or 0)
        end = through_stop(ids, stops_kept_here(request))
        if end is not None:
            chunk.token_ids, chunk.finish = ids[:end], Finish("stop", ids[end - 1])
            chunk.logprobs = None if chunk.logprobs is None else chunk.logprobs[:end]
        if ids or finish is not None:
            self.take(run, chunk)
        if end is not None and finish is None:
            self.leave([run.name])

    def _read_answer(self, frames: list[bytes]) -> None:
        """To a probe, or of a request that was given up before it ran."""
        self._heard()
        try:
            told = self._messages.read_abort(frames[0])
        except msgspec.DecodeError:
            return  # of another kind, which nobody has asked for
        run = self.runs.get(told.rid)
        if run is None:
            return
        try:
            reason = told.finished_reason
            finish = Finish("abort") if reason is None else finish_of(reason, _refusal(run.request))
            self.take(run, EngineChunk([], None, finish))
        except EngineError as error:
            self.fail(run, error)

    def _heard(self) -> None:
        if self.away and self._info is not None:
            super().came()
        for heard in self._asked:
            if not heard.done():
                heard.set_result(None)

    def went(self) -> None:
        super().went()
        for heard in self._asked:
            if not heard.done():
                heard.set_exception(broken())


def _refusal(request: EngineRequest) -> Callable[[int, str], EngineError]:
    return lambda status, message: refusal(status, message, request.constraint)
