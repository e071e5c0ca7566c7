"""Reply events as ``text_completion``, whole and streamed (both have the same object name in this legacy API)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from paraserve.api.encoders.logprobs import completion_logprobs, ends_inside_character
from paraserve.api.encoders.shape import OpenAIStream, ReplyShape
from paraserve.api.streams import event as sse_event
from paraserve.formats.events import LONGEST_DELTA, ContentDelta
from paraserve.generation.events import ChoiceEnd, GeneratedToken, PromptScored, ReplyDelta, ReplyEvent, Usage
from paraserve.protocol.completions import Completion, CompletionChoice, CompletionLogprobs

_json = msgspec.json.encode

ScoredText = tuple[str, GeneratedToken | None]


@dataclass(frozen=True, slots=True)
class EchoedPrompt:
    """A prompt that opens its choices' texts: ``pieces`` is what each of its tokens adds to ``text``."""

    text: str
    pieces: Sequence[str]


@dataclass(slots=True)
class _ChoiceText:
    """What one choice has said and not yet shown. ``unscored`` is text that was shown and no token accounts for yet,
    ``offset`` where it begins, in characters."""

    text: list[str] = field(default_factory=list)
    tokens: list[ScoredText] = field(default_factory=list)
    unscored: str = ""
    offset: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    end: ChoiceEnd | None = None


class _Texts:
    """Collects text and tokens by choice: what a fold and a stream have in common.

    Args:
        echo: one prompt for each choice, when the request wants it.
    """

    def __init__(self, shape: ReplyShape, echo: Sequence[EchoedPrompt] = ()) -> None:
        self._shape = shape
        self._echo = echo
        self._choices = [_ChoiceText() for _ in range(shape.choices)]
        for choice, prompt in zip(self._choices, echo, strict=False):
            choice.text.append(prompt.text)

    def _take(self, event: PromptScored | ReplyDelta) -> None:
        choice = self._choices[event.choice]
        if isinstance(event, PromptScored):
            choice.tokens += zip(self._echo[event.choice].pieces, event.tokens, strict=True)
            return
        choice.text += [part.text for part in event.events if isinstance(part, ContentDelta)]
        choice.tokens += [(token.text, token) for token in event.tokens]
        choice.completion_tokens, choice.reasoning_tokens = event.completion_tokens, event.reasoning_tokens

    def _show(self, index: int) -> CompletionChoice:
        """Everything that the choice has and that was not shown before."""
        choice = self._choices[index]
        text = "".join(choice.text)
        choice.text = []
        choice.unscored += text
        logprobs = self._logprobs(choice) if self._shape.logprobs else None
        end = choice.end
        reason = None if end is None else end.finish_reason
        return CompletionChoice(index, text, logprobs, reason, None if end is None else end.matched_stop)

    def _logprobs(self, choice: _ChoiceText) -> CompletionLogprobs:
        """The tokens of the text that is shown: at the end, their texts join to it.

        One that ends inside a character waits for what comes of it: the end may leave it more text.
        """
        ended, rest = choice.end is not None, choice.unscored
        due: list[ScoredText] = []
        for piece, token in choice.tokens:
            if not ended and len(piece) > len(rest):
                break
            due.append((rest[: len(piece)], token))  # less than the piece where a stop string took the rest
            rest = rest[len(piece) :]
        while due and not ended and self._may_get_more(*due[-1]):
            due.pop()
        if ended and due:  # what an incomplete character left
            due[-1] = (due[-1][0] + rest, due[-1][1])
        del choice.tokens[: len(due)]
        scored = completion_logprobs(due, choice.offset, self._shape.token_bytes)
        length = sum(len(text) for text, _ in due)
        choice.unscored, choice.offset = choice.unscored[length:], choice.offset + length
        return scored

    def _may_get_more(self, text: str, token: GeneratedToken | None) -> bool:
        return not text or (token is not None and ends_inside_character(self._shape.token_bytes(token.token_id)))


class CompletionFold(_Texts):
    """The whole response, from the events that a stream would have sent."""

    _usage: Usage

    def take(self, event: ReplyEvent) -> None:
        if isinstance(event, ChoiceEnd):
            self._choices[event.choice].end = event
        elif isinstance(event, Usage):
            self._usage = event
        else:
            self._take(event)

    def response(self) -> bytes:
        """JSON, once the last event was taken."""
        shape = self._shape
        return _json(
            Completion(
                id=shape.id,
                created=shape.created,
                model=shape.model,
                choices=[self._show(index) for index in range(len(self._choices))],
                usage=shape.usage(self._usage),
            )
        )


class CompletionStream(_Texts, OpenAIStream):
    """The same events as server-sent events."""

    def encode(self, event: ReplyEvent) -> bytes:
        """The frame of one event; empty when it shows nothing."""
        if isinstance(event, Usage):
            return self._frame([], self._shape.usage(event)) if self._shape.include_usage else b""
        if isinstance(event, ChoiceEnd):
            self._choices[event.choice].end = event
        else:
            self._take(event)
        choice = self._choices[event.choice]
        if choice.end is None and not any(choice.text):
            return b""
        return self._ahead(event.choice) + self._frame([self._show(event.choice)], self._counts())

    def _ahead(self, index: int) -> bytes:
        """The frames of all but the end of a long text. Log probabilities keep it whole: they are the text's tokens."""
        choice = self._choices[index]
        if self._shape.logprobs or sum(map(len, choice.text)) <= LONGEST_DELTA:
            return b""
        text = "".join(choice.text)
        *ahead, last = (text[at : at + LONGEST_DELTA] for at in range(0, len(text), LONGEST_DELTA))
        choice.text = [last]
        return b"".join(
            self._frame([CompletionChoice(index, piece, None, None, None)], self._counts()) for piece in ahead
        )

    def _counts(self) -> object:
        return self._running() if self._shape.continuous_usage else None

    def _frame(self, choices: list[CompletionChoice], usage: object) -> bytes:
        shape = self._shape
        chunk: dict[str, object] = {
            "id": shape.id,
            "object": "text_completion",
            "created": shape.created,
            "model": shape.model,
            "choices": choices,
        }
        if usage is not None:
            chunk["usage"] = usage
        return sse_event(_json(chunk))

    def _running(self) -> object:
        return self._shape.usage(
            Usage(
                prompt_tokens=self._shape.prompt_tokens,
                completion_tokens=sum(choice.completion_tokens for choice in self._choices),
                reasoning_tokens=sum(choice.reasoning_tokens for choice in self._choices),
                cached_tokens=None,
            )
        )
