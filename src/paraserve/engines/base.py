"""The engine contract: token ids in, new token ids out.

Everything behind this module is somebody else's program. It must never know about messages, templates, tools or
HTTP endpoints of ours. Tokens are pushed: an engine is asked to run a request for a `Sink`, calls it with what came, in
the turn in which that was read, and gives back the `Generation`, by which it is held back and ended. Three invariants:
a chunk holds only *new* tokens; a failure is an `EngineError`, never a chunk that looks like text; and no coroutine is
resumed for a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.start_error import StartError

ConstraintKind = Literal["json_schema", "json_object", "regex", "ebnf", "lark", "structural_tag"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the reply must match.

    ``value`` is the constraint's text: JSON for ``json_schema`` and ``structural_tag``, a pattern for ``regex``, a
    grammar for ``ebnf`` (GBNF-style EBNF as SGLang and vLLM take it) and ``lark`` (llguidance's Lark dialect), empty
    for ``json_object``. ``covers_reasoning`` says that the value already describes the reasoning part of the reply,
    so that an engine must apply it from the first token.
    """

    kind: ConstraintKind
    value: str = ""
    covers_reasoning: bool = False
    param: str = "response_format"
    """The field of the client's request that asked for it, for an error about it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every value is meant: an adapter sends all of them, so that no engine default shines through."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 is off (engines that spell it -1 get -1 from their adapter)."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Ends the reply beside the model's own end tokens. The matched id is in the last chunk's ``token_ids``."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RoutingHints:
    """What a client or router said about where a request should run; passed on, never invented."""

    priority: int | None = None
    lora: str | None = None
    data_parallel_rank: int | None = None
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None
    cache_salt: str | None = None
    """Prompts are cached for requests with the same salt only: others must not learn from the times what was asked."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One image, video or audio part in prompt order: a URL or a data URL, as the client sent it."""

    kind: Literal["image", "video", "audio"]
    url: str


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to generate (n is always 1: the layer fans out)."""

    request_id: str
    token_ids: Sequence[int]
    sampling: Sampling
    constraint: Constraint | None = None
    logprobs: int | None = None
    """None: not wanted. 0: of the sampled token. k: and the k most likely ones."""
    prompt_logprobs: bool = False
    """Wanted in the first chunk, with as many alternatives as ``logprobs``; only where the capability is there."""
    in_reasoning: bool = False
    """The reply starts inside reasoning or may open it (the effective thinking state, not the endpoint's name)."""
    media: Sequence[MediaItem] = ()
    routing: RoutingHints = field(default_factory=RoutingHints)
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the engine's own API that the operator allowed to pass through."""


LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot say, and for a score that an engine does not give: OpenAI's documented
value for a token that is very unlikely."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float
    top: Sequence[tuple[int, float]] = ()
    """The most likely (id, logprob) pairs, best first."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Why the engine ended a sequence. ``matched`` is the end token's id, where the engine says it."""

    reason: Literal["stop", "length", "abort"]
    matched: int | None = None


class EngineChunk(msgspec.Struct, gc=False):
    """What the engine has made since the last chunk: all that came together. Counts are None where the engine did not
    say. (A struct and no dataclass: one is made for every token.)"""

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprob] | None = None
    """One for each of ``token_ids``, when asked for."""
    finish: Finish | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_logprobs: Sequence[TokenLogprob | None] | None = None
    """One for each prompt token, None for the first."""


def joined(chunks: Sequence[EngineChunk]) -> EngineChunk:
    """Chunks that stand behind one another as one: of a count that several have the last, as a reader would."""
    if len(chunks) == 1:
        return chunks[0]
    whole = EngineChunk([token_id for chunk in chunks for token_id in chunk.token_ids])
    scored = [chunk.logprobs for chunk in chunks if chunk.logprobs is not None]
    whole.logprobs = [entry for entries in scored for entry in entries] if scored else None
    for chunk in chunks:
        whole.finish = chunk.finish or whole.finish
        if chunk.prompt_tokens is not None:
            whole.prompt_tokens = chunk.prompt_tokens
        if chunk.cached_tokens is not None:
            whole.cached_tokens = chunk.cached_tokens
        if chunk.prompt_logprobs is not None:
            whole.prompt_logprobs = chunk.prompt_logprobs
    return whole


