"""``POST /v1/completions``, the legacy text endpoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Self

from starlette.requests import Request

from paraserve.api.encoders.completions import CompletionFold, CompletionStream, EchoedPrompt
from paraserve.api.encoders.shape import Fold, ReplyShape, StreamEncoder
from paraserve.api.turn import Turn
from paraserve.deployment import Deployment
from paraserve.formats.output import parser_for
from paraserve.generation.choice import RawText, TextParser
from paraserve.generation.plan import may_reason
from paraserve.prompt.chat import PreparedPrompt
from paraserve.protocol.completions import DEFAULT_MAX_TOKENS, CompletionRequest, decode_completion
from paraserve.protocol.errors import field_error
from paraserve.protocol.sampling import check_token_ids

MAX_CHOICES = 1024
"""The most choices (prompts times ``n``) of one request."""


class CompletionTurn(Turn[CompletionRequest]):
    policies = "completions"
    id_prefix = "cmpl"
    prompt_param = "prompt"
    default_limit = DEFAULT_MAX_TOKENS
    _echoed: Sequence[EchoedPrompt] = ()
    """One for each choice, where the request wants it."""

    @classmethod
    def read(cls, http: Request, body: bytes) -> Self:
        return cls(http, decode_completion(body), body)

    @property
    def choices(self) -> int:
        return len(self.request.prompts) * super().choices

    async def prompts(self) -> list[PreparedPrompt]:
        if self.choices > MAX_CHOICES:
            raise field_error("prompt", f"more than {MAX_CHOICES} choices in one request")
        return await self.prepared(self._prompts)

    def _prompts(self) -> list[PreparedPrompt]:
        sent, n = self.request.prompts, self.request.n or 1
        prompts = [self._prompt(prompt) for prompt in sent]
        if self.request.echo:
            echoed = [
                _echo(self.deployment, self.request, *pair)
                for pair in zip(sent, (prompt.token_ids for prompt in prompts), strict=True)
            ]
            self._echoed = [prompt for prompt in echoed for _ in range(n)]
        return prompts

    def _prompt(self, prompt: str | list[int]) -> PreparedPrompt:
        """A prompt's token ids; a text gets what the tokenizer puts around a text (a BOS, where it has one)."""
        deployment = self.deployment
        ids = deployment.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise field_error("prompt", "is empty, and this model has no token to start from")
        check_token_ids(ids, deployment.tokenizer.vocab_size, "prompt")
        start = deployment.start_of_text(ids)
        return PreparedPrompt(ids, "", start, thinks=may_reason(deployment.format, start))

    def parser(self, prompt: PreparedPrompt) -> TextParser:
        """Shows the text as it is; reasoning is still counted."""
        format = self.deployment.format
        return RawText(parser_for(format)(format, start=prompt.start, parse_tool_calls=False))

    def fold(self, shape: ReplyShape) -> Fold:
        return CompletionFold(shape, self._echoed)

    def encoder(self, shape: ReplyShape) -> StreamEncoder:
        return CompletionStream(shape, self._echoed)


def _echo(
    deployment: Deployment, request: CompletionRequest, prompt: str | list[int], token_ids: Sequence[int]
) -> EchoedPrompt:
    """A text as it was sent, special tokens in it included; ids as the text that they stand for.

    With log probabilities a text is that of its tokens, which then join to it: a tokenizer may normalize.
    """
    if isinstance(prompt, str) and request.logprobs is None:
        return EchoedPrompt(prompt, ())
    hides = not isinstance(prompt, str) and request.skip_special_tokens is not False
    detokenizer = deployment.vocabulary.detokenizer(hides)
    pieces = [detokenizer.feed((token_id,)) for token_id in token_ids]
    pieces[-1] += detokenizer.finish()
    if isinstance(prompt, str):
        _hide_added(pieces, token_ids, deployment.tokenizer.special_ids, prompt)
    return EchoedPrompt("".join(pieces), pieces)


def _hide_added(pieces: list[str], token_ids: Sequence[int], special_ids: Collection[int], prompt: str) -> None:
    """What the tokenizer put around the text (a BOS) is no part of it."""
    for at, wrote in ((0, prompt.startswith), (-1, prompt.endswith)):
        if token_ids[at] in special_ids and not wrote(pieces[at]):
            pieces[at] = ""
