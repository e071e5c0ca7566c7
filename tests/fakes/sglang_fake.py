"""A server that speaks SGLang 0.5.23's native API, and refuses what that refuses (``sglang_checks.py``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.asgi import Broken, Receive, Send, only, read_body, send_json, send_stream
from tests.fakes.sequences import FakeModel, Step, framed, logprob_of, logprobs_of
from tests.fakes.sglang_checks import SAMPLING_KEYS, Arguments, given_up, refused_at_once

GARBAGE = 313
SCORES = ("return_logprob", "top_logprobs_num", "logprob_start_len")
LOST = frozenset({"require_reasoning", "routed_dp_rank", "cache_salt", "max_thinking_tokens", "x_custom"})
LOST_SAMPLING = frozenset(
    {"structural_tag", "logit_bias", "spaces_between_special_tokens", "custom_params", "stop_regex", "stream_interval"}
)
"""What of our requests `sglang-router` 0.3.2 leaves out, silently (``scripts/router_contract.py`` measures it)."""


@dataclass
class FakeSGLang:
    """An SGLang server.

    ``incremental`` is ``--incremental-streaming-output``, ``rust`` the front end of ``SGLANG_RUST_SERVER=1``. A client
    that leaves before it aborts has its request forgotten by name, and the sequence runs to its end: that is how
    zombies came to be. ``notices_leaving`` is the seconds after which the server itself ends such a sequence (2 in
    0.5.23), None for never. A ``prefill`` server makes one token.
    """

    model: FakeModel = field(default_factory=FakeModel)
    model_path: str = "/models/fake"
    arguments: Arguments = field(default_factory=Arguments)
    incremental: bool = False
    rust: bool = False
    reasoning_parser: str | None = None
    modern: bool = True
    """False: only the endpoints' older names."""
    healthy: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)
    prefill_cached: int | None = None
    prefill: bool = False
    notices_leaving: float | None = None
    behind_lossy_router: bool = False
    """Whether what is `LOST` on the way through sglang-router does not arrive."""
    _known: set[str] = field(default_factory=set)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not self.modern and path in ("/model_info", "/server_info"):
            await send_json(send, 404, {"detail": "Not Found"})
            return
        match path:
            case "/generate":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                await self._generate(json.loads(await read_body(receive)), headers, receive, send)
            case "/abort_request":
                self.abort(json.loads(await read_body(receive))["rid"])
                await send_json(send, 200, None)
            case "/model_info" | "/get_model_info":
                await send_json(send, 200, self.model_info())
            case "/server_info" | "/get_server_info":
                await send_json(send, 200, self.server_info())
            case "/health" | "/health_generate":
                await send_json(send, 200 if self.healthy and not self.model.dead else 503, None)
            case _:
                await send_json(send, 404, {"detail": "Not Found"})

    def model_info(self) -> dict[str, Any]:
        return {
            "model_path": self.model_path,
            "served_model_name": "fake",
            "is_generation": True,
            "reasoning_parser": self.reasoning_parser,
            "has_image_understanding": True,
            "has_audio_understanding": False,
        }

    def server_info(self) -> dict[str, Any]:
        return {**self.arguments.told(), "version": "0.5.23", "frontend": "rust" if self.rust else "python"}

    def abort(self, rid: str) -> None:
        self.aborts.append(rid)
        if rid in self._known:
            self.model.abort(rid)

    async def _generate(self, body: dict[str, Any], headers: dict[str, str], receive: Receive, send: Send) -> None:
        params = body["sampling_params"]
        if self.behind_lossy_router:
            for name in LOST & body.keys():
                del body[name]
            for name in params.keys() - (SAMPLING_KEYS - LOST_SAMPLING):
                del params[name]
        if unknown := params.keys() - SAMPLING_KEYS:
            await send_json(send, 400, {"error": f"Unknown sampling keys {unknown}"})
            return
        self.requests.append(body)
        self.headers.append(headers)
        how = self.model.behaviour
        if how.status != 200:
            await send_json(send, how.status, {"error": {"message": how.message}})
            return
        rid = body["rid"]
        scores = {name: body[name] for name in SCORES if name in body}
        if refused := refused_at_once(body, self.arguments):
            await send_stream(receive, send, framed(only(self._error_event(refused, 400)), how))
            return
        try:
            steps = self.model.start(rid, body["input_ids"], {**self._run_params(body), **scores})
        except ConnectionError:
            raise Broken from None
        self._known.add(rid)
        stayed = await send_stream(receive, send, framed(self._events(body, steps), how), how.head_delay)
        self._known.discard(rid)
        if not stayed and self.notices_leaving is None:
            return
        if not stayed:
            await asyncio.sleep(self.notices_leaving or 0.0)
        self.model.abort(rid)

    def _run_params(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the sequence obeys of what was sent."""
        params = body["sampling_params"]
        limit = self.arguments.reply_limit(len(body["input_ids"]), params["max_new_tokens"])
        obeyed = {"stop_token_ids": [], **params, "max_tokens": 1 if self.prefill else limit}
        if params["ignore_eos"]:
            obeyed["stop_token_ids"] = []
        if self.arguments.deterministic:
            obeyed["seed"] = params.get("sampling_seed")
        return obeyed

    async def _events(self, body: dict[str, Any], steps: asyncio.Queue[Step]) -> AsyncIterator[bytes]:
        how, index = self.model.behaviour, 0
        bad = given_up(body, self.arguments)
        while True:
            if bad:
                yield self._given_up(body, bad, 400)
                break
            if index == how.abort_after:
                yield self._given_up(body, how.message, how.error_status)
                break
            if index == how.error_after:
                yield self._error_event(how.message, how.error_status)
                break
            if index == how.garbage_after:
                yield b'{"output_ids": [1, 2'
                break
            if index == how.end_after:
                break
            step = await steps.get()
            if step.refused:
                yield self._given_up(body, step.refused[1], step.refused[0])
                break
            if step.finish == "abort" and self.rust:
                yield self._error_event("client disconnected", 499)
                break
            if index == how.cut_after:
                yield self._event(body, step)[:20]
                raise Broken
            yield self._event(body, step)
            index += 1
            if step.finish is not None:
                break
        yield b"[DONE]"

    def _given_up(self, body: dict[str, Any], message: str, status: int | None) -> bytes:
        """With an id that nobody asked for, and counts that are not the prompt's."""
        if self.rust:
            return self._error_event(message, status)
        meta = self._meta(body, Step([GARBAGE], [GARBAGE])) | {"prompt_tokens": 1}
        meta["finish_reason"] = {"type": "abort", "message": message, "status_code": status, "err_type": "X"}
        return json.dumps({"text": "?", "output_ids": [GARBAGE], "meta_info": meta}).encode()

    def _error_event(self, message: str, status: int | None) -> bytes:
        error: dict[str, Any] = {"message": message, "code": status}
        if not self.rust:
            error |= {"type": "invalid_request_error", "retryable": self.model.behaviour.retryable}
        return json.dumps({"error": error}).encode()

    def _event(self, body: dict[str, Any], step: Step) -> bytes:
        ids = step.new if self.incremental else step.ids
        event = {"text": "".join(f" t{token}" for token in ids), "output_ids": ids, "meta_info": self._meta(body, step)}
        return json.dumps(event, separators=(",", ":")).encode()

    def _meta(self, body: dict[str, Any], step: Step) -> dict[str, Any]:
        finish: dict[str, Any] | None = None
        if step.finish == "stop":
            finish = {"type": "stop", "matched": step.matched}
        elif step.finish == "length":
            finish = {"type": "length", "length": len(step.ids)}
        elif step.finish == "abort":
            finish = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        meta = {
            "id": body["rid"],
            "finish_reason": finish,
            "prompt_tokens": len(body["input_ids"]),
            "weight_version": "default",
            "completion_tokens": len(step.ids),
            "cached_tokens": self.model.behaviour.cached_tokens if step.cached is None else step.cached,
        }
        if self.prefill_cached is not None:
            meta["prefill_meta_info"] = {"cached_tokens": self.prefill_cached}
        if body.get("return_logprob"):
            meta |= self._logprobs(body, step) if step.scored is None else self._scored(body, step)
            meta["output_token_logprobs_length"] = len(step.ids)
        return meta

    def _scored(self, body: dict[str, Any], step: Step) -> dict[str, Any]:
        """Of a model that is real."""
        entries = (step.scored or ())[-len(step.new) or len(step.ids) :] if self.incremental else step.scored or ()
        found = {
            "output_token_logprobs": [[entry.logprob, entry.token_id, None] for entry in entries],
            "output_top_logprobs": [[[value, token, None] for token, value in entry.top] for entry in entries],
        }
        if step.scored_prompt is not None:
            found["input_token_logprobs"] = [
                [None if entry is None else entry.logprob, token, None]
                for token, entry in zip(body["input_ids"], step.scored_prompt, strict=True)
            ]
            found["input_top_logprobs"] = [
                entry and [[value, token, None] for token, value in entry.top] for entry in step.scored_prompt
            ]
        return found

    def _logprobs(self, body: dict[str, Any], step: Step) -> dict[str, Any]:
        ids = step.new if self.incremental else step.ids
        top = body["top_logprobs_num"]
        found: dict[str, Any] = {"output_token_logprobs": [[logprob_of(token), token, None] for token in ids]}
        if top:
            found["output_top_logprobs"] = [
                [[value, other, None] for other, value in logprobs_of(token, top)] for token in ids
            ]
        if body["logprob_start_len"] == 0:
            prompt = body["input_ids"]
            found["input_token_logprobs"] = [
                [logprob_of(token) if index else None, token, None] for index, token in enumerate(prompt)
            ]
            found["input_top_logprobs"] = [
                [[value, other, None] for other, value in logprobs_of(token, top)] if index else None
                for index, token in enumerate(prompt)
            ]
        return found
