"""One choice's run on an engine that pushes by hand: what is handed on, held, ended and aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from paraserve.engines.base import EngineChunk, EngineError, EngineRequest, Finish, Sampling, Sink, TokenLogprob
from paraserve.formats.output import parser_for
from paraserve.formats.spec import PLAIN
from paraserve.generation.choice import Choice
from paraserve.generation.detokenize import Detokenizer
from paraserve.generation.events import ReplyDelta, ReplyEvent, Usage
from paraserve.generation.run import MOST_HELD, EngineRun, run_reply
from tests.toy import END, TOKENIZER
from tests.waiting import until


class HandEngine:
    """An `Engine` as far as a run knows one. ``calls`` is what was asked of the generation; ``sinks`` take what a test
    pushes."""

    def __init__(self) -> None:
        self.sinks: list[Sink] = []
        self.calls: list[str] = []

    def submit(self, request: EngineRequest, sink: Sink) -> Any:
        self.sinks.append(sink)
        return self

    def abort(self) -> None:
        self.calls.append("abort")

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def push(self, text: str, finish: Finish | None = None, **fields: Any) -> None:
        self.sinks[0].take(EngineChunk(TOKENIZER.encode(text), finish=finish, **fields))

    def finish(self) -> None:
        self.sinks[0].take(EngineChunk([END], finish=Finish("stop", END)))
        self.sinks[0].end(None)


class Reader:
    """Takes a run's events. While it is ``slow`` it asks to be waited for until `catch_up`."""

    def __init__(self) -> None:
        self.events: list[ReplyEvent] = []
        self.slow = False
        self._ready = asyncio.Event()

    def take(self, events: Sequence[ReplyEvent]) -> Awaitable[object] | None:
        self.events += events
        if not self.slow:
            return None
        self._ready.clear()
        return self._ready.wait()

    def catch_up(self) -> None:
        self.slow = False
        self._ready.set()

    @property
    def text(self) -> str:
        deltas = [event for event in self.events if isinstance(event, ReplyDelta)]
        return "".join(str(getattr(part, "text", "")) for delta in deltas for part in delta.events)


def choice(index: int = 0, **fields: Any) -> Choice:
    return Choice(
        index,
        detokenizer=Detokenizer(TOKENIZER.token_bytes, TOKENIZER.special_ids),
        parser=parser_for(PLAIN)(PLAIN, tools=()),
        end_ids={END},
        max_tokens=10_000,
        **fields,
    )


def asked(of: Choice, logprobs: int | None = None) -> EngineRun:
    return EngineRun(EngineRequest("r", [1], Sampling(max_tokens=10_000), logprobs=logprobs), of)


class Running:
    """A run that has asked its engine."""

    def __init__(self, *runs: EngineRun) -> None:
        self.engine = HandEngine()
        self.reader = Reader()
        self.runs = runs or (asked(choice()),)
        self.task = asyncio.ensure_future(run_reply(self.engine, self.runs, self.reader.take))  # type: ignore[arg-type]

    async def begun(self) -> Running:
        await until(lambda: len(self.engine.sinks) == len(self.runs))
        return self


async def test_what_is_pushed_is_handed_on_within_the_push() -> None:
    running = await Running().begun()
    for text in ("Hel", "lo", " you"):
        before = running.reader.text
        running.engine.push(text)
        assert running.reader.text == before + text
    running.engine.finish()
    await running.task
    assert isinstance(running.reader.events[-1], Usage)
    assert running.engine.calls == ["abort"]  # of what has ended: nothing


async def test_a_reader_that_falls_behind_is_waited_for_and_gets_what_was_held_in_order() -> None:
    running = await Running().begun()
    running.reader.slow = True
    running.engine.push("a")
    assert running.engine.calls == []  # nothing has to wait yet
    for text in "bcd":
        running.engine.push(text)
    assert running.engine.calls == ["pause"]
    assert running.reader.text == "a"
    running.reader.catch_up()
    await until(lambda: running.engine.calls == ["pause", "resume"])
    assert running.reader.text == "abcd"
    running.engine.finish()
    await running.task


