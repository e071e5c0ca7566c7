"""A test engine: it replays token streams that a test or a benchmark wrote down, and records what it was asked.

It makes no text of its own and never knows how a reply will be parsed. Two invariants: the same script and the same
order of requests give the same chunks, and what real engines do to every request (the token limit, stop ids, end
tokens) is done here too, so that a script cannot pass a test that no engine could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat

from paraserve.engines.base import (
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    Finish,
    Generation,
    Sink,
    TokenLogprob,
    joined,
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
    """Chunks before ``error``; 0 fails before anything was sent. A limit or end token before it saves the reply."""
    hang_after: int | None = None
    """Chunks after which nothing comes any more, unless a limit has ended it; 0 never answers."""
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
    """Ids of requests that were aborted before their end."""
    running: int = 0
    """Sequences that run or wait."""
    most_running: int = 0

    def __post_init__(self) -> None:
        self._in_order = [r for r in self.replies if r.prompt_prefix is None and r.when is None]
        self._by_rule = [r for r in self.replies if not (r.prompt_prefix is None and r.when is None)]
        self._next = 0
        self._placed = 0
        self._waiting: dict[_Replay, None] = {}
        """In the order in which they came."""

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def health(self) -> EngineHealth:
        return self.health_answer

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        """The reply is picked at the call, so that the order of calls alone decides who gets which."""
        if self.record:
            self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        replay = _Replay(self, request, self._pick(request), sink)
        if self.capacity is not None and self._placed >= self.capacity:
            self._waiting[replay] = None
        else:
            self._placed += 1
            replay.begin()
        return replay

    def leave(self, replay: _Replay, *, aborted: bool) -> None:
        """One that ran or waited is over."""
        self.running -= 1
        if aborted and self.record:
            self.aborted.append(replay.request.request_id)
        if replay in self._waiting:
            del self._waiting[replay]
        elif self._waiting:
            following = next(iter(self._waiting))
            del self._waiting[following]
            following.begin()
        else:
            self._placed -= 1

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

    def refuse(self, request: EngineRequest) -> None:
        if request.constraint is not None and request.constraint.kind not in self.info.constraints:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, f"this engine has no constraint of kind {request.constraint.kind}"
            )
        if request.prompt_logprobs and not self.info.prompt_logprobs:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, "this engine gives no logprobs of the prompt", param="echo"
            )


class _Replay:
    """One reply while it is replayed: a timer and no task, as no engine has one for each of its sequences."""

    def __init__(self, engine: ScriptedEngine, request: EngineRequest, reply: ScriptedReply, sink: Sink) -> None:
        self.request = request
        self._engine = engine
        self._reply = reply
        self._sink = sink
        self._over = self._paused = self._withheld = False
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self._chunks: Iterator[EngineChunk] = iter(())

    def begin(self) -> None:
        loop, reply = asyncio.get_running_loop(), self._reply
        try:
            self._engine.refuse(self.request)
        except EngineError as error:
            self._timer = loop.call_soon(self._end, error)
            return
        self._due = loop.time() + reply.first_delay
        if reply.in_step and reply.delay:
            self._due += reply.delay - self._due % reply.delay
        self._chunks = islice(_chunks(self.request, reply, self._engine.info), reply.ends_after)
        self._await_turn()

    def _await_turn(self) -> None:
        """Deadlines are absolute, so that pacing does not drift. Without a pace others run before each burst."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._due, self._step) if self._due > loop.time() else loop.call_soon(self._step)

    def _step(self) -> None:
        """Push all whose time has come, as they pile up behind a reader who is late."""
        self._timer = None
        if self._paused:
            self._withheld = True
            return
        reply, now = self._reply, asyncio.get_running_loop().time()
        due: list[EngineChunk] = []
        while True:
            burst = list(islice(self._chunks, reply.burst))
            due += burst
            self._due += reply.delay
            if len(burst) < reply.burst or not reply.delay or self._due > now:
                break
        if due:
            self._sink.take(joined(due))
        if self._over:
            return
        if due and due[-1].finish is not None:
            self._end(None)
        elif len(burst) == reply.burst:
            self._await_turn()
        elif not reply.hangs:
            # With its traceback it would keep every request's frames.
            self._end(None if reply.error is None else reply.error.with_traceback(None))

    def _end(self, error: EngineError | None) -> None:
        self._over, self._timer = True, None
        self._engine.leave(self, aborted=False)
        self._sink.end(error)

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self._engine.leave(self, aborted=True)
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._withheld:
            self._withheld = False
            self._await_turn()


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
    return ids, None if reply.hangs or reply.error is not None else reply.finish


def _made_up(token_id: int, index: int, top: int, info: EngineInfo) -> TokenLogprob:
    first = -0.0625 * (1 + index % 8)
    others = [((token_id + rank) % info.vocab_size, first - rank) for rank in range(top)]
    return TokenLogprob(token_id, first, others)


def _prompt_logprobs(request: EngineRequest, info: EngineInfo) -> list[TokenLogprob | None]:
    entries = [_made_up(t, i, request.logprobs or 0, info) for i, t in enumerate(request.token_ids)]
    return [None, *entries[1:]]
