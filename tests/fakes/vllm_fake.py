"""A server that speaks vLLM 0.32's token API as ``docs/engines.md`` describes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.asgi import Broken, Receive, Send, only, read_body, send_json, send_stream
from tests.fakes.sequences import EOS, VOCAB, FakeModel, Step, framed, logprob_of, logprobs_of
from tests.fakes.vllm_checks import Limits, refused_at_once, refused_in_the_stream


@dataclass
class FakeVLLM:
    """A vLLM server. ``scale_out`` is ``--enable-scale-out``, ``details`` is ``--enable-prompt-tokens-details``."""

    model: FakeModel = field(default_factory=FakeModel)
    model_path: str = "/models/fake"
    scale_out: bool = True
    details: bool = True
    limits: Limits = field(default_factory=lambda: Limits(vocab=VOCAB))
    loras: tuple[str, ...] = ()
    healthy: bool = True
    renames: str | None = None
    """The ``x-request-id`` that a proxy in front puts in the place of the sent one."""
    usage: bool = True
    """False: the connection breaks between the finish and the usage."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    aborts: list[str] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path.startswith("/inference/") and not self.scale_out:
            await send_json(send, 403, error_body(403, "Scale-out endpoints are disabled."))
            return
        match path:
            case "/inference/v1/generate":
                headers = {name.decode(): value.decode() for name, value in scope["headers"]}
                await self._generate(json.loads(await read_body(receive)), headers, receive, send)
            case "/inference/v1/abort_requests":
                for name in json.loads(await read_body(receive))["request_ids"]:
                    self.aborts.append(name)
                    self.model.abort(name)
                await send_json(send, 200, None)
            case "/v1/models":
                await send_json(
                    send,
                    200,
                    {"data": [{"id": "fake", "root": self.model_path, "max_model_len": self.limits.max_model_len}]},
                )
            case "/version":
                await send_json(send, 200, {"version": "0.32.0"})
            case "/health":
                await send_json(send, 200 if self.healthy else 503, None)
            case _:
                await send_json(send, 404, {"detail": "Not Found"})

    async def _generate(self, body: dict[str, Any], headers: dict[str, str], receive: Receive, send: Send) -> None:
        self.requests.append(body)
        self.headers.append(headers)
        how = self.model.behaviour
        if refused := self._refusal(body):
            await send_json(send, refused["error"]["code"], refused)
            return
        if said := refused_in_the_stream(body, self.limits):
            await send_stream(receive, send, framed(only(json.dumps(error_body(400, said)).encode()), how))
            return
        name = f"generate-tokens-{self.renames or headers.get('x-request-id', body['request_id'])}"
        params = body["sampling_params"]
        # A limit beyond the context is taken, and ends where that does.
        room = self.limits.max_model_len - len(body["token_ids"])
        obeyed = {"stop_token_ids": [], **params, "max_tokens": min(params["max_tokens"], room)}
        steps = self.model.start(name, body["token_ids"], obeyed)
        await send_stream(receive, send, framed(self._events(body, name, steps), how), how.head_delay)
        self.model.abort(name)  # a disconnect aborts

    def _refusal(self, body: dict[str, Any]) -> dict[str, Any] | None:
        how = self.model.behaviour
        if how.status != 200:
            return error_body(how.status, how.message)
        if "model" in body and body["model"] not in ("fake", *self.loras):
            return error_body(404, f"The model `{body['model']}` does not exist.")
        return error_body(400, said) if (said := refused_at_once(body)) else None

    async def _events(self, body: dict[str, Any], name: str, steps: asyncio.Queue[Step]) -> AsyncIterator[bytes]:
        how, index, made = self.model.behaviour, 0, 0
        while True:
            if how.error_after == index:
                yield json.dumps(error_body(how.error_status, how.message)).encode()
                break
            if how.garbage_after == index:
                yield b'{"choices": [{"token_ids": [1,'
                break
            if how.end_after == index:
                break
            step = await steps.get()
            if how.abort_after == index:
                step = Step([], step.ids, "abort")
            made += len(step.new)
            event = self._event(body, name, step)
            if how.cut_after == index:
                yield event[:20]
                raise Broken
            yield event
            index += 1
            if step.finish is not None:
                if not self.usage:
                    raise Broken
                yield self._usage(body, name, made)
                break
        yield b"[DONE]"

    def _event(self, body: dict[str, Any], name: str, step: Step) -> bytes:
        wanted = body["sampling_params"].get("logprobs")
        choice = {
            "index": 0,
            "logprobs": None if wanted is None else {"content": [self._content(t, wanted) for t in step.new]},
            "finish_reason": step.finish,
            "stop_reason": None if step.matched == EOS else step.matched,
            "token_ids": step.new,
        }
        return json.dumps({"request_id": name, "choices": [choice]}, separators=(",", ":")).encode()

    def _content(self, token: int, wanted: int) -> dict[str, Any]:
        """The sampled token first, then the most likely ones; no more than are wanted."""
        ranked = [
            {"token_id": other, "logprob": value, "rank": rank + 1}
            for rank, (other, value) in enumerate(logprobs_of(token, wanted))
        ]
        likely = any(entry["token_id"] == token for entry in ranked) or token % 7
        sampled = {"token_id": token, "logprob": logprob_of(token), "rank": 1 if likely else 600}
        others = [entry for entry in ranked if entry["token_id"] != token]
        return {**sampled, "top_logprobs": [sampled, *others][: max(wanted, 1)]}

    def _usage(self, body: dict[str, Any], name: str, made: int) -> bytes:
        prompt = len(body["token_ids"])
        usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}
        if self.details:
            usage["prompt_tokens_details"] = {"cached_tokens": self.model.behaviour.cached_tokens}
        return json.dumps({"request_id": name, "choices": [], "usage": usage}).encode()


def error_body(code: int | None, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": code}}