async def test_a_reader_that_falls_behind_again_gets_the_rest_later() -> None:
    running = await Running().begun()
    running.reader.slow = True
    for text in "abc":
        running.engine.push(text)
    running.engine.finish()
    running.reader._ready.set()
    await until(lambda: running.reader.text == "ab")
    running.reader._ready.set()
    await until(lambda: running.reader.text == "abc")
    assert not running.task.done()
    running.reader.catch_up()
    await running.task
    assert running.reader.text == "abc"


async def test_what_is_held_is_bounded_in_pieces_and_loses_nothing() -> None:
    running = await Running().begun()
    running.reader.slow = True
    count = 10 * MOST_HELD
    for _ in range(count):
        running.engine.push("x")
    pushed: Any = running.engine.sinks[0]
    assert len(pushed._held) < MOST_HELD
    running.engine.finish()
    running.reader.catch_up()
    await running.task
    assert running.reader.text == "x" * count
    assert running.runs[0].choice.completion_tokens == count + 1


@pytest.mark.parametrize("slow", [False, True])
async def test_a_failure_comes_behind_what_was_pushed_before_it(slow: bool) -> None:
    running = await Running().begun()
    running.reader.slow = slow
    running.engine.push("a")
    running.engine.push("b")
    running.engine.sinks[0].end(EngineError(502, "engine_error", "it failed"))
    running.reader.catch_up()
    with pytest.raises(EngineError, match="it failed"):
        await running.task
    assert running.reader.text == "ab"
    assert running.runs[0].timings.failure is not None


async def test_the_tokens_of_an_aborted_chunk_are_handed_on_and_then_told_of() -> None:
    running = await Running().begun()
    running.engine.push("ab", Finish("abort"))
    running.engine.sinks[0].end(None)
    with pytest.raises(EngineError) as caught:
        await running.task
    assert (caught.value.status, caught.value.code) == (502, "engine_aborted")
    assert running.reader.text == "ab"


async def test_an_end_without_a_finish_is_the_engines_error() -> None:
    running = await Running().begun()
    running.engine.push("ab")
    running.engine.sinks[0].end(None)
    with pytest.raises(EngineError, match="without saying why"):
        await running.task


async def test_a_stop_string_aborts_within_the_push() -> None:
    running = await Running(asked(choice(stop=["."]))).begun()
    running.engine.push("One. Two")
    assert running.engine.calls == ["abort"]
    await running.task
    assert running.reader.text == "One"


async def test_each_token_with_log_probabilities_is_a_delta_of_its_own() -> None:
    running = await Running(asked(choice(logprobs=True), logprobs=0)).begun()
    running.engine.push("abc", logprobs=[TokenLogprob(ord(letter), -1.0) for letter in "abc"])
    deltas = [event for event in running.reader.events if isinstance(event, ReplyDelta)]
    assert [[token.text for token in delta.tokens] for delta in deltas] == [["a"], ["b"], ["c"]]
    running.task.cancel()
    await asyncio.gather(running.task, return_exceptions=True)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.filterwarnings("error")
async def test_cancelling_aborts_once_and_leaves_nothing_unawaited(slow: bool) -> None:
    running = await Running().begun()
    running.reader.slow = slow
    running.engine.push("a")
    running.task.cancel()  # before the run has heard that its reader is behind
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert running.engine.calls == ["abort"]


async def test_a_fault_of_ours_is_raised_by_the_run_and_not_into_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    running = await Running().begun()

    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(running.runs[0].choice, "advance", broken)
    running.engine.push("a")
    assert running.engine.calls == ["abort"]
    running.engine.push("b")
    with pytest.raises(ZeroDivisionError):
        await running.task


async def test_the_first_of_several_choices_to_fail_ends_the_others() -> None:
    running = await Running(asked(choice(0)), asked(choice(1))).begun()
    running.engine.push("a")
    running.engine.sinks[1].end(EngineError(502, "engine_error", "it failed"))
    with pytest.raises(EngineError, match="it failed"):
        await running.task
    assert running.engine.calls == ["abort", "abort"]
