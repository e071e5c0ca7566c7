"""Log probabilities that llama.cpp's server has no request for: of a prompt's tokens, and of parts of characters.

A prompt is scored by making the model write it: a grammar that allows exactly the prompt's next token, whatever its
probability, while the probabilities that are told are those before any grammar. Never knows requests of ours. One
invariant: every value comes from the model's own distribution after exactly the tokens that precede.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from paraserve.engines.base import LEAST_LOGPROB, EngineError, TokenLogprob
from paraserve.engines.llama_cpp.body import LARK_HEADER
from paraserve.engines.llama_cpp.events import Piece
from paraserve.protocol.error_codes import ErrorCode

Headers = Mapping[str, str]
"""Those of the client's request that go along with each of ours."""
Ask = Callable[[str, dict[str, Any], Headers], Awaitable[Any]]
"""Sends a body to a path of the server and gives the decoded reply."""
RunPieces = Callable[[dict[str, Any], Headers], AsyncGenerator[list[Piece], None]]
"""Sends a streamed completion's body and gives its pieces, read by read."""

CERTAIN = 1e6
"""A bias that no logit outweighs."""
LIKELY_WIDTH = 64
"""Alternatives in which a token that was sampled is looked for, before all are asked for."""
GRAMMAR_TOKENS = 256
"""Tokens that one grammar spells: it is compiled whole."""

GREEDY = {
    "samplers": ["temperature"],
    "temperature": 0.0,
    "mirostat": 0,
    "post_sampling_probs": False,
    "backend_sampling": False,
    "ignore_eos": False,
    "stop": [],
}


class TokenScores:
    """
    Args:
        whole_token: an id that is a whole character.
        ends: ids at which the server ends a reply, whatever the grammar says.
    """

    def __init__(self, ask: Ask, run: RunPieces, *, vocab_size: int, whole_token: int, ends: frozenset[int]) -> None:
        self._ask = ask
        self._run = run
        self._vocab_size = vocab_size
        self._whole_token = whole_token
        self._ends = ends

    async def of_prompt(self, ids: Sequence[int], top: int, headers: Headers) -> list[TokenLogprob | None]:
        """One entry for each token, None for the first; takes as long as writing the prompt. Raises `EngineError`."""
        entries: list[TokenLogprob | None] = [None]
        while len(entries) < len(ids):
            entries += await self._written(ids, len(entries), top, headers)
        return entries

    async def of_token(self, before: Sequence[int], token_id: int, top: int, headers: Headers) -> TokenLogprob:
        """Of any token after others, also one that ends inside a character.

        The server tells no probabilities where such a token is sampled, but does where it is an alternative to one
        that is not: so that one is forced, and the token is looked for beside it.
        """
        for width in (max(LIKELY_WIDTH, top), self._vocab_size):
            body = GREEDY | {
                "prompt": list(before),
                "n_predict": 1,
                "n_probs": width,
                "logit_bias": [[self._whole_token, CERTAIN]],
                "response_fields": ["completion_probabilities"],
            }
            told = await self._ask("/completion", body, headers)
            alternatives = told["completion_probabilities"][0]["top_logprobs"]
            ranked = [(entry["id"], max(entry["logprob"], LEAST_LOGPROB)) for entry in alternatives]
            for found, logprob in ranked:
                if found == token_id:
                    return TokenLogprob(token_id, logprob, ranked[:top])
        raise EngineError(502, ErrorCode.ENGINE_ERROR, "The engine gave no probability of a token of its vocabulary.")

    async def _written(self, ids: Sequence[int], begin: int, top: int, headers: Headers) -> list[TokenLogprob]:
        """Entries of the tokens from ``begin`` on, as many as one grammar spells."""
        wanted = _up_to_an_end(ids[begin : begin + GRAMMAR_TOKENS], self._ends)
        spelled = " ".join(f"<[{token_id}]>" for token_id in wanted)
        body = GREEDY | {
            "prompt": list(ids[:begin]),
            "n_predict": len(wanted),
            "n_probs": max(1, top),
            "logit_bias": [],
            "grammar": f"{LARK_HEADER}start: {spelled}\n",
            "stream": True,
            "return_tokens": True,
        }
        told: dict[int, TokenLogprob] = {}
        place = 0
        async with aclosing(self._run(body, headers)) as reads:
            pieces = [piece async for read in reads for piece in read]
        for piece in pieces:
            if piece.ids != wanted[place : place + len(piece.ids)]:
                raise EngineError(
                    502, ErrorCode.ENGINE_ERROR, "The engine did not keep to the prompt that it was to score."
                )
            place += len(piece.ids)
            for back, entry in enumerate(reversed(piece.logprobs), 1):
                told[place - back] = TokenLogprob(entry.token_id, entry.logprob, entry.top[:top])
        return [
            told[index] if index in told else await self.of_token(ids[: begin + index], token_id, top, headers)
            for index, token_id in enumerate(wanted)
        ]


def _up_to_an_end(ids: Sequence[int], ends: frozenset[int]) -> list[int]:
    return list(ids[: next((index + 1 for index, token_id in enumerate(ids) if token_id in ends), len(ids))])
