"""llama.cpp's server as an engine: the embedded one, or a ``llama-server`` that runs somewhere.

Drives the native completion API with token ids in and out; closing a stream is what aborts it. Never knows text, but
for the bytes of single tokens, which it needs to find ids that the server leaves out (`TokenFragments`). Two
invariants: every token that the model made is given out exactly once, and what the server would ignore in silence (a
grammar that does not compile, a limit it does not have) is done here or refused.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from paraserve.engines.base import (
    Constraint,
    ConstraintKind,
    EngineChunk,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Finish,
    Sampling,
    TokenLogprob,
)
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.client import EngineHTTP, HTTPTimeouts, broken
from paraserve.engines.http.identity import Identity
from paraserve.engines.http.refusals import engine_message, refusal
from paraserve.engines.http.remote import check_chunk, check_request
from paraserve.engines.llama_cpp.body import SEED_RANGE, completion_body, seed_of
from paraserve.engines.llama_cpp.events import CompletionEvents, Piece
from paraserve.engines.llama_cpp.grammars import Grammars
from paraserve.engines.llama_cpp.scores import TokenScores
from paraserve.engines.llama_cpp.token_fragments import TokenFragments
from paraserve.protocol.error_codes import ErrorCode

GBNF_KINDS: frozenset[ConstraintKind] = frozenset({"json_schema", "json_object", "ebnf"})
LARK_KINDS: frozenset[ConstraintKind] = frozenset({"regex", "lark"})

SPARE_TOKENS = 4
"""Asked for beyond a limit that cuts a character, so that it comes out whole: its last bytes name its ids."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One request's settled facts."""

    request: EngineRequest
    grammar: dict[str, Any] | None
    seed: int
    probabilities: int


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a reply that is one request to the server.

    Args:
        limit: tokens of the whole reply at its end.
        spare: tokens to make beyond it.
        may_end: whether end tokens and stop ids are allowed.
        last: whether the server's own limit is the reply's.
    """

    limit: int
    spare: int = 0
    may_end: bool = True
    last: bool = False


class LlamaCppEngine:
    """An `Engine` on llama.cpp.

    Args:
        token_bytes: the bytes of a token id, from the tokenizer of the same model (`ValueError` for none).
        address: where the server listens; the embedded one on a socket.
        on_phase: told what `start` is doing, in words for a person.
    """

    def __init__(
        self,
        token_bytes: Callable[[int], bytes],
        address: EngineAddress,
        *,
        api_key: str | None = None,
        timeouts: HTTPTimeouts | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self._token_bytes = token_bytes
        self._address = address
        self._api_key = api_key
        self._timeouts = timeouts or HTTPTimeouts(call=120.0)
        self._on_phase = on_phase or (lambda _phase: None)
        self._http: EngineHTTP | None = None
        self._info: EngineInfo | None = None
        self._fragments: TokenFragments | None = None
        self._identity: Identity | None = None
        """Of a server that is not ours."""

    @property
    def stranger(self) -> str:
        return "" if self._identity is None else self._identity.stranger

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise RuntimeError("the engine has not been started")
        return self._info

    async def start(self) -> None:
        self._http = EngineHTTP(
            self._address.url,
            timeouts=self._timeouts,
            api_key=self._api_key,
            unix_socket=self._address.unix_socket,
            reuse=False,
        )
        await self._http.open()
        try:
            self._on_phase("warming up" if self._address.unix_socket else "connecting")
            self._info = await self._learn()
            if self._address.unix_socket is None:
                self._identity = Identity(self._identify, self._learn_again, self._http.base_url)
                await self._identity.learn()
        except EngineError as error:
            await self.stop()
            raise EngineStartError(f"llama.cpp: {error.message}") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._identity is not None:
            await self._identity.stop()
        if self._http is not None:
            await self._http.close()

    async def health(self) -> EngineHealth:
        try:
            async with asyncio.timeout(5.0):
                reply = await self._client.get("/health")
        except EngineError as error:
            return EngineHealth(False, error.message)
        except TimeoutError:
            return EngineHealth(False, "The engine did not answer in time.")
        return EngineHealth(reply.status == 200, "" if reply.status == 200 else "The engine is not ready.")

    async def tokenize(self, text: str, *, parse_special: bool = True, add_special: bool = False) -> list[int]:
        """llama.cpp's own token ids, to check a tokenizer against. Raises `EngineError`."""
        body = {"content": text, "parse_special": parse_special, "add_special": add_special}
        tokens: list[int] = (await self._ask("/tokenize", body))["tokens"]
        return tokens

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        if self._identity is not None:
            await self._identity.before_request()
        self._check(request)
        sampling = request.sampling
        grammar = None if request.constraint is None else await self._grammars.fields(request.constraint)
        # Without probabilities the server shows bytes that are no UTF-8 as U+FFFD, and then no id can be found again.
        # Greedy replies have no such bytes, and each probability costs a pass over the vocabulary.
        probabilities = max(1, request.logprobs or 0)
        if sampling.temperature == 0 and request.logprobs is None:
            probabilities = 0
        run = _Run(request, grammar, seed_of(sampling), probabilities)
        made: list[int] = []
        cached: int | None = None
        if request.prompt_logprobs:
            scored = await self._scores.of_prompt(request.token_ids, request.logprobs or 0, request.routing.headers)
            yield EngineChunk([], prompt_logprobs=scored, prompt_tokens=len(request.token_ids))
            cached = 0  # what the cache has of the prompt now is this very request's work
        if sampling.max_tokens == 0:
            yield EngineChunk([], finish=Finish("length"), prompt_tokens=len(request.token_ids))
            return
        for segment in _segments(sampling, resumable=grammar is None):
            async with aclosing(self._segment(run, made, segment)) as pieces:
                async for piece in pieces:
                    cached = piece.cached if cached is None else cached
                    chunk = await self._chunk(run, made, piece, cached)
                    check_chunk(chunk, len(request.token_ids), self.info.vocab_size)
                    yield chunk
                    if piece.finish is not None:
                        return

    async def _segment(self, run: _Run, made: list[int], segment: _Segment) -> AsyncGenerator[Piece, None]:
        """Pieces of the reply until it ends or has the segment's tokens; the caller adds them to ``made``."""
        sampling = run.request.sampling
        begun = len(made)
        body = completion_body(
            [*run.request.token_ids, *made],
            sampling,
            limit=segment.limit - begun + segment.spare,
            ignore_eos=sampling.ignore_eos or not segment.may_end,
            banned=() if segment.may_end else sampling.stop_token_ids,
            forgiven=run.request.token_ids,
            probabilities=run.probabilities,
            grammar=run.grammar,
            seed=(run.seed + begun) % SEED_RANGE,
            window=self.info.context_length,
        )
        ends = frozenset(sampling.stop_token_ids) if segment.may_end else frozenset[int]()
        if not body["ignore_eos"]:
            ends |= self.info.eos_token_ids
        async with aclosing(self._pieces(body, run.request.routing.headers, run.request.constraint)) as pieces:
            async for piece in pieces:
                if piece.finish is not None and not segment.last:
                    return  # the server's limit, inside a character: the next segment begins it anew
                _cut(piece, ends, sampling.max_tokens - len(made))
                yield piece
                if piece.finish is not None or len(made) >= segment.limit:
                    return

    async def _pieces(
        self, body: dict[str, Any], headers: Mapping[str, str], constraint: Constraint | None = None
    ) -> AsyncGenerator[Piece, None]:
        """A streamed completion as the server gives it. Closing it aborts it there."""
        try:
            stream = await self._client.stream("/completion", msgspec.json.encode(body), headers)
        except EngineError as error:
            self._notice(error)
            raise
        try:
            if stream.status != 200:
                raise self._refused(stream.status, await stream.body(), constraint)
            if self._identity is not None:  # its connections are never used twice
                await self._identity.before_reply()
            events = CompletionEvents(self._fragments_of_vocabulary, self.info.vocab_size)
            while received := await stream.read():
                for piece in events.feed(received):
                    if piece.error is not None:
                        raise self._refused(piece.error.status, piece.error.body, constraint)
                    yield piece
                    if piece.finish is not None:
                        return
            raise broken()
        except EngineError as error:
            self._notice(error)
            raise
        finally:
            stream.close()

    def _notice(self, error: EngineError) -> None:
        if self._identity is not None:
            self._identity.notice(error)

    async def _chunk(self, run: _Run, made: list[int], piece: Piece, cached: int | None) -> EngineChunk:
        """The chunk of a piece, which joins ``made``."""
        request = run.request
        chunk = EngineChunk(piece.ids, finish=piece.finish)
        if not made:
            chunk.prompt_tokens = len(request.token_ids)
            chunk.cached_tokens = cached
        if request.logprobs is not None and piece.ids:
            entries = list(piece.logprobs)
            missing = len(piece.ids) - len(entries)
            before = [*request.token_ids, *made]
            scored = [
                await self._scores.of_token(
                    [*before, *piece.ids[:index]], token_id, request.logprobs, request.routing.headers
                )
                for index, token_id in enumerate(piece.ids[:missing])
            ]
            chunk.logprobs = [_top(entry, request.logprobs) for entry in [*scored, *entries]]
        made.extend(piece.ids)
        return chunk

    def _check(self, request: EngineRequest) -> None:
        check_request(request, self.info)
        sampling = request.sampling
        if sampling.min_tokens and request.constraint is not None:
            message = "min_tokens cannot be held together with a constraint on the reply."
            raise EngineError(400, ErrorCode.UNSUPPORTED_PARAMETER, message, param="min_tokens")
        if request.routing.lora is not None:
            raise EngineError(
                400, ErrorCode.UNSUPPORTED_PARAMETER, "This engine serves no LoRA adapters.", param="model"
            )

    async def _identify(self) -> str:
        """The model's name and the size of its vocabulary."""
        try:
            listed = (await self._ask("/v1/models"))["data"][0]
            return f"{listed['id']} of {listed['meta']['n_vocab']} tokens"
        except (KeyError, IndexError, TypeError):
            return ""

    async def _learn_again(self) -> None:
        self._info = await self._learn()

    async def _learn(self) -> EngineInfo:
        props = await self._ask("/props")
        models = await self._ask("/v1/models")
        try:
            listed = models["data"][0]
            context: int = props["default_generation_settings"]["n_ctx"]
            vocab_size: int = listed["meta"]["n_vocab"]
        except (KeyError, IndexError, TypeError) as error:
            raise EngineStartError(
                f"llama.cpp: what answers at {self._address.url} is not a llama.cpp server"
            ) from error
        self._fragments = await asyncio.to_thread(TokenFragments, vocab_size, self._token_bytes)
        whole_token = self._find_whole_token(vocab_size)
        # With ignore_eos the server bans its end tokens by a bias, and the settings that it repeats name them.
        probe = {"prompt": [whole_token], "n_predict": 1, "ignore_eos": True, "logit_bias": []}
        settings = (await self._ask("/completion", probe))["generation_settings"]
        ends = frozenset[int](entry["token"] for entry in settings["logit_bias"])
        self._scores = TokenScores(self._ask, self._pieces, vocab_size=vocab_size, whole_token=whole_token, ends=ends)
        self._grammars = Grammars(self._ask, whole_token=whole_token, forbidden=self._fragments.continuation)
        lark = await self._grammars.learn()
        version = props.get("build_info", "")
        if self._address.unix_socket is not None:
            version = f"xllamacpp {importlib.metadata.version('xllamacpp')}"
        return EngineInfo(
            context_length=context,
            vocab_size=vocab_size,
            eos_token_ids=ends,
            constraints=GBNF_KINDS | LARK_KINDS if lark else GBNF_KINDS,
            prompt_logprobs=lark,
            version=version,
        )

    def _find_whole_token(self, vocab_size: int) -> int:
        """Some token that is a letter: a harmless prompt, and one whose probabilities the server tells."""
        for token_id in range(vocab_size):
            try:
                if self._token_bytes(token_id) == b"a":
                    return token_id
            except ValueError:
                continue
        raise EngineStartError("llama.cpp: the tokenizer has no token for the letter a: is it of another model?")

    @property
    def _client(self) -> EngineHTTP:
        if self._http is None:
            raise RuntimeError("the engine has not been started")
        return self._http

    @property
    def _fragments_of_vocabulary(self) -> TokenFragments:
        if self._fragments is None:
            raise RuntimeError("the engine has not been started")
        return self._fragments

    async def _ask(
        self, path: str, body: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        reply = await (self._client.get(path) if body is None else self._client.post(path, body, headers))
        if reply.status != 200:
            raise self._refused(reply.status, reply.body, None)
        return reply.json()

    def _refused(self, status: int, body: bytes, constraint: Constraint | None) -> EngineError:
        return refusal(status, engine_message(body), constraint)


def _segments(sampling: Sampling, *, resumable: bool) -> list[_Segment]:
    """A reply is one segment, and more where the server lacks a means.

    It cannot hold end tokens back for a while (min_tokens), and it does not tell the ids of a character that its limit
    has cut: those are then made again with some more, and thrown away where they go beyond the limit. A grammar's
    state cannot be taken up again.
    """
    segments = [_Segment(sampling.min_tokens, may_end=False)] if sampling.min_tokens else []
    if resumable:
        segments.append(_Segment(sampling.max_tokens))
    return [*segments, _Segment(sampling.max_tokens, spare=SPARE_TOKENS if resumable else 0, last=True)]


def _cut(piece: Piece, ends: frozenset[int], room: int) -> None:
    """End the piece where an end token or the limit ends the reply."""
    for index, token_id in enumerate(piece.ids[:room]):
        if token_id in ends:
            piece.keep(index + 1)
            piece.finish = Finish("stop", token_id)
            return
    if len(piece.ids) >= room:
        piece.keep(room)
        piece.finish = Finish("length")


def _top(entry: TokenLogprob, count: int) -> TokenLogprob:
    return TokenLogprob(entry.token_id, entry.logprob, entry.top[:count])
