"""vLLM's core by the sockets of its own front ends, one message a step for all requests.

Never knows how messages lie (``messages.py``). Invariant: a request that nobody here knows, of a front end that was
killed, is aborted when it is heard of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import zmq

from paraserve.engines.base import EngineChunk, EngineError, EngineInfo, EngineRequest
from paraserve.engines.child import EngineAddress, WireAddress
from paraserve.engines.http.client import HTTPTimeouts, broken
from paraserve.engines.http.remote import ModelFacts, cached_prompt_tokens
from paraserve.engines.vllm.engine import FIELD
from paraserve.engines.vllm.messages import Messages, failure_of, finish_of, read_logprobs, sampling_map
from paraserve.engines.wire.engine import WireEngine, WireRun
from paraserve.engines.wire.refusals import check_rank, no_such_adapter
from paraserve.engines.wire.sockets import Sockets
from paraserve.protocol.error_codes import ErrorCode

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
DEAD = b"ENGINE_CORE_DEAD"
CORE = (0).to_bytes(2, "little")
"""What the core calls itself: its rank."""

_encode = msgspec.msgpack.Encoder().encode


def input_of(place: WireAddress, client: int) -> str:
    return f"ipc://{place.directory}/input-{client}"


def output_of(place: WireAddress, client: int) -> str:
    return f"ipc://{place.directory}/output-{client}"


class VLLMWireEngine(WireEngine):
    """The adapter.

    Args:
        address: of an engine that has been started by us; its facts are what `HeadlessVLLM` tells.
        max_logprobs: the most alternatives a token that are asked for.
    """

    title = "vLLM"

    def __init__(
        self, address: EngineAddress, facts: ModelFacts, *, timeouts: HTTPTimeouts | None = None, max_logprobs: int = 20
    ) -> None:
        super().__init__(facts, timeouts or HTTPTimeouts())
        assert address.wire is not None
        self._place = address.wire
        self._told = address.wire.facts
        self._messages = Messages(self._told["layout"])
        self._ready: dict[str, Any] = self._told["ready"]
        self._defers_constraints = address.defers_constraints
        self._max_logprobs = max_logprobs
        self._loras = {name: (at, path) for at, (name, path) in enumerate(self._told["loras"].items(), 1)}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._next_call = 0
        self._ends = sorted(facts.eos_token_ids)

    def bind(self, sockets: Sockets) -> None:
        client = self._place.client
        where = input_of(self._place, client)
        self._input = sockets.bind(zmq.ROUTER, where, self._take_facts, came=self.came, went=self.went)
        sockets.bind(zmq.PULL, output_of(self._place, client), self._read)

    def _take_facts(self, frames: list[bytes]) -> None:
        """Of a core that has come: one that was started again may have other limits."""
        self._ready = msgspec.msgpack.decode(frames[1])
        if self._info is not None:
            self._info = self.learn()

    def learn(self) -> EngineInfo:
        ready = self._ready
        limits = [n for n in (ready["max_model_len"], self.facts.context_length) if n]
        return EngineInfo(
            context_length=min(limits),
            vocab_size=min(self.facts.vocab_size, self._told["vocab_size"] or self.facts.vocab_size),
            eos_token_ids=self.facts.eos_token_ids,
            constraints=frozenset(FIELD),
            defers_constraints=self._defers_constraints,
            version=ready["vllm_version"],
            max_logprobs=self._max_logprobs,
            cache_salts=True,
            max_prompt_tokens=min(limits) - 1,
        )

    async def probe(self) -> None:
        await self.call("is_sleeping")

    async def call(self, method: str) -> Any:
        """What a method of the core gives, which answers between two steps. Raises `EngineError`."""
        self._next_call += 1
        call, answer = self._next_call, asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        try:
            self._send(UTILITY, [self._place.client, call, method, []])
            answered = await answer
        finally:
            del self._calls[call]
        if answered.result is None:
            raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine failed when it was asked.")
        return answered.result[1]

    def send(self, name: str, request: EngineRequest) -> None:
        routing, constraint = request.routing, request.constraint
        check_rank(request)
        lora = self._lora(routing.lora)
        row = self._messages.request.of({
            "request_id": name,
            "prompt_token_ids": request.token_ids,
            "sampling_params": sampling_map(request, self._ends),
            "arrival_time": time.time(),
            "lora_request": lora,
            "cache_salt": routing.cache_salt,
            "client_index": self._place.client,
            "priority": routing.priority or 0,
            "reasoning_ended": constraint and (constraint.covers_reasoning or not request.in_reasoning),
        })  # fmt: skip
        self._send(ADD, row)

    def send_abort(self, names: Collection[str]) -> None:
        """The core says nothing to an abort."""
        self._send(ABORT, list(names))

    def _send(self, kind: bytes, message: Any) -> None:
        self._input.send_multipart([CORE, kind, _encode(message)], zmq.NOBLOCK)

    def _lora(self, name: str | None) -> list[Any] | None:
        if name is None:
            return None
        if name not in self._loras:
            raise no_such_adapter()
        number, path = self._loras[name]
        return self._messages.lora.of({"lora_name": name, "lora_int_id": number, "lora_path": path})

    def _read(self, frames: list[bytes]) -> None:
        if frames == [DEAD]:
            self.went()
            return
        try:
            message = self._messages.read(frames[0])
        except msgspec.DecodeError:
            self.cannot_be_read()
            return
        now, strays = asyncio.get_running_loop().time(), []
        for output in message.outputs:
            run = self.runs.get(output.request_id)
            if run is None:
                if output.finish_reason is None and not output.request_id.startswith(self.front_end):
                    strays.append(output.request_id)  # of somebody who was here before us
                continue
            run.heard = now
            self._hand_on(run, output, frames)
        self.leave(strays)
        if (answered := message.utility_output) is not None:
            answer = self._calls.get(answered.call_id)
            if answer is not None and not answer.done():
                answer.set_result(answered)

    def _hand_on(self, run: WireRun, output: Any, frames: Sequence[bytes]) -> None:
        request, ids, ended = run.request, output.new_token_ids, output.finish_reason
        finish = None if ended is None else finish_of(ended, output.stop_reason, ids)
        if finish is None and ended is not None:
            self.fail(run, failure_of(request, fresh=run.fresh))
            return
        chunk = EngineChunk(ids, None, finish)
        try:
            if request.logprobs is not None:
                chunk.logprobs = read_logprobs(output.new_logprobs, frames, ids, request.logprobs)
        except EngineError as error:
            self.fail(run, error, abort=finish is None)
            return
        if run.fresh and output.prefill_stats is not None:
            chunk.prompt_tokens = len(request.token_ids)
            chunk.cached_tokens = cached_prompt_tokens(output.prefill_stats.num_cached_tokens, chunk.prompt_tokens)
        if ids or finish is not None:
            self.take(run, chunk)

    def went(self) -> None:
        super().went()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(broken())
