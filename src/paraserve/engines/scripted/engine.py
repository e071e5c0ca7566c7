"""A test engine: it replays token streams that a test or a benchmark wrote down, and records what it was asked.

It makes no text of its own and never knows how a reply will be parsed. Two invariants: the same script and the same
order of requests give the same chunks, and what real engines do to every request (the token limit, stop ids, end
tokens) is done here too, so that a script cannot pass a test that no engine could.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat

from paraserve.engines.base import (
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    Finish,
    TokenLogprob,
)
from paraserve.protocol.error_codes import ErrorCode

DEFAULT_INFO = EngineInfo(context_length=8192, vocab_size=65536, version="scripted")
STOPPED = Finish("stop")
WELL = EngineHealth(True)


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply, and which request gets it.

    A reply with ``prompt_prefix`` or ``when`` answers every request that matches it; replies without either are given
    in order, from the first again at the end.
    """

    token_ids: Sequence[int] = ()
    chunk_sizes: Sequence[int] = (1,)
    """Tokens per chunk; the last size goes on."""
    first_delay: float = 0.0
    """Seconds before the first chunk."""
    delay: float = 0.0
    """Seconds between chunks."""
    burst: int = 1
    """Chunks that are there at once, as when one network read holds several; ``delay`` is between bursts."""
    in_step: bool = False
    """Chunks come at moments that all replies share, as from an engine that decodes them in one batch."""
    finish: Finish | None = STOPPED
    """How the reply ends when no limit, stop id or end token cuts it. None: the stream just ends, without a finish."""
    error: EngineError | None = None
    error_after: int = 0
    """Chunks before ``error``; 0 fails before anything was sent."""
    hang_after: int | None = None
    """Chunks after which nothing comes any more; 0 is an engine that never answers."""
    logprobs: Sequence[TokenLogprob] | None = None
    """One per token. None: made up when asked for, falling slowly, the alternatives being the ids that follow."""
    cached_tokens: int | None = None
    prompt_prefix: Sequence[int] | None = None
    when: str | None = None
    """Text that the decoded prompt has in it; the engine needs ``decode`` for it."""

    @property
    def hangs(self) -> bool:
        """Whether it hangs: an error that comes before that saves it."""
        return self.hang_after is not None and (self.error is None or self.hang_after <= self.error_after)

    @property
    def ends_after(self) -> int | None:
        """Chunks after which it hangs or fails, None for all that there are."""
        if self.hangs:
            return self.hang_after
        return None if self.error is None else self.error_after


