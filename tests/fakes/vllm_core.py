"""vLLM 0.32's core as its front ends see it: it dials in, sends one message a step, and does not survive what the real
one does not.

The structs are those of a package directory, read from their source: another release is another directory.

    python vllm_core.py serve MODEL --headless --data-parallel-rpc-port PORT [--behaviour JSON] [--load-seconds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.sequences import EOS, VOCAB, FakeModel, Step, logprob_of, logprobs_of
from tests.fakes.sglang_checks import bad_json

PACKAGE = Path(__file__).parent / "vllm_package"
STOP, LENGTH, ABORT, ERROR = range(4)
STEP_SECONDS = 0.002
INLINE_BYTES = 256
"""Arrays of this size or more go into frames of their own."""


def structs_of(package: Path) -> dict[str, Any]:
    """The classes that a package's sources declare."""
    found: dict[str, Any] = {}
    for file in ("sampling_params.py", "lora/request.py", "v1/engine/__init__.py"):
        space: dict[str, Any] = {"__name__": f"fake_{package.name}_{file}"}
        sys.modules[space["__name__"]] = type(sys)(space["__name__"])
        space = sys.modules[space["__name__"]].__dict__
        exec(compile((package / file).read_text(), str(package / file), "exec"), space)
        found |= {name: value for name, value in space.items() if isinstance(value, type)}
    return found


