"""A model of the tests: it makes the same tokens for the same prompt, and misbehaves in the ways that it is told.

What is in here is true of any engine; how SGLang and vLLM spell it is in ``sglang_fake.py`` and ``vllm_fake.py``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paraserve.engines.base import TokenLogprob
from tests.waiting import PATIENCE

VOCAB = 1000
EOS = 2
SLOW = 900
"""A prompt that begins with this token has its first token late."""
LONG = 901
"""A prompt that begins with this token takes ten times as long for each token."""


@dataclass
class Behaviour:
    """How the next replies go. Counts are of events."""

    head_delay: float = 0.0
    """Seconds until the head of the answer, while the sequence runs already."""
    first_delay: float = 0.0
    slow_delay: float = PATIENCE
    delay: float = 0.0
    tokens_per_event: Sequence[int] = (1,)
    eos_after: int | None = None
    """Tokens before the model ends by itself (unless ``ignore_eos``)."""
    status: int = 200
    """The status of the answer, with ``message`` in the engine's own error body where it is no 200."""
    message: str = "refused"
    retryable: bool | None = None
    error_after: int | None = None
    """Events before an error event with ``error_status`` and ``message``."""
    error_status: int | None = 500
    abort_after: int | None = None
    """Events before the engine gives the sequence up, with ``error_status`` and ``message``."""
    silent_after: int | None = None
    garbage_after: int | None = None
    cut_after: int | None = None
    """Events before the connection breaks, in the middle of the next one."""
    end_after: int | None = None
    """Events before the answer ends properly, but without a finish."""
    framing: Literal["plain", "joined", "split", "drip"] = "plain"
    cached_tokens: int = 0


@dataclass
class Step:
    """The tokens of one event, and how the sequence ends with them."""

    new: list[int]
    ids: list[int]
    finish: Literal["stop", "length", "abort"] | None = None
    matched: int | None = None
    scored: Sequence[TokenLogprob] | None = None
    """Of ``ids``, from a model that is real."""
    scored_prompt: Sequence[TokenLogprob | None] | None = None
    cached: int | None = None
    refused: tuple[int, str] | None = None
    """The status and the reason with which the sequence is given up."""


@dataclass
class FakeModel:
    """Runs sequences, as the engine's scheduler would: independent of who listens."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    capacity: int = 1000
    vocab: int = VOCAB
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    dead: bool = False
    dice: Iterator[int] = field(default_factory=itertools.count)
    _slots: asyncio.Semaphore | None = None

    def reply_ids(self, prompt: Sequence[int], length: int = 512) -> list[int]:
        """What greedy sampling gives: no end token, another one for another prompt."""
        state = sum((index + 1) * token for index, token in enumerate(prompt)) + 7
        ids = []
        for _ in range(length):
            state = (state * 1103515245 + 12345) % (1 << 31)
            ids.append(10 + (state >> 8) % 800)
        return ids

    def start(self, name: str, prompt: Sequence[int], params: dict[str, Any]) -> asyncio.Queue[Step]:
        """Begin a sequence: ``params`` are ``max_tokens``, ``temperature``, ``seed``, ``stop_token_ids`` and
        ``ignore_eos``."""
        if self.dead or any(not 0 <= token < self.vocab for token in prompt):
            self.dead = True  # as SGLang on a CPU does
            raise ConnectionError("the engine is dead")
        if self._slots is None:
            self._slots = asyncio.Semaphore(self.capacity)
        steps: asyncio.Queue[Step] = asyncio.Queue()
        task = asyncio.create_task(self._run(list(prompt), params, steps))
        self.running[name] = task
        task.add_done_callback(lambda _: self.running.pop(name, None))
        return steps

    def abort(self, name: str) -> None:
        if name in self.running:
            self.running.pop(name).cancel()

    async def _run(self, prompt: list[int], params: dict[str, Any], steps: asyncio.Queue[Step]) -> None:
        assert self._slots is not None
        how, ids = self.behaviour, []
        try:
            async with self._slots:
                await asyncio.sleep(how.first_delay + (how.slow_delay if prompt[0] == SLOW else 0))
                if not params["max_tokens"]:
                    steps.put_nowait(Step([], [], "length"))
                for index, new in enumerate(self._batches(prompt, params)):
                    if how.silent_after is not None and index >= how.silent_after:
                        await asyncio.Event().wait()
                    finish, matched = self._end(ids + new, params)
                    ids = ids + new
                    steps.put_nowait(Step(new, ids, finish, matched))
                    # Even without a delay a real engine takes its time for each step.
                    await asyncio.sleep(how.delay or (0.02 if prompt[0] == LONG else 0.002))
        except asyncio.CancelledError:
            steps.put_nowait(Step([], ids, "abort"))

    def _batches(self, prompt: list[int], params: dict[str, Any]) -> list[list[int]]:
        if params.get("temperature", 0.0) > 0.0:
            seed = params.get("seed")
            prompt = [*prompt, next(self.dice) if seed is None else seed]
        ids = self.reply_ids(prompt, params["max_tokens"])
        if self.behaviour.eos_after is not None and not params["ignore_eos"]:
            ids = [*ids[: self.behaviour.eos_after], EOS]
        ids = ids[: params["max_tokens"]]
        stops = [index for index, token in enumerate(ids) if token in params["stop_token_ids"]]
        ids = ids[: stops[0] + 1] if stops else ids
        sizes, batches, at = list(self.behaviour.tokens_per_event), [], 0
        while at < len(ids):
            size = sizes[min(len(batches), len(sizes) - 1)]
            batches.append(ids[at : at + size])
            at += size
        return batches

    def _end(self, ids: list[int], params: dict[str, Any]) -> tuple[Literal["stop", "length"] | None, int | None]:
        if ids[-1] in params["stop_token_ids"] or (ids[-1] == EOS and not params["ignore_eos"]):
            return "stop", ids[-1]
        return ("length", None) if len(ids) >= params["max_tokens"] else (None, None)


def logprobs_of(token: int, top: int) -> list[tuple[int, float]]:
    """The ``top`` most likely tokens where ``token`` was sampled, best first. Every seventh token is no likely one."""
    best = token if token % 7 else (token + 500) % VOCAB
    return [((best + rank) % VOCAB, -0.5 - rank) for rank in range(top)]


def logprob_of(token: int) -> float:
    return -0.5 if token % 7 else -30.0


async def framed(events: AsyncIterator[bytes], how: Behaviour) -> AsyncIterator[bytes]:
    """The events as the pieces in which they leave."""
    held = b""
    async for event in events:
        wire = b"data: " + event + b"\n\n"
        match how.framing:
            case "plain":
                yield wire
            case "joined":
                held += wire
                if held.count(b"\n\n") == 2:
                    yield held
                    held = b""
            case "split":
                yield wire[: len(wire) // 2]
                await asyncio.sleep(0.002)
                yield wire[len(wire) // 2 :]
            case "drip":
                for at in range(0, len(wire), 7):
                    yield wire[at : at + 7]
                    await asyncio.sleep(0)
    if held:
        yield held