@dataclass
class ScriptedEngine:
    """An `Engine` that replays ``replies``.

    Args:
        capacity: sequences that run at once; later ones wait. None is no limit.
        repeat: start over when the replies in order are used up; False answers 500 then.
        decode: token ids to text, for replies with ``when``.
    """

    replies: Sequence[ScriptedReply]
    info: EngineInfo = DEFAULT_INFO
    capacity: int | None = None
    repeat: bool = True
    decode: Callable[[Sequence[int]], str] | None = None
    health_answer: EngineHealth = WELL
    stranger: str = ""
    record: bool = True
    """Keep ``requests`` and ``aborted``. A server that runs for long must not."""
    requests: list[EngineRequest] = field(default_factory=list)
    """Every request, in the order of the calls."""
    aborted: list[str] = field(default_factory=list)
    """Ids of requests whose iterator was closed before its end."""
    running: int = 0
    """Sequences that run or wait."""
    most_running: int = 0

    def __post_init__(self) -> None:
        self._in_order = [r for r in self.replies if r.prompt_prefix is None and r.when is None]
        self._by_rule = [r for r in self.replies if not (r.prompt_prefix is None and r.when is None)]
        self._next = 0
        self._slots = asyncio.Semaphore(self.capacity) if self.capacity else nullcontext()

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def health(self) -> EngineHealth:
        return self.health_answer

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineChunk]:
        """The reply is picked at the call, so that the order of calls alone decides who gets which."""
        if self.record:
            self.requests.append(request)
        return self._run(request, self._pick(request))

    def _pick(self, request: EngineRequest) -> ScriptedReply:
        prompt = list(request.token_ids)
        text = self.decode(prompt) if self.decode is not None and self._by_rule else None
        for reply in self._by_rule:
            prefix = reply.prompt_prefix
            if prefix is not None and prompt[: len(prefix)] != list(prefix):
                continue
            if reply.when is not None and (text is None or reply.when not in text):
                continue
            return reply
        if not self._in_order or (self._next >= len(self._in_order) and not self.repeat):
            return ScriptedReply(
                error=EngineError(500, ErrorCode.ENGINE_ERROR, "the script has no reply for this request")
            )
        reply = self._in_order[self._next % len(self._in_order)]
        self._next += 1
        return reply

    async def _run(self, request: EngineRequest, reply: ScriptedReply) -> AsyncIterator[EngineChunk]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            async with self._slots:
                self._refuse(request)
                clock = asyncio.get_running_loop().time
                due, delay, burst = clock() + reply.first_delay, reply.delay, reply.burst
                if reply.in_step and delay:
                    due += delay - due % delay
                chunks = _chunks(request, reply, self.info)
                until = reply.ends_after
                for sent, chunk in enumerate(chunks if until is None else islice(chunks, until)):
                    if not sent % burst:
                        # Deadlines are absolute, so that pacing does not drift: chunks whose time has passed are there
                        # at once, as they pile up behind a reader who is late. Without a pace others run before each.
                        if (early := due - clock()) > 0 or not delay:
                            await asyncio.sleep(max(0.0, early))
                        due += delay
                    yield chunk
                if reply.hangs:
                    await asyncio.Event().wait()
                if reply.error is not None:
                    if (early := due - clock()) > 0 or not delay:
                        await asyncio.sleep(max(0.0, early))
                    raise reply.error.with_traceback(None)  # else it would keep every request's frames
        except (GeneratorExit, asyncio.CancelledError):
            if self.record:
                self.aborted.append(request.request_id)
            raise
        finally:
            self.running -= 1

    def _refuse(self, request: EngineRequest) -> None:
        if request.constraint is not None and request.constraint.kind not in self.info.constraints:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, f"this engine has no constraint of kind {request.constraint.kind}"
            )
        if request.prompt_logprobs and not self.info.prompt_logprobs:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, "this engine gives no logprobs of the prompt", param="echo"
            )


def _chunks(request: EngineRequest, reply: ScriptedReply, info: EngineInfo) -> Iterator[EngineChunk]:
    ids, finish = _cut(request, reply, info)
    first = EngineChunk((), prompt_tokens=len(request.token_ids), cached_tokens=reply.cached_tokens)
    if request.prompt_logprobs:
        first.prompt_logprobs = _prompt_logprobs(request, info)
    logprobs = reply.logprobs
    if request.logprobs is not None and logprobs is None:
        logprobs = [_made_up(token_id, index, request.logprobs, info) for index, token_id in enumerate(ids)]
    chunk, begin = first, 0
    for size in chain(reply.chunk_sizes, repeat(reply.chunk_sizes[-1])):
        end = begin + max(1, size)
        chunk.token_ids = ids[begin:end]
        if request.logprobs is not None and logprobs is not None:
            chunk.logprobs = [replace(entry, top=entry.top[: request.logprobs]) for entry in logprobs[begin:end]]
        if end >= len(ids):
            break
        yield chunk
        chunk, begin = EngineChunk(()), end
    chunk.finish = finish
    yield chunk


def _cut(request: EngineRequest, reply: ScriptedReply, info: EngineInfo) -> tuple[list[int], Finish | None]:
    """The ids that the request's limit, stop ids and the model's end tokens leave of the script."""
    sampling = request.sampling
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else info.eos_token_ids)
    ids = list(reply.token_ids)
    for index, token_id in enumerate(ids[: sampling.max_tokens]):
        if token_id in stops and index + 1 > sampling.min_tokens:
            return ids[: index + 1], Finish("stop", token_id)
    if len(ids) >= sampling.max_tokens:
        return ids[: sampling.max_tokens], Finish("length")
    return ids, reply.finish


def _made_up(token_id: int, index: int, top: int, info: EngineInfo) -> TokenLogprob:
    first = -0.0625 * (1 + index % 8)
    others = [((token_id + rank) % info.vocab_size, first - rank) for rank in range(top)]
    return TokenLogprob(token_id, first, others)


def _prompt_logprobs(request: EngineRequest, info: EngineInfo) -> list[TokenLogprob | None]:
    entries = [_made_up(t, i, request.logprobs or 0, info) for i, t in enumerate(request.token_ids)]
    return [None, *entries[1:]]