@dataclass
class FakeCore:
    """``requests`` are what was asked, ``aborts`` the ids that were to be aborted."""

    model: FakeModel = field(default_factory=FakeModel)
    package: Path = PACKAGE
    max_model_len: int = 4096
    vocab: int = VOCAB
    requests: list[Any] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    probes: bool = True
    """Whether it answers between its steps."""
    deaf: bool = False
    """Whether the thread that reads requests has died of one."""
    context: Any = None
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    pending: dict[int, list[tuple[Any, int, bool]]] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)

    async def dial(self, port: int, identity: bytes = b"\0\0") -> None:
        """Returns when it is ready."""
        self.structs, self.deaf = structs_of(self.package), False
        self.context = zmq.asyncio.Context()
        handshake = self._socket(zmq.DEALER, f"tcp://127.0.0.1:{port}", identity)
        await handshake.send(msgspec.msgpack.encode({"status": "HELLO", "local": False, "headless": True}))
        told = msgspec.msgpack.decode(await handshake.recv())
        assert told["addresses"]["inputs"]
        inputs = [self._socket(zmq.DEALER, address, identity) for address in told["addresses"]["inputs"]]
        self.outputs = [self._socket(zmq.PUSH, address) for address in told["addresses"]["outputs"]]
        ready = {"max_model_len": self.max_model_len, "num_gpu_blocks": 9, "vllm_version": "0.32.0", "max_loras": 0}
        for each in inputs:
            await each.send(msgspec.msgpack.encode(ready))
            self.tasks.append(asyncio.ensure_future(self._listen(each)))
        self.tasks.append(asyncio.ensure_future(self._step()))
        await handshake.send(msgspec.msgpack.encode({"status": "READY", "local": False, "headless": True}))

    def die(self) -> None:
        """As by SIGKILL: its sockets are gone."""
        for task in [*self.tasks, *self.model.running.values()]:
            task.cancel()
        self.tasks.clear()
        self.model.running.clear()
        if self.context is not None:
            self.context.destroy(linger=0)
            self.context = None

    def _socket(self, kind: int, address: str, identity: bytes | None = None) -> Any:
        made = self.context.socket(kind)
        made.set_hwm(0)
        if identity is not None:
            made.identity = identity
        made.connect(address)
        return made

    async def _listen(self, each: Any) -> None:
        while not self.deaf:
            kind, payload, *_ = await each.recv_multipart()
            if kind == b"\x00":
                try:
                    self._add(payload)
                except (msgspec.DecodeError, ValueError) as error:
                    print("the thread that reads requests has died:", error, file=sys.stderr)  # noqa: T201
                    self.deaf = True
            elif kind == b"\x01":
                for name in msgspec.msgpack.decode(payload):
                    self.aborts.append(name)
                    self.model.abort(name)
            elif kind == b"\x03" and self.probes:
                client, call, method, arguments = msgspec.msgpack.decode(payload)
                assert (method, arguments) == ("is_sleeping", [])
                answer = self.structs["UtilityOutput"](call, None, [None, False])
                await self._send(client, self.structs["EngineCoreOutputs"](utility_output=answer))

    def _add(self, payload: bytes) -> None:
        asked = msgspec.msgpack.decode(payload, type=self.structs["EngineCoreRequest"])
        params = msgspec.convert(asked.sampling_params, self.structs["SamplingParams"])
        if asked.lora_request is not None:
            msgspec.convert(asked.lora_request, self.structs["LoRARequest"])
        self.requests.append(asked)
        length = len(asked.prompt_token_ids)
        reaches = [*asked.prompt_token_ids, *(params.stop_token_ids or ()), *(params.logit_bias or ())]
        if (
            not 0 < length < self.max_model_len
            or params.max_tokens is None
            or length + params.max_tokens > self.max_model_len
            or not all(0 <= token < self.vocab for token in reaches)
        ):
            self.tasks.append(asyncio.ensure_future(self._say_dead()))
            return
        if (outputs := params.structured_outputs) is not None:
            bad = any(bad_json(value) for value in (outputs.json, outputs.structural_tag) if value is not None)
            if bad or outputs._backend != "xgrammar" or outputs.regex == "(":
                self._put(asked.client_index, asked.request_id, Step([], [], None), ended=ERROR)
                return
        how = {name: getattr(params, name) for name in ("max_tokens", "temperature", "seed", "ignore_eos")}
        steps = self.model.start(
            asked.request_id, asked.prompt_token_ids, how | {"stop_token_ids": params.stop_token_ids}
        )
        self.tasks.append(asyncio.ensure_future(self._run(asked, params, steps)))

    async def _run(self, asked: Any, params: Any, steps: asyncio.Queue[Step]) -> None:
        how, index = self.model.behaviour, 0
        while True:
            step = await steps.get()
            if step.finish == "abort":
                return  # the core says nothing to an abort
            if how.error_after == index:
                self._put(asked.client_index, asked.request_id, Step([], []), ended=ERROR)
                self.model.abort(asked.request_id)
                return
            if how.abort_after == index:
                self._put(asked.client_index, asked.request_id, Step([], []), ended=ABORT)
                self.model.abort(asked.request_id)
                return
            if how.garbage_after == index:
                await self.outputs[asked.client_index].send(b"\x93\x00\xc1")
            self._put(asked.client_index, asked.request_id, step, first=not index, wanted=params.logprobs)
            index += 1
            if step.finish is not None:
                return

    def _put(
        self, client: int, name: str, step: Step, *, first: bool = False, wanted: int | None = None, ended: Any = None
    ) -> None:
        if step.finish is not None:
            ended = STOP if step.finish == "stop" else LENGTH
        output = self.structs["EngineCoreOutput"](
            name,
            step.new,
            finish_reason=ended,
            stop_reason=None if step.matched == EOS else step.matched,
            events=[{"type": 1, "timestamp": 1.5}] if first else None,
            prefill_stats={"num_prompt_tokens": 9, "num_cached_tokens": self.model.behaviour.cached_tokens}
            if first
            else None,
        )
        self.pending.setdefault(client, []).append((output, -1 if wanted is None else wanted, bool(step.new)))

    async def _step(self) -> None:
        """Everything that has been made meanwhile, in one message for each front end."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            made, self.pending = self.pending, {}
            for client, rows in made.items():
                frames: list[bytes] = [b""]
                for output, wanted, new in rows:
                    if wanted >= 0 and new:
                        output.new_logprobs = scores(output.new_token_ids, wanted, frames)
                stats = {"num_running_reqs": len(self.model.running), "kv_cache_usage": 0.5}
                message = self.structs["EngineCoreOutputs"](
                    outputs=[output for output, *_ in rows], scheduler_stats=stats, timestamp=1.5
                )
                frames[0] = msgspec.msgpack.encode(message)
                await self.outputs[client].send_multipart(frames)

    async def _send(self, client: int, message: Any) -> None:
        await self.outputs[client].send_multipart([msgspec.msgpack.encode(message)])

    async def _say_dead(self) -> None:
        self.deaf = True
        for output in self.outputs:
            await output.send(b"ENGINE_CORE_DEAD")


def scores(ids: Sequence[int], wanted: int, frames: list[bytes]) -> list[Any]:
    """``LogprobsLists``: the sampled token in the first column, then the most likely ones."""
    rows = [[(token, logprob_of(token)), *logprobs_of(token, wanted)] for token in ids]
    shape = [len(ids), wanted + 1]

    def packed(kind: str, code: str, values: list[Any], shape: list[int]) -> list[Any]:
        raw = array(code, values).tobytes()
        if len(raw) < INLINE_BYTES:
            return [kind, shape, msgspec.msgpack.Ext(3, raw)]
        frames.append(raw)
        return [kind, shape, len(frames) - 1]

    return [
        packed("<i4", "i", [token for row in rows for token, _ in row], shape),
        packed("<f4", "f", [value for row in rows for _, value in row], shape),
        packed("<i8", "q", [1] * len(ids), [len(ids)]),
        None,
    ]


ARGUMENTS = argparse.ArgumentParser(description="The fake core as the program vllm.", allow_abbrev=False)
ARGUMENTS.add_argument("--data-parallel-rpc-port", type=int, required=True)
ARGUMENTS.add_argument("--load-seconds", type=float, default=0.0)
ARGUMENTS.add_argument("--behaviour", type=json.loads, default={}, help="fields of Behaviour, as JSON")


async def run(options: Mapping[str, Any]) -> None:
    core = FakeCore()
    for name, value in options["behaviour"].items():
        setattr(core.model.behaviour, name, value)
    await asyncio.sleep(options["load_seconds"])
    await core.dial(options["data_parallel_rpc_port"])
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(vars(ARGUMENTS.parse_known_args()[0])))