@dataclass(frozen=True, slots=True)
class EngineInfo:
    context_length: int
    """Tokens of prompt and reply together."""
    vocab_size: int
    eos_token_ids: frozenset[int] = frozenset()
    constraints: frozenset[ConstraintKind] = frozenset()
    """The kinds of `Constraint` that this engine can obey."""
    defers_constraints: bool = False
    """Whether the engine itself holds a `Constraint` back until the reasoning has ended. Where it does not, a request
    with ``in_reasoning`` may only carry a constraint that ``covers_reasoning``; any other one is refused."""
    prompt_logprobs: bool = False
    media: frozenset[str] = frozenset()
    version: str = ""
    max_logprobs: int = 20
    """The most alternatives a token that the engine gives."""
    logit_bias: bool = True
    """Whether a bias reaches the engine."""
    cache_salts: bool = False
    """Whether the engine keeps the prompt caches of different salts apart."""
    max_prompt_tokens: int | None = None
    """The longest prompt that it takes; None where that is all of the context but the reply's first token."""
    seeds: bool = True
    """Whether a seed has an effect."""
    min_tokens: bool = True
    """Whether it can hold end tokens back until a reply has so many tokens."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    ok: bool
    reason: str = ""


@dataclass(slots=True)
class Availability:
    """Whether there is an engine at all, as far as those know who look after it. ``away`` says why there is none,
    ``last_token`` when it last made a token that was not seen here, in `time.perf_counter` seconds."""

    away: str = ""
    last_token: float = 0.0


class EngineError(Exception):
    """A failure of the engine, with the HTTP status it deserves.

    Args:
        status: 400 to 499 for a request that the engine refuses, 502/503/504 for its own failures.
        code: what ``error.code`` will be.
        message: safe to show to a client: no path, no repr, no stack.
        param: the field of the client's request that is to blame, where known.
    """

    def __init__(self, status: int, code: ErrorCode, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param


class EngineStartError(StartError):
    """The engine cannot start."""


class Sink(Protocol):
    """Where a generation's tokens go. Neither method raises, and either may abort the generation, or ask for another
    one, before it returns."""

    def take(self, chunk: EngineChunk) -> None:
        """What came together for the request, in the turn in which it was read."""
        ...

    def end(self, error: Exception | None) -> None:
        """Once, and nothing after it: None behind a chunk with a finish and in the same turn, an `EngineError`
        wherever the engine refused or failed. Any other exception is a fault of ours, for whoever reports those."""
        ...


class Generation(Protocol):
    """A request that an engine was asked for. Nothing is pushed from within a call of these, nor of `Engine.submit`."""

    def abort(self) -> None:
        """End it in the engine, unless it has ended. Returns at once and may be called again; nothing is pushed any
        more, not even an end. What tells the engine is on its way before a connection is dropped."""
        ...

    def pause(self) -> None:
        """Whoever reads falls behind: push no more than what has been read. An engine that cannot be held back may
        go on; the sink holds it, and the request's limit bounds it."""
        ...

    def resume(self) -> None: ...


class Engine(Protocol):
    @property
    def info(self) -> EngineInfo:
        """Known once `start` has returned."""
        ...

    @property
    def stranger(self) -> str:
        """The model that it runs instead of the one that it was started with; empty while that is the same."""
        ...

    async def start(self) -> None:
        """Load or connect, and learn `info`. Raises `EngineStartError`."""
        ...

    async def stop(self) -> None: ...

    async def health(self) -> EngineHealth: ...

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        """Run one sequence. Never raises, whatever is wrong with the request: it is told by `Sink.end`, in a later
        turn. Must be called in a running event loop."""
        ...
