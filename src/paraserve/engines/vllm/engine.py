"""vLLM by its token API, ``/inference/v1/generate`` (``vllm serve … --enable-scale-out``).

Never knows text: token ids go in and come out. The wire facts are those of vLLM 0.32 (``docs/engines.md``). Two
invariants: every sampling value is sent, because the engine's defaults are not the API's and it ignores what it does
not know; and the finish is given out with the last tokens, after the counts that vLLM sends behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from paraserve.engines.base import (
    LEAST_LOGPROB,
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
from paraserve.engines.checks import UNREADABLE, garbled
from paraserve.engines.http.client import HTTPTimeouts, broken
from paraserve.engines.http.generation import DONE, EventDecoder
from paraserve.engines.http.refusals import engine_message
from paraserve.engines.http.remote import ModelFacts, RemoteEngine, cached_prompt_tokens, ignores_eos
from paraserve.protocol.error_codes import ErrorCode

FIELD: dict[ConstraintKind, str] = {
    "json_schema": "json",
    "json_object": "json_object",
    "regex": "regex",
    "ebnf": "grammar",
    "structural_tag": "structural_tag",
}
"""The field of ``structured_outputs`` that carries a constraint. Lark has none."""


class VLLMEngine(RemoteEngine):
    """vLLM's adapter.

    Args:
        defers_constraints: that the server runs with ``--reasoning-parser``; vLLM does not tell.
        max_logprobs: the server's ``--max-logprobs``; vLLM does not tell.
    """

    title = "vLLM"
    generate_path = "/inference/v1/generate"
    abort_path = "/inference/v1/abort_requests"

    def __init__(
        self,
        base_url: str,
        facts: ModelFacts,
        *,
        timeouts: HTTPTimeouts | None = None,
        api_key: str | None = None,
        defers_constraints: bool = False,
        max_logprobs: int = 20,
    ) -> None:
        super().__init__(base_url, facts, timeouts=timeouts, api_key=api_key)
        self._defers_constraints = defers_constraints
        self._max_logprobs = max_logprobs

    async def learn(self) -> EngineInfo:
        reply = await self.http.get("/v1/models")
        if reply.status in (401, 403):
            raise EngineStartError(f"/v1/models answers {reply.status}: set the engine's API key")
        models = listed.get("data") if isinstance(listed := reply.json(), dict) else None
        if reply.status != 200 or not models:
            raise EngineStartError(f"/v1/models answers {reply.status} and no model: is this a vLLM server?")
        if (await self.http.post(self.abort_path, {"request_ids": []})).status == 403:
            raise EngineStartError("its token API is closed: restart vLLM with --enable-scale-out")
        limits = [n for n in (models[0].get("max_model_len"), self.facts.context_length) if isinstance(n, int)]
        if not limits:
            raise EngineStartError("it does not tell the context length: give the checkpoint with --model-path")
        version = await self.http.get("/version")
        told = version.json() if version.status == 200 else None
        return EngineInfo(
            context_length=min(limits),
            vocab_size=self.facts.vocab_size,
            eos_token_ids=self.facts.eos_token_ids,
            constraints=frozenset(FIELD),
            defers_constraints=self._defers_constraints,
            media=frozenset({"image", "audio", "video"}),
            version=str(told.get("version", "")) if isinstance(told, dict) else "",
            max_logprobs=self._max_logprobs,
            cache_salts=True,
        )

    async def identify(self) -> str:
        listed = (await self.http.get("/v1/models")).json()
        models = listed.get("data") if isinstance(listed, dict) else None
        return str(models[0].get("root") or models[0].get("id")) if models else ""

    async def health(self) -> EngineHealth:
        """Whether the engine's core lives (``/health``)."""
        try:
            reply = await self.http.get("/health")
        except EngineError as error:
            return EngineHealth(False, error.message)
        return EngineHealth(True) if reply.status == 200 else EngineHealth(False, f"health answers {reply.status}")

    def body(self, request: EngineRequest) -> dict[str, Any]:
        constraint, routing = request.constraint, request.routing
        params = sampling_params(request.sampling) | {"ignore_eos": ignores_eos(request)}
        if request.logprobs is not None:
            # The sampled token takes one of the places, so one more is asked for than is wanted.
            params["logprobs"] = min(request.logprobs + 1, self._max_logprobs) if request.logprobs else 0
        body: dict[str, Any] = {
            "request_id": request.request_id,
            "token_ids": list(request.token_ids),
            "sampling_params": params,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if constraint is not None:
            params["structured_outputs"] = structured_outputs(constraint)
            body["reasoning_ended"] = constraint.covers_reasoning or not request.in_reasoning
        if routing.priority is not None:
            body["priority"] = routing.priority
        if routing.cache_salt is not None:
            body["cache_salt"] = routing.cache_salt
        if routing.lora is not None:
            body["model"] = routing.lora
        if request.media:
            body["content_parts"] = [{"type": f"{item.kind}_url", "url": item.url} for item in request.media]
        return body

    def headers(self, request: EngineRequest) -> Mapping[str, str]:
        """With our name as ``x-request-id``: vLLM calls the generation by that header before it looks at
        ``request_id``, and clients may share an id, or a proxy make one up where there is none."""
        sent = {name: value for name, value in request.routing.headers.items() if name.lower() != "x-request-id"}
        sent["x-request-id"] = request.request_id
        rank = request.routing.data_parallel_rank
        return sent if rank is None else {**sent, "x-data-parallel-rank": str(rank)}

    def decoder(self, request: EngineRequest) -> EventDecoder:
        return VLLMStream(request, self)

    def name(self, request: EngineRequest) -> str:
        return f"generate-tokens-{request.request_id}"

    def abort_body(self, name: str) -> dict[str, Any]:
        return {"request_ids": [name]}

    def refused(self, status: int, message: str, request: EngineRequest) -> EngineError:
        if status == 404 and request.routing.lora is not None:
            return EngineError(
                404, ErrorCode.MODEL_NOT_FOUND, "The engine has no such model or adapter.", param="model"
            )
        if status == 403:
            message = "The engine's token API is closed (vLLM needs --enable-scale-out)."
            return EngineError(502, ErrorCode.ENGINE_ERROR, message)
        return super().refused(status, message, request)


def sampling_params(sampling: Sampling) -> dict[str, Any]:
    """vLLM's spelling of the sampling values, all of them."""
    params: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "seed": sampling.seed,
        "n": 1,
        "detokenize": False,  # the text is not read
    }
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return params


