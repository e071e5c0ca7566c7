"""SGLang 0.5.23's scheduler as its front end sees it: it connects to four sockets in a directory, sends one message a
step, and checks nothing but lengths and grammars.

Its structs have the fields that are used, among some that are not: how they lie is told, as the launcher tells it. As a
program (``sglang_scheduler.py DIRECTORY FLAG…``) it stands in the launcher's place.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from paraserve.engines.sglang.launcher import fields
from tests.fakes.sequences import EOS, VOCAB, FakeModel, Step, logprob_of, logprobs_of
from tests.fakes.sglang_checks import bad_json

STEP_SECONDS = 0.002
Ext = msgspec.msgpack.Ext


class SamplingParams(msgspec.Struct, kw_only=True, array_like=True):
    max_new_tokens: int | None = 128
    stop: str | list[str] | None = None
    stop_token_ids: set[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 1 << 30
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_new_tokens: int = 0
    n: int = 1
    beam_width: int | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    stream_interval: int | None = None
    logit_bias: dict[str, float] | None = None
    sampling_seed: int | None = None
    stop_strs: str | list[str] | None = None
    stop_regex_strs: str | list[str] | None = None
    stop_str_max_len: int = 0
    is_normalized: bool = False


class BaseReq(msgspec.Struct, tag=True, kw_only=True, array_like=True):
    rid: str | None = None
    http_worker_ipc: str | None = None


class TokenizedGenerateReqInput(BaseReq, kw_only=True):
    input_text: str | None
    input_ids: Ext | None
    input_embeds: list[Any] | None
    mm_inputs: Any
    token_type_ids: list[int] | None
    sampling_params: SamplingParams
    return_logprob: bool
    logprob_start_len: int
    top_logprobs_num: int
    token_ids_logprob: list[int] | None
    stream: bool
    return_sampling_mask: bool = False
    lora_id: str | None = None
    require_reasoning: bool = False
    priority: int | None = None
    cache_salt: str | None = None


class AbortReq(BaseReq, kw_only=True):
    abort_all: bool = False
    finished_reason: dict[str, Any] | None = None
    abort_message: str | None = None


class HealthCheckOutput(BaseReq, kw_only=True):
    pass


class BatchTokenIDOutput(msgspec.Struct, tag=True, kw_only=True, array_like=True):
    rids: list[str] | None = None
    http_worker_ipcs: list[str | None] | None = None
    finished_reasons: list[dict[str, Any] | None]
    decoded_texts: list[str]
    output_ids: list[Ext] | None
    prompt_tokens: list[int]
    cached_tokens: list[int]
    input_token_logprobs_val: list[Any] | None
    input_token_logprobs_idx: list[Any] | None
    output_token_logprobs_val: list[Any] | None
    output_token_logprobs_idx: list[Any] | None
    input_top_logprobs_val: list[Any] | None
    input_top_logprobs_idx: list[Any] | None
    output_top_logprobs_val: list[Any] | None
    output_top_logprobs_idx: list[Any] | None
    time_stats: Any = None


STRUCTS = (TokenizedGenerateReqInput, AbortReq, BatchTokenIDOutput, SamplingParams)
_asked = msgspec.msgpack.Decoder(TokenizedGenerateReqInput | AbortReq).decode


@dataclass
class FakeScheduler:
    """``requests`` are what was asked, ``aborts`` the names that were to be aborted."""

    model: FakeModel = field(default_factory=FakeModel)
    max_req_input_len: int = 4090
    requests: list[TokenizedGenerateReqInput] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    """It connects before, and listens when its model is loaded."""
    context: Any = None
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)

    def told(self, **changes: Any) -> dict[str, Any]:
        """What the launcher writes."""
        facts = {"context_length": 4096, "max_req_input_len": self.max_req_input_len, "max_total_num_tokens": 9000}
        facts |= {"page_size": 1, "grammar_backend": "xgrammar", "reasoning_parser": None, "version": "0.5.23"}
        facts |= {"enable_deterministic_inference": False, "vocab_size": None}
        return facts | {"layout": {each.__name__: fields(each) for each in STRUCTS}} | changes

    def dial(self, directory: str, *, loaded: bool = True) -> None:
        (self.loaded.set if loaded else self.loaded.clear)()
        self.context = zmq.asyncio.Context()
        self.asks, self.says, self.tells = (self.context.socket(kind) for kind in (zmq.PULL, zmq.PUSH, zmq.PUSH))
        for each, name in ((self.asks, "input"), (self.says, "tokens"), (self.tells, "answers")):
            each.connect(f"ipc://{directory}/{name}")
        self.tasks += [asyncio.ensure_future(self._listen()), asyncio.ensure_future(self._step())]

    def die(self) -> None:
        """As by SIGKILL: its sockets are gone."""
        for task in [*self.tasks, *self.model.running.values()]:
            task.cancel()
        self.tasks.clear()
        self.model.running.clear()
        if self.context is not None:
            self.context.destroy(linger=0)
            self.context = None

    async def _listen(self) -> None:
        await self.loaded.wait()
        while True:
            message = _asked(await self.asks.recv())
            if isinstance(message, AbortReq):
                assert message.rid
                self.aborts.append(message.rid)
                for name in [name for name in self.model.running if name.startswith(message.rid)]:
                    self.model.abort(name)
            elif message.rid is not None and message.rid.startswith("HEALTH_CHECK"):
                await self.tells.send(msgspec.msgpack.encode(HealthCheckOutput()))
            else:
                self._add(message)

    def _add(self, asked: TokenizedGenerateReqInput) -> None:
        params, how = asked.sampling_params, self.model.behaviour
        assert params.is_normalized
        assert params.top_k >= 1
        assert asked.input_ids is not None
        self.requests.append(asked)
        prompt = ids_of(asked.input_ids)
        if how.status != 200:
            reason = {"type": "abort", "message": how.message, "status_code": how.status, "err_type": "x"}
            self.tasks.append(asyncio.ensure_future(self._give_up(str(asked.rid), reason)))
            return
        if len(prompt) >= self.max_req_input_len:
            self._refuse(asked, f"Input length ({len(prompt)} tokens) exceeds the maximum allowed length")
            return
        for name in ("json_schema", "structural_tag"):
            if (value := getattr(params, name)) is not None and (bad := bad_json(value)):
                self._refuse(asked, f"Failed to compile {name} grammar: {bad}")
                return
        if params.regex == "(":
            self._refuse(asked, "Failed to compile regex grammar: unclosed group")
            return
        run = {"max_tokens": params.max_new_tokens, "temperature": 0.0 if params.top_k == 1 else params.temperature}
        stops = () if params.ignore_eos else params.stop_token_ids or ()
        run |= {"seed": params.sampling_seed, "ignore_eos": params.ignore_eos, "stop_token_ids": stops}
        steps = self.model.start(str(asked.rid), prompt, run)
        self.tasks.append(asyncio.ensure_future(self._run(asked, len(prompt), steps)))

    async def _give_up(self, name: str, reason: dict[str, Any]) -> None:
        await self.tells.send(msgspec.msgpack.encode(AbortReq(rid=name, finished_reason=reason)))

    def _refuse(self, asked: TokenizedGenerateReqInput, message: str) -> None:
        reason = {"type": "abort", "message": message, "status_code": 400, "err_type": "BadRequestError"}
        self._put(asked, 0, Step([], []), reason)

    async def _run(self, asked: TokenizedGenerateReqInput, length: int, steps: asyncio.Queue[Step]) -> None:
        how, index = self.model.behaviour, 0
        while True:
            step = await steps.get()
            if how.error_after == index:
                given_up = {"type": "abort", "message": how.message, "status_code": how.error_status, "err_type": "x"}
                self._put(asked, length, Step([], []), given_up)
                self.model.abort(str(asked.rid))
                return
            if how.garbage_after == index:
                await self.says.send(b"\x93\xb2BatchTokenIDOutput\x00\xc1")
            reason: dict[str, Any] | None = None
            if step.finish == "stop":
                reason = {"type": "stop", "matched": step.matched}
            if step.finish == "length":
                reason = {"type": "length", "length": len(step.ids)}
            if step.finish == "abort":
                reason = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
            self._put(asked, length, step, reason, first=not index)
            index += 1
            if reason is not None:
                return

    def _put(
        self, asked: TokenizedGenerateReqInput, length: int, step: Step, reason: Any, *, first: bool = False
    ) -> None:
        top = asked.top_logprobs_num
        row: dict[str, Any] = {name: [] for name in SCORES}
        if asked.return_logprob:
            row |= {"output_token_logprobs_idx": step.new, "output_token_logprobs_val": [*map(logprob_of, step.new)]}
            if top:
                ranked = [logprobs_of(token, top) for token in step.new]
                row["output_top_logprobs_idx"] = [[token for token, _ in each] for each in ranked]
                row["output_top_logprobs_val"] = [[value for _, value in each] for each in ranked]
            if first and asked.logprob_start_len == 0 and asked.input_ids is not None:
                prompt = ids_of(asked.input_ids)
                row |= {"input_token_logprobs_idx": prompt, "input_token_logprobs_val": [None, *[-1.0] * (length - 1)]}
        row |= {"rids": asked.rid, "finished_reasons": reason, "output_ids": packed(step.new), "decoded_texts": ""}
        row |= {"prompt_tokens": length, "cached_tokens": self.model.behaviour.cached_tokens}
        self.pending.append(row)

    async def _step(self) -> None:
        """Everything that has been made meanwhile, in one message."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            if rows := self.pending:
                self.pending = []
                columns = {name: [row[name] for row in rows] for name in rows[0]}
                await self.says.send(msgspec.msgpack.encode(BatchTokenIDOutput(**columns)))


SCORES = [name for name in BatchTokenIDOutput.__struct_fields__ if "logprobs" in name]


def ids_of(ids: Ext) -> list[int]:
    (about,) = struct.unpack_from(">I", ids.data)
    data = bytes(ids.data)
    assert data[4 : 4 + about] == b"\xa1q"
    return array("q", data[4 + about :]).tolist()


def packed(ids: Sequence[int]) -> Ext:
    return Ext(1, struct.pack(">I", 2) + b"\xa1q" + array("q", ids).tobytes())


async def main(directory: Path) -> None:
    fake = FakeScheduler()
    fake.dial(str(directory))
    part = directory / "ready.part"
    await asyncio.to_thread(part.write_text, json.dumps(fake.told()))
    await asyncio.to_thread(part.rename, directory / "ready.json")
    await asyncio.Event().wait()


if __name__ == "__main__":
    assert (VOCAB, EOS) == (1000, 2)
    asyncio.run(main(Path(sys.argv[1])))
