"""The file form of a script for the test engine (``--engine scripted --engine-script PATH``): YAML or JSON.

Never knows a tokenizer: the server hands in ``encode`` and ``decode``. One invariant: a file that is not understood in
full is refused, with the path of the field that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from paraserve.engines.base import ConstraintKind, EngineError, EngineInfo, EngineStartError, Finish
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.protocol.error_codes import ErrorCode


class ScriptedFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: int = 502
    code: ErrorCode = ErrorCode.ENGINE_ERROR
    message: str = "the engine failed"
    retryable: bool = False
    """Of no effect any longer, as `Script.model`."""
    after: int = 0
    """Chunks before it."""


class ReplyEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str | None = None
    token_ids: list[int] | None = None
    chunk: int | list[int] = 1
    first_delay: float = 0.0
    delay: float = 0.0
    burst: int = 1
    in_step: bool = False
    finish: Literal["stop", "length", "abort", "none"] = "stop"
    error: ScriptedFailure | None = None
    hang_after: int | None = None
    cached_tokens: int | None = None
    when: str | None = None
    prompt_prefix: list[int] | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replies: list[ReplyEntry]
    model: str = "scripted"
    context_length: int = 8192
    vocab_size: int | None = None
    eos_token_ids: list[int] | None = None
    constraints: list[ConstraintKind] = []
    prompt_logprobs: bool = False
    capacity: int | None = None
    repeat: bool = True


def scripted_engine(
    path: Path,
    *,
    encode: Callable[[str], list[int]],
    decode: Callable[[Sequence[int]], str] | None = None,
    vocab_size: int = 65536,
    eos_token_ids: Sequence[int] = (),
) -> ScriptedEngine:
    """Read the script at ``path``.

    Args:
        encode: text to token ids, for replies that are written as text.
        decode: token ids to text, for replies with ``when``.
        vocab_size, eos_token_ids: of the server's tokenizer, for what the file leaves open. The first end token is
            put at the end of a text that finishes with ``stop``, as engines do.

    Raises:
        EngineStartError: the file is not there, or a field in it is wrong.
    """
    try:
        script = _decoded(path.read_bytes())
    except OSError as error:
        raise EngineStartError(f"cannot read the engine script {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise EngineStartError(f"the engine script {path} is wrong: {error}") from error
    if not script.replies:
        raise EngineStartError(f"the engine script {path} has no replies")
    ends = eos_token_ids if script.eos_token_ids is None else script.eos_token_ids
    return ScriptedEngine(
        replies=[_reply(entry, index, path, encode, ends) for index, entry in enumerate(script.replies)],
        info=EngineInfo(
            context_length=script.context_length,
            vocab_size=vocab_size if script.vocab_size is None else script.vocab_size,
            eos_token_ids=frozenset(ends),
            constraints=frozenset(script.constraints),
            prompt_logprobs=script.prompt_logprobs,
            version="scripted",
        ),
        capacity=script.capacity,
        repeat=script.repeat,
        decode=decode,
        record=False,
    )


def _decoded(text: bytes) -> Script:
    """JSON is tried first: YAML's reader takes most of it, but no escaped pair of surrogates."""
    try:
        return msgspec.json.decode(text, type=Script)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.yaml.decode(text, type=Script)


def _reply(
    entry: ReplyEntry, index: int, path: Path, encode: Callable[[str], list[int]], ends: Sequence[int]
) -> ScriptedReply:
    if entry.text is not None and entry.token_ids is not None:
        raise EngineStartError(f"the engine script {path} is wrong: replies[{index}] has both text and token_ids")
    ids = list(entry.token_ids or ())
    if entry.text is not None:
        ids = encode(entry.text)
        if entry.finish == "stop" and ends:
            ids.append(ends[0])
    failure = entry.error
    return ScriptedReply(
        token_ids=ids,
        chunk_sizes=[entry.chunk] if isinstance(entry.chunk, int) else entry.chunk or [1],
        first_delay=entry.first_delay,
        delay=entry.delay,
        burst=max(1, entry.burst),
        in_step=entry.in_step,
        finish=None if entry.finish == "none" else Finish(entry.finish),
        error=None if failure is None else EngineError(failure.status, failure.code, failure.message),
        error_after=0 if failure is None else failure.after,
        hang_after=entry.hang_after,
        cached_tokens=entry.cached_tokens,
        when=entry.when,
        prompt_prefix=entry.prompt_prefix,
    )
