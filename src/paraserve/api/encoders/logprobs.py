"""Log probabilities in the two forms of the API."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from paraserve.api.encoders.shape import TokenBytes
from paraserve.engines.base import LEAST_LOGPROB
from paraserve.generation.events import GeneratedToken
from paraserve.protocol.chat import TokenLogprobEntry, TopLogprob
from paraserve.protocol.completions import CompletionLogprobs

_new_decoder = codecs.getincrementaldecoder("utf-8")


def chat_logprobs(tokens: Iterable[GeneratedToken], token_bytes: TokenBytes) -> list[TokenLogprobEntry]:
    """One entry a token; ``bytes`` are exact where ``token`` shows only a part of a character."""
    return [
        TokenLogprobEntry(
            token=(raw := token_bytes(token.token_id)).decode("utf-8", "replace"),
            logprob=max(token.logprob, LEAST_LOGPROB),
            bytes=list(raw),
            top_logprobs=[
                TopLogprob(
                    (other := token_bytes(i)).decode("utf-8", "replace"), max(logprob, LEAST_LOGPROB), list(other)
                )
                for i, logprob in token.top
            ],
        )
        for token in tokens
    ]


def completion_logprobs(
    tokens: Sequence[tuple[str, GeneratedToken | None]], offset: int, token_bytes: TokenBytes
) -> CompletionLogprobs:
    """The legacy form: parallel lists.

    Args:
        tokens: what each token added to the text, and the token (None where no log probability is defined: the first
            of a prompt). The texts join to the choice's text.
        offset: where the first of them stands in the choice's text, in characters.
    """
    offsets = []
    for text, _ in tokens:
        offsets.append(offset)
        offset += len(text)
    return CompletionLogprobs(
        tokens=[text for text, _ in tokens],
        token_logprobs=[None if token is None else max(token.logprob, LEAST_LOGPROB) for _, token in tokens],
        top_logprobs=[None if token is None else _top(token, token_bytes) for _, token in tokens],
        text_offset=offsets,
    )


def ends_inside_character(raw: bytes) -> bool:
    """Whether the last bytes are the beginning of a character of UTF-8."""
    decoder = _new_decoder("replace")
    decoder.decode(raw)
    return bool(decoder.getstate()[0])


def _top(token: GeneratedToken, token_bytes: TokenBytes) -> dict[str, float]:
    """The likeliest tokens by text, and the sampled one among them, as OpenAI's legacy endpoint has it."""
    top: dict[str, float] = {}
    for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
        top.setdefault(token_bytes(token_id).decode("utf-8", "replace"), max(logprob, LEAST_LOGPROB))
    return top
