"""SGLang by its native ``/generate``, alone or behind its router, one node or prefill/decode.

Never knows text: token ids go in and come out. The wire facts are those of SGLang 0.5.23 (``docs/engines.md``). Two
invariants: every sampling value is sent, because the engine's defaults are not the API's; and only new tokens come
out, whether the server sends each event whole from the start of the reply (its default) or not, at a cost that does
not grow with the reply beyond what reading the bytes takes (``sglang_stream.py``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from paraserve.engines.base import (
    Constraint,
    ConstraintKind,
    EngineError,
    EngineHealth,
    EngineInfo,
    EngineRequest,
    EngineStartError,
    MediaItem,
    Sampling,
)
from paraserve.engines.http.generation import EventDecoder
from paraserve.engines.http.remote import RemoteEngine, ignores_eos
from paraserve.engines.sglang.stream import SGLangStream

_FIELD: dict[ConstraintKind, str] = {
    "json_schema": "json_schema",
    "json_object": "json_schema",
    "regex": "regex",
    "ebnf": "ebnf",
    "lark": "ebnf",
    "structural_tag": "structural_tag",
}
"""The sampling parameter that carries a constraint."""

_UNKNOWN = "unknown_to_sglang"
_LOST: frozenset[ConstraintKind] = frozenset({"structural_tag"})
"""The constraints that do not come through `sglang-router` 0.3.2."""

XGRAMMAR: frozenset[ConstraintKind] = frozenset({"json_schema", "json_object", "regex", "ebnf", "structural_tag"})
BACKEND_KINDS: dict[str, frozenset[ConstraintKind]] = {
    "none": frozenset(),
    "outlines": frozenset({"json_schema", "json_object", "regex"}),
    # It reads ``ebnf`` as Lark, and structural tags in an older form only.
    "llguidance": frozenset({"json_schema", "json_object", "regex", "lark"}),
}
"""What the server's ``--grammar-backend`` can obey where it is not XGrammar, the default."""


logger = logging.getLogger(__name__)


