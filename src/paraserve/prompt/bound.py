"""The longest text that may fit into the context, so that what cannot is refused before a tokenizer sees it.

Invariant: no text is refused whose ids would fit, unless a tokenizer drops more than half of it before it cuts it into
tokens (blanks of which there are millions).
"""

from __future__ import annotations

from dataclasses import dataclass

from paraserve.prompt.errors import PromptError
from paraserve.protocol.error_codes import ErrorCode
from paraserve.tokenizers.base import Tokenizer

_COMPOSED = 2
"""A character that normalizing (NFC) makes of several has at least half as many bytes as those were."""


@dataclass(frozen=True, slots=True)
class PromptBound:
    """Args:
    context_length: tokens of prompt and reply together.
    chars_per_token: the most characters that may become one token.
    """

    context_length: int
    chars_per_token: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, context_length: int) -> PromptBound:
        longest = max((len(tokenizer.token_bytes(number)) for number in range(tokenizer.vocab_size)), default=1)
        return cls(context_length, _COMPOSED * max(longest, 1))

    def check(self, text: str, param: str = "messages") -> None:
        """Raises `PromptError` in the wording that agents look for ("maximum context length")."""
        least = len(text) // self.chars_per_token
        if least >= self.context_length:
            raise PromptError(
                f"This model's maximum context length is {self.context_length} tokens. However, your input resulted "
                f"in at least {least} tokens. Please reduce the length of the input.",
                param,
                ErrorCode.CONTEXT_LENGTH_EXCEEDED,
            )
