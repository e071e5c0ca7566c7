"""What the model would read: ids of a text, text of ids, and the exact prompt of a chat request.

Every answer comes from the code that serves the request itself, so it cannot differ from it.
"""

from __future__ import annotations

import asyncio

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body import read_body
from paraserve.api.chat import begin_turn, prepare_prompt
from paraserve.api.common import attributed, check_token_ids, deployment_of, json_response
from paraserve.api.observed import record_of
from paraserve.protocol.chat import decode_chat
from paraserve.protocol.tokenize import (
    DetokenizeResponse,
    RenderResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)


async def tokenize(request: Request) -> Response:
    deployment = deployment_of(request)
    asked = decode_tokenize(await read_body(request, deployment.settings.max_body_size))
    record_of(request.scope).read(deployment.asked_model(asked.model), stream=False)
    deployment.model_name(asked.model)
    if asked.prompt is not None:
        ids = await deployment.encode(asked.prompt, add_special_tokens=asked.add_special_tokens is not False)
        return _tokens(request, asked, ids, asked.prompt)
    turn = begin_turn(deployment, asked)
    with attributed(turn.ledger, turn.rules):
        prompt = await prepare_prompt(turn)
    return _tokens(request, asked, prompt.token_ids, prompt.text)


def _tokens(request: Request, asked: TokenizeRequest, ids: list[int], text: str) -> Response:
    deployment = deployment_of(request)
    token_bytes = deployment.tokenizer.token_bytes
    strings = [token_bytes(i).decode("utf-8", "replace") for i in ids] if asked.return_token_strs else UNSET
    return json_response(
        TokenizeResponse(
            tokens=ids,
            count=len(ids),
            max_model_len=deployment.context_length,
            text=text if asked.return_text else UNSET,
            token_strs=strings,
        )
    )


async def detokenize(request: Request) -> Response:
    deployment = deployment_of(request)
    asked = decode_detokenize(await read_body(request, deployment.settings.max_body_size))
    record_of(request.scope).read(deployment.asked_model(asked.model), stream=False)
    deployment.model_name(asked.model)
    check_token_ids(asked.tokens, deployment, "tokens")
    text = await asyncio.to_thread(
        deployment.tokenizer.decode, asked.tokens, skip_special_tokens=asked.skip_special_tokens
    )
    return json_response(DetokenizeResponse(text=text, prompt=text))


async def render_chat(request: Request) -> Response:
    """The prompt of a chat request, as it would be sent to the engine, and what was adapted on the way."""
    deployment = deployment_of(request)
    sent = decode_chat(await read_body(request, deployment.settings.max_body_size))
    record_of(request.scope).read(deployment.asked_model(sent.model), stream=False)
    deployment.model_name(sent.model)
    turn = begin_turn(deployment, sent)
    with attributed(turn.ledger, turn.rules):
        prompt = await prepare_prompt(turn)
    rendered = RenderResponse(
        text=prompt.text,
        tokens=prompt.token_ids,
        count=len(prompt.token_ids),
        max_model_len=deployment.context_length,
        reply_starts=prompt.start.value,
        prefill=prompt.prefill,
        normalizations=list(prompt.normalizations),
        policies=list(turn.ledger.policies),
    )
    return json_response(rendered)