def structured_outputs(constraint: Constraint) -> dict[str, Any]:
    return {FIELD[constraint.kind]: True if constraint.kind == "json_object" else constraint.value}


_ABSENT = msgspec.Raw()
_NONE = (b"", b"null")


class _TopLogprob(msgspec.Struct):
    token_id: int
    logprob: float | None = None
    rank: int | None = None


class _LogprobContent(msgspec.Struct):
    token_id: int
    logprob: float | None = None
    top_logprobs: list[_TopLogprob] = []


class _Logprobs(msgspec.Struct):
    content: list[_LogprobContent] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _PromptTokensDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _PromptTokensDetails | None = None


class _Event(msgspec.Struct):
    request_id: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = _ABSENT


class _ErrorBody(msgspec.Struct):
    code: int | str | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


class VLLMStream:
    """`EventDecoder` of vLLM."""

    cut = False

    def __init__(self, request: EngineRequest, engine: VLLMEngine) -> None:
        self._request = request
        self._engine = engine
        self._held: EngineChunk | None = None
        self.name: str | None = None
        self.ended = False

    @property
    def finish_held(self) -> bool:
        return self._held is not None

    def decode(self, payload: bytes) -> EngineChunk | None:
        if payload == DONE:
            return self._release(None)
        try:
            event = _decode_event(payload)
        except UNREADABLE as error:
            raise garbled() from error
        self.name = event.request_id or self.name
        if bytes(event.error) not in _NONE:
            raise self._error(bytes(event.error))
        if event.choices:
            return self._chunk(event.choices[0])
        return self._release(event.usage) if event.usage is not None else None

    def _chunk(self, choice: _Choice) -> EngineChunk | None:
        ids = choice.token_ids or []
        logprobs = None
        if self._request.logprobs is not None:
            content = choice.logprobs.content if choice.logprobs is not None else None
            logprobs = read_logprobs(ids, content or [], self._request.logprobs)
        finish = self._finish(choice, ids)
        chunk = EngineChunk(ids, logprobs, finish)
        if finish is not None:
            self._held = chunk
            return None
        return chunk if ids else None

    def _release(self, usage: _Usage | None) -> EngineChunk:
        if self._held is None:
            raise broken()
        chunk, self._held, self.ended = self._held, None, True
        if usage is not None:
            details = usage.prompt_tokens_details
            chunk.prompt_tokens = usage.prompt_tokens
            chunk.cached_tokens = cached_prompt_tokens(details.cached_tokens if details else None, usage.prompt_tokens)
        return chunk

    def _finish(self, choice: _Choice, ids: list[int]) -> Finish | None:
        match choice.finish_reason:
            case None:
                return None
            case "stop":
                # No stop reason: the model's own end token, which is the last id.
                if choice.stop_reason is None:
                    return Finish("stop", ids[-1] if ids else None)
                return Finish("stop", choice.stop_reason if isinstance(choice.stop_reason, int) else None)
            case "length" | "repetition":
                return Finish("length")
            case "abort":
                return Finish("abort")
        raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine failed while it generated.")

    def _error(self, body: bytes) -> EngineError:
        try:
            code = msgspec.json.decode(body, type=_ErrorBody).code
        except UNREADABLE:
            code = None
        return self._engine.refused(code if isinstance(code, int) else 500, engine_message(body), self._request)


def read_logprobs(ids: list[int], content: list[_LogprobContent], top: int) -> list[TokenLogprob]:
    """Raises `EngineError` where the entries are not those of the ids: a wrong number is worse than none."""
    if [entry.token_id for entry in content] != ids:
        raise garbled()
    return [
        TokenLogprob(entry.token_id, _value(entry.logprob), _most_likely(entry.top_logprobs, top)) for entry in content
    ]


def _most_likely(entries: list[_TopLogprob], top: int) -> tuple[tuple[int, float], ...]:
    """The ``top`` most likely ones: vLLM puts the sampled token first, likely or not."""
    if not top:
        return ()
    ranked = [entry for entry in entries if entry.rank is None or entry.rank <= top]
    ranked.sort(key=lambda entry: -_value(entry.logprob))
    return tuple((entry.token_id, _value(entry.logprob)) for entry in ranked[:top])


def _value(logprob: float | None) -> float:
    return LEAST_LOGPROB if logprob is None else logprob
