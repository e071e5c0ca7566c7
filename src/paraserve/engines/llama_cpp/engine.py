"""llama.cpp's server as an engine: the embedded one, or a ``llama-server`` that runs somewhere.

Drives the native completion API with token ids in and out; closing a stream is what aborts it. Never knows text, but
for the bytes of single tokens, which it needs to find ids that the server leaves out (`TokenFragments`). Two
invariants: a reply's pieces are given out before the failure that stands behind them, and what the server would ignore
in silence (a grammar that does not compile) is refused. How a request runs stands in `generation.py`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from paraserve.engines.base import (
    Constraint,
    ConstraintKind,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    Generation,
    Sink,
)
from paraserve.engines.checks import check_request
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.client import EngineHTTP, HTTPTimeouts, broken
from paraserve.engines.http.identity import Identity
from paraserve.engines.http.refusals import engine_message, refusal
from paraserve.engines.llama_cpp.events import CompletionEvents, Piece
from paraserve.engines.llama_cpp.generation import LlamaCppGeneration
from paraserve.engines.llama_cpp.grammars import Grammars
from paraserve.engines.llama_cpp.scores import TokenScores
from paraserve.engines.llama_cpp.token_fragments import TokenFragments
from paraserve.protocol.error_codes import ErrorCode

GBNF_KINDS: frozenset[ConstraintKind] = frozenset({"json_schema", "json_object", "ebnf"})
LARK_KINDS: frozenset[ConstraintKind] = frozenset({"regex", "lark"})


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

    def submit(self, request: EngineRequest, sink: Sink) -> Generation:
        return LlamaCppGeneration(self, request, sink)

    async def pieces(
        self, body: dict[str, Any], headers: Mapping[str, str], constraint: Constraint | None = None
    ) -> AsyncGenerator[list[Piece], None]:
        """A streamed completion as the server gives it, read by read. Closing it aborts it there."""
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
                pieces: list[Piece] = []
                failure = None
                try:
                    for piece in events.feed(received):
                        if piece.error is not None:
                            raise self._refused(piece.error.status, piece.error.body, constraint)
                        pieces.append(piece)
                except EngineError as error:
                    failure = error  # behind what came before it
                if pieces:
                    yield pieces
                if pieces and pieces[-1].finish is not None:
                    return
                if failure is not None:
                    raise failure
            raise broken()
        except EngineError as error:
            self._notice(error)
            raise
        finally:
            stream.close()

    def _notice(self, error: EngineError) -> None:
        if self._identity is not None:
            self._identity.notice(error)

    async def check(self, request: EngineRequest) -> None:
        """Raises `EngineError` where it must not be asked for."""
        if self._identity is not None:
            await self._identity.before_request()
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
        self.scores = TokenScores(self._ask, self.pieces, vocab_size=vocab_size, whole_token=whole_token, ends=ends)
        self.grammars = Grammars(self._ask, whole_token=whole_token, forbidden=self._fragments.continuation)
        lark = await self.grammars.learn()
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