class SGLangEngine(RemoteEngine):
    title = "SGLang"
    generate_path = "/generate"
    abort_path = "/abort_request"

    async def learn(self) -> EngineInfo:
        model = await self._facts("/model_info", "/get_model_info")
        server = await self._facts("/server_info", "/get_server_info")
        if model is None and server is None:
            raise EngineStartError("it answers neither /model_info nor /server_info: is this an SGLang server?")
        model, server = model or {}, server or {}
        tokenizer = not server.get("skip_tokenizer_init")
        kinds = BACKEND_KINDS.get(str(server.get("grammar_backend")), XGRAMMAR) if tokenizer else frozenset()
        media = {
            kind
            for kind, fact in (("image", "has_image_understanding"), ("audio", "has_audio_understanding"))
            if model.get(fact)
        }
        if "image" in media:
            media.add("video")
        whole = await self._is_reached_whole()
        if not whole:
            logger.warning(
                "what stands in front of SGLang at %s leaves out fields that it does not know: grammars are sent as "
                "EBNF; logit_bias, cache_salt and constraints that wait for the end of reasoning are refused; engine "
                "extra fields and data-parallel ranks may get lost",
                self.http.base_url,
            )
        # Not told by a router, or by an SGLang that knows no seeds yet.
        deterministic = bool(server.get("enable_deterministic_inference"))
        if not deterministic:
            logger.info(
                "seeds have no effect: SGLang at %s reads them with --enable-deterministic-inference only",
                self.http.base_url,
            )
        whole_length, prompt_length = limits(server, self.facts.context_length)
        return EngineInfo(
            context_length=whole_length,
            max_prompt_tokens=prompt_length,
            vocab_size=self.facts.vocab_size,
            eos_token_ids=self.facts.eos_token_ids,
            constraints=kinds if whole else kinds - _LOST,
            defers_constraints=whole and bool(model.get("reasoning_parser") or server.get("reasoning_parser")),
            prompt_logprobs=True,
            media=frozenset(media),
            version=str(server.get("version", "")),
            logit_bias=whole,
            cache_salts=whole,
            min_tokens=tokenizer,
            seeds=deterministic,
        )

    async def identify(self) -> str:
        model = await self._facts("/model_info", "/get_model_info")
        names = [(model or {}).get(name) for name in ("model_path", "tokenizer_path")]
        return " with the tokenizer ".join(dict.fromkeys(str(name) for name in names if name))

    async def _is_reached_whole(self) -> bool:
        """Whether requests come to SGLang as they are sent; where that cannot be told, the answer is no.

        SGLang answers 400 to a sampling parameter that it does not know. `sglang-router` forwards what it knows itself:
        neither that parameter nor structural tags, ``logit_bias`` and ``require_reasoning``, and the reply is a 200
        that obeys none of them.
        """
        params = sampling_params(Sampling(max_tokens=1)) | {_UNKNOWN: True}
        body = {"rid": uuid4().hex, "input_ids": [0], "sampling_params": params, "stream": False}
        try:
            reply = await self.http.post(self.generate_path, body)
        except EngineError:
            return False
        return reply.status in (400, 422)

    async def health(self) -> EngineHealth:
        """Whether the engine makes a token (``/health_generate``; about a second when it is idle)."""
        try:
            reply = await self.http.get("/health_generate")
            if reply.status == 404:
                reply = await self.http.get("/health")
        except EngineError as error:
            return EngineHealth(False, error.message)
        return EngineHealth(True) if reply.status == 200 else EngineHealth(False, f"health answers {reply.status}")

    def body(self, request: EngineRequest) -> dict[str, Any]:
        constraint, routing = request.constraint, request.routing
        body: dict[str, Any] = {
            "rid": request.request_id,
            "input_ids": list(request.token_ids),
            "sampling_params": {
                **sampling_params(request.sampling),
                "ignore_eos": ignores_eos(request),
                **constraint_params(constraint),
            },
            "stream": True,
            # True is also "hold the grammar back until the reasoning has ended".
            "require_reasoning": request.in_reasoning and not (constraint and constraint.covers_reasoning),
        }
        if request.logprobs is not None or request.prompt_logprobs:
            body |= {
                "return_logprob": True,
                "top_logprobs_num": request.logprobs or 0,
                "logprob_start_len": 0 if request.prompt_logprobs else -1,
                "return_text_in_logprobs": False,
            }
        hints = {
            "priority": routing.priority,
            "lora_path": routing.lora,
            "cache_salt": routing.cache_salt,
            "routed_dp_rank": routing.data_parallel_rank,
            "bootstrap_host": routing.bootstrap_host,
            "bootstrap_port": routing.bootstrap_port,
            "bootstrap_room": routing.bootstrap_room,
        }
        body |= {name: value for name, value in hints.items() if value is not None}
        return body | media_fields(request.media)

    def decoder(self, request: EngineRequest) -> EventDecoder:
        return SGLangStream(request, self.refused)

    def abort_body(self, name: str) -> dict[str, Any]:
        return {"rid": name}

    async def _facts(self, path: str, older_path: str) -> dict[str, Any] | None:
        for each in (path, older_path):
            reply = await self.http.get(each)
            if reply.status == 200 and isinstance(found := reply.json(), dict):
                return found
            if reply.status in (401, 403):
                raise EngineStartError(f"{each} answers {reply.status}: set the engine's API key")
            if reply.status != 404:
                return None
        return None


def sampling_params(sampling: Sampling) -> dict[str, Any]:
    """SGLang's spelling of the sampling values, all of them."""
    params: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "min_new_tokens": sampling.min_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "n": 1,
        # Of the text only, which is not read; but untrimmed, the stop token stays in output_ids too.
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return params


def constraint_params(constraint: Constraint | None) -> dict[str, str]:
    if constraint is None:
        return {}
    value = json.dumps({"type": "object"}) if constraint.kind == "json_object" else constraint.value
    return {_FIELD[constraint.kind]: value}


def media_fields(media: Sequence[MediaItem]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for item in media:
        fields.setdefault(f"{item.kind}_data", []).append(item.url)
    return fields


def limits(server: dict[str, Any], from_checkpoint: int | None) -> tuple[int, int]:
    """The tokens of prompt and reply together, and those of the longest prompt.

    SGLang 0.5.23 compares a request with its ``max_req_input_len``, which is six below what the context or the KV pool
    holds, whichever is less: a prompt of so many tokens is refused, and a reply that ends more than four above is cut
    without a word. It is also cut where the pool, in whole pages, has no page beside those of the prompt and one more.
    """
    contexts = [n for n in (from_checkpoint, server.get("context_length")) if isinstance(n, int) and n > 0]
    refused = server.get("max_req_input_len")
    if not isinstance(refused, int):
        if not contexts:
            raise EngineStartError("it does not tell the context length: give the checkpoint with --model-path")
        refused = min(contexts) - 6
    ends = [*contexts, refused + 4]
    pool, page = server.get("max_total_num_tokens"), server.get("page_size")
    if isinstance(pool, int) and isinstance(page, int) and pool >= refused + 6:
        ends.append(pool - 2 * page)
    return min(ends), refused - 1
