"""One choice of a reply: engine chunks in, reply deltas out, no I/O.

The only place where tokens become text, text becomes events, and tokens are counted. Knows nothing of engines'
wires, of HTTP or of other choices. Two invariants: every generated token is counted once (the end token included),
and a choice ends once.

A token counts as reasoning when the parser is inside reasoning before or after it: both markers count, as in
SGLang's own count of everything up to and including the end marker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paraserve.engines.base import EngineChunk, Finish, TokenLogprob
from paraserve.formats.events import ContentDelta, FormatEvent, cut_deltas, join_deltas
from paraserve.formats.reading.reply_parser import ReplyParser
from paraserve.formats.types import TextEnd
from paraserve.generation.detokenize import Detokenizer
from paraserve.generation.events import ChoiceEnd, FinishReason, GeneratedToken, ReplyDelta
from paraserve.generation.stop import StopMatcher


class RawText:
    """Shows the text as it is, and lets a parser watch it for the sake of the reasoning count (completions)."""

    def __init__(self, watcher: ReplyParser) -> None:
        self._watcher = watcher
        self.completed_calls = 0
        self.open_call = False
        self.broken_calls = 0
        self.stray_markers = 0

    @property
    def in_reasoning(self) -> bool:
        return self._watcher.in_reasoning

    def plain(self, text: str) -> FormatEvent | None:
        return None if self._watcher.plain(text) is None else ContentDelta(text)

    def feed(self, text: str) -> list[FormatEvent]:
        self._watcher.feed(text)
        return [ContentDelta(text)] if text else []

    def finish(self, reason: TextEnd) -> list[FormatEvent]:
        self._watcher.finish(reason)
        return []


TextParser = ReplyParser | RawText
"""What a choice reads its text with."""

_SHORT = 512
"""Characters of text that make no long delta, whatever they are in it."""


class Choice:
    """Args:
    index: the choice's number in the response.
    detokenizer, parser: fresh ones, for this choice alone.
    end_ids: ids that end the reply and are not part of its text.
    max_tokens: at most this many tokens are taken, whatever the engine sends.
    stop: stop strings, or none.
    stop_in_reasoning: whether stop strings work while the model is reasoning.
    closers: markers that end a call. A stop string that is one of them ends the call too; any other one cuts it.
    logprobs: whether deltas carry their tokens.
    """

    def __init__(
        self,
        index: int,
        *,
        detokenizer: Detokenizer,
        parser: TextParser,
        end_ids: Collection[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        stop_in_reasoning: bool = True,
        closers: Collection[str] = (),
        logprobs: bool = False,
    ) -> None:
        self.index = index
        self.end: ChoiceEnd | None = None
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.answered = False
        """Whether there was content other than whitespace."""
        self._detokenizer = detokenizer
        self._parser = parser
        self._end_ids = end_ids
        self._max_tokens = max_tokens
        self._stop = StopMatcher(stop) if stop else None
        self._stop_in_reasoning = stop_in_reasoning
        self._closers = closers
        self._logprobs = logprobs
        self._by_token = logprobs or self._stop is not None
        """Whether each token must be looked at alone, even in text that is plain."""

    @property
    def completed_calls(self) -> int:
        return self._parser.completed_calls

    @property
    def broken_calls(self) -> int:
        """What looked like a call and did not become one."""
        return self._parser.broken_calls

    @property
    def stray_markers(self) -> int:
        """Special tokens of the format that opened or closed nothing, which nobody was shown."""
        return self._parser.stray_markers

    @property
    def only_reasoned(self) -> bool:
        """Whether the reply has ended with reasoning but neither content nor a call: an agent gets an empty turn."""
        called = self._parser.completed_calls or self._parser.open_call
        return self.end is not None and self.reasoning_tokens > 0 and not self.answered and not called

    def advance(self, chunk: EngineChunk) -> ReplyDelta:
        """Take one chunk, whose finish is no abort. `end` is set when it was the last one that matters."""
        if chunk.prompt_tokens is not None:
            self.prompt_tokens = chunk.prompt_tokens
        if chunk.cached_tokens is not None:
            self.cached_tokens = chunk.cached_tokens
        finish = chunk.finish
        if finish is None and not self._by_token and (delta := self._advance_plainly(chunk.token_ids)) is not None:
            return delta
        token_ids = chunk.token_ids
        room = self._max_tokens - self.completion_tokens
        if len(token_ids) > room:
            token_ids, finish = token_ids[:room], Finish("length")
        end_token = finish is not None and finish.reason == "stop" and self._ends_with_end_token(token_ids, finish)
        logprobs = chunk.logprobs if self._logprobs else None
        events: list[FormatEvent] = []
        tokens: list[GeneratedToken] = []
        self._take(token_ids[:-1] if end_token else token_ids, logprobs, events, tokens)
        if self._stop is not None and self._stop.matched is not None:
            self._close("stop", self._stop.matched, events)
        elif finish is not None:
            if end_token:
                self._count(self._parser.in_reasoning)
                if logprobs is not None:
                    tokens.append(_generated(logprobs[len(token_ids) - 1], ""))
            matched = token_ids[-1] if end_token else finish.matched
            self._close("length" if finish.reason == "length" else "stop", matched, events)
        if not self.answered and events:
            self.answered = any(isinstance(event, ContentDelta) and not event.text.isspace() for event in events)
        return ReplyDelta(self.index, cut_deltas(events), tokens, self.completion_tokens, self.reasoning_tokens)

    def _advance_plainly(self, token_ids: Sequence[int]) -> ReplyDelta | None:
        """The short way of most tokens: they only add to the text. None, and nothing has happened, where they may do
        more."""
        count = len(token_ids)
        if self.completion_tokens + count > self._max_tokens:
            return None
        text = self._detokenizer.whole(token_ids)
        event = self._parser.plain(text) if text else None
        if event is None:
            return None
        self.completion_tokens += count
        if self._parser.in_reasoning:
            self.reasoning_tokens += count
        if not self.answered:
            self.answered = type(event) is ContentDelta and not event.text.isspace()
        events = (event,) if len(text) < _SHORT else cut_deltas((event,))
        return ReplyDelta(self.index, events, (), self.completion_tokens, self.reasoning_tokens)

    def _ends_with_end_token(self, token_ids: Sequence[int], finish: Finish) -> bool:
        return bool(token_ids) and (token_ids[-1] in self._end_ids or token_ids[-1] == finish.matched)

    def _take(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob] | None,
        events: list[FormatEvent],
        tokens: list[GeneratedToken],
    ) -> None:
        for i, text in enumerate(self._detokenizer.pieces(token_ids)):
            before = self._parser.in_reasoning
            if text:
                events += self._show(text)
            self._count(before or self._parser.in_reasoning)
            if logprobs is not None:
                tokens.append(_generated(logprobs[i], text))
            if self._stop is not None and self._stop.matched is not None:
                return
        if logprobs is None and len(events) > 1:
            events[:] = join_deltas(events)

    def _count(self, reasoning: bool, tokens: int = 1) -> None:
        self.completion_tokens += tokens
        if reasoning:
            self.reasoning_tokens += tokens

    def _show(self, text: str) -> list[FormatEvent]:
        if self._stop is None:
            return self._parser.feed(text)
        if self._stop_in_reasoning:
            text = self._stop.feed(text)
            return self._parser.feed(text) if text else []
        return self._show_outside_reasoning(text, self._stop)

    def _show_outside_reasoning(self, text: str, stop: StopMatcher) -> list[FormatEvent]:
        """Stop strings sleep inside reasoning. A token may hold the end of one and the beginning of the other, so the
        state is asked at each character; what was held back leaves before the reasoning goes on."""
        events: list[FormatEvent] = []
        for character in text:
            shown = stop.finish() + character if self._parser.in_reasoning else stop.feed(character)
            if shown:
                events += self._parser.feed(shown)
            if stop.matched is not None:
                break
        return join_deltas(events)

    def _close(self, reason: TextEnd, matched: int | str | None, events: list[FormatEvent]) -> None:
        if not isinstance(matched, str):
            rest = self._detokenizer.finish()
            if rest:
                events += self._show(rest)
            if self._stop is not None and (held := self._stop.finish()):
                events += self._parser.feed(held)
        cut = isinstance(matched, str) and matched.strip() not in self._closers
        events += self._parser.finish("abort" if cut else reason)
        finish_reason: FinishReason = "length" if reason == "length" else "stop"
        if self._parser.completed_calls and not self._parser.open_call:
            finish_reason = "tool_calls"
        self.end = ChoiceEnd(self.index, finish_reason, matched)


def _generated(entry: TokenLogprob, text: str) -> GeneratedToken:
    return GeneratedToken(entry.token_id, text, entry.logprob, entry.top)
