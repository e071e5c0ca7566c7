"""Makes sure that llama.cpp's server obeys a grammar before a reply is trusted to it.

A Lark grammar that does not compile is dropped by the server with a line in its log, and the reply would be free text
with status 200. Never compiles a grammar itself. One invariant: fields that are given out are obeyed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from paraserve.engines.base import Constraint, EngineError
from paraserve.engines.llama_cpp.body import LARK_HEADER, LARK_MARK, grammar_of
from paraserve.engines.llama_cpp.scores import CERTAIN, GREEDY, Ask
from paraserve.protocol.error_codes import ErrorCode

KNOWN_GRAMMARS = 256
"""Grammars that are remembered as sound."""


class Grammars:
    """
    Args:
        whole_token: an id to make a prompt of.
        forbidden: an id that no text can begin with, None where the vocabulary has none.
    """

    def __init__(self, ask: Ask, *, whole_token: int, forbidden: int | None) -> None:
        self._ask = ask
        self._whole_token = whole_token
        self._forbidden = forbidden
        self._lark = False
        self._sound: OrderedDict[str, None] = OrderedDict()

    async def learn(self) -> bool:
        """Find out whether the server was built with llguidance. Raises `EngineError`."""
        try:
            self._lark = await self._obeys(f'{LARK_HEADER}start: "a"\n')
        except EngineError as error:
            if error.status != 400:
                raise
        return self._lark

    async def fields(self, constraint: Constraint) -> dict[str, Any]:
        """The fields of a request that is to obey. Raises `EngineError` (400) where the server would not."""
        fields = grammar_of(constraint, lark=self._lark)
        text = fields.get("grammar", "")
        if not text.startswith(LARK_MARK) or text in self._sound:
            return fields
        if not await self._obeys(text):
            message = f"The engine cannot compile the constraint ({constraint.kind})."
            raise EngineError(400, ErrorCode.INVALID_CONSTRAINT, message, param=constraint.param)
        self._sound[text] = None
        if len(self._sound) > KNOWN_GRAMMARS:
            self._sound.popitem(last=False)
        return fields

    async def _obeys(self, grammar: str) -> bool:
        """Whether the grammar keeps a token away that it cannot allow, pressed with a certain bias."""
        if self._forbidden is None:
            return False
        body = GREEDY | {
            "prompt": [self._whole_token],
            "n_predict": 1,
            "return_tokens": True,
            "logit_bias": [[self._forbidden, CERTAIN]],
            "grammar": grammar,
            "cache_prompt": False,
            "response_fields": ["tokens"],
        }
        tokens: list[int] = (await self._ask("/completion", body, {}))["tokens"]
        return tokens != [self._forbidden]
