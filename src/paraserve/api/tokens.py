"""What the model would read: ids of a text, text of ids, and the exact prompt of a chat request.

Every answer comes from the code that serves the request itself, so it cannot differ from it.
"""

from __future__ import annotations

from functools import partial

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from paraserve.api.body import deployment_of, json_response, read_body
from paraserve.api.chat import ChatTurn
from paraserve.api.observed import record_of
from paraserve.api.replies import prepared
from paraserve.deployment import Deployment
from paraserve.prompt.chat import PreparedPrompt
from paraserve.protocol.chat import decode_chat
from paraserve.protocol.sampling import check_token_ids
from paraserve.protocol.tokenize import (
    DetokenizeResponse,
    RenderResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)


async def tokenize(request: Request) -> Response:
    body = await read_body(request)
    asked = await prepared(request, len(body), partial(decode_tokenize, body))
    if asked.prompt is None:
        turn = await prepared(request, len(body), lambda: ChatTurn(request, asked, body, generates=False))
        with turn:
            prompt = await turn.prompt()
        return await turn.prepared(lambda: _tokens(request, asked, prompt.token_ids, prompt.text))
    return await prepared(request, len(body), partial(_tokenize_text, request, asked, asked.prompt))


def _tokenize_text(request: Request, asked: TokenizeRequest, text: str) -> Response:
    deployment = _reads_model(request, asked.model)
    ids = deployment.encode(text, add_special_tokens=asked.add_special_tokens is not False)
    return _tokens(request, asked, ids, text)


def _reads_model(request: Request, model: str | None) -> Deployment:
    """Raises `RequestError` for a model that is not served here."""
    deployment = deployment_of(request)
    record_of(request.scope).read(deployment.asked_model(model), stream=False)
    deployment.model_name(model)
    return deployment


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
    body = await read_body(request)
    return await prepared(request, len(body), partial(_detokenize, request, body))


def _detokenize(request: Request, body: bytes) -> Response:
    asked = decode_detokenize(body)
    tokenizer = _reads_model(request, asked.model).tokenizer
    check_token_ids(asked.tokens, tokenizer.vocab_size, "tokens")
    text = tokenizer.decode(asked.tokens, skip_special_tokens=asked.skip_special_tokens)
    return json_response(DetokenizeResponse(text=text, prompt=text))


async def render_chat(request: Request) -> Response:
    """The prompt of a chat request, as it would be sent to the engine, and what was adapted on the way."""
    body = await read_body(request)
    turn = await prepared(request, len(body), lambda: ChatTurn(request, decode_chat(body), body, generates=False))
    with turn:
        prompt = await turn.prompt()
    return await turn.prepared(lambda: _rendered(turn, prompt))


def _rendered(turn: ChatTurn, prompt: PreparedPrompt) -> Response:
    rendered = RenderResponse(
        text=prompt.text,
        tokens=prompt.token_ids,
        count=len(prompt.token_ids),
        max_model_len=turn.deployment.context_length,
        reply_starts=prompt.start.value,
        prefill=prompt.prefill,
        normalizations=list(prompt.normalizations),
        policies=list(turn.ledger.policies),
    )
    return json_response(rendered)
