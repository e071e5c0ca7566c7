"""The test engine: it keeps the engine contract, and does what a script says."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from paraserve.engines.base import EngineChunk, EngineError, EngineInfo, EngineRequest, EngineStartError, Sampling
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.engines.scripted.script_file import scripted_engine
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, ids_of
from tests.waiting import until

PROMPTS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


class TestScriptedContract(EngineContract):
    @pytest.fixture
    async def case(self) -> EngineCase:
        engine = ScriptedEngine(
            [
                ScriptedReply(
                    [1000 * (index + 1) + step for step in range(80)],
                    chunk_sizes=(2, 1, 3),
                    first_delay=0.1,
                    cached_tokens=1,
                    prompt_prefix=prompt,
                )
                for index, prompt in enumerate(PROMPTS)
            ],
            capacity=64,
        )

        async def running() -> int:
            return engine.running

        return EngineCase(engine, PROMPTS, running, slow_prompt=PROMPTS[0], capacity=engine.capacity)


def ask(prompt: list[int] | None = None, *, max_tokens: int = 100, request_id: str = "r") -> EngineRequest:
    return EngineRequest(request_id, prompt or [1], Sampling(max_tokens=max_tokens))


async def test_replies_come_in_order_and_start_over() -> None:
    engine = ScriptedEngine([ScriptedReply([1, 2]), ScriptedReply([3])])
    assert [ids_of(await collect(engine, ask())) for _ in range(3)] == [[1, 2], [3], [1, 2]]


async def test_the_order_of_calls_decides_not_the_order_of_iteration() -> None:
    engine = ScriptedEngine([ScriptedReply([1]), ScriptedReply([2])])
    first, second = Chunks(engine, ask()), Chunks(engine, ask())
    assert (await anext(second)).token_ids == [2]
    assert (await anext(first)).token_ids == [1]


async def test_a_script_that_is_used_up_answers_an_error_where_repeating_is_off() -> None:
    engine = ScriptedEngine([ScriptedReply([1])], repeat=False)
    await collect(engine, ask())
    with pytest.raises(EngineError, match="no reply"):
        await collect(engine, ask())


async def test_a_rule_on_the_prompt_wins_over_the_order() -> None:
    engine = ScriptedEngine(
        [ScriptedReply([1]), ScriptedReply([2], prompt_prefix=[7, 7]), ScriptedReply([3], when="b")],
        decode=lambda ids: "".join(map(chr, ids)),
    )
    assert ids_of(await collect(engine, ask([7, 7, 8]))) == [2]
    assert ids_of(await collect(engine, ask([ord("a"), ord("b")]))) == [3]
    assert ids_of(await collect(engine, ask([ord("a")]))) == [1]


@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_a_failure_comes_after_as_many_chunks_as_the_script_says(after: int) -> None:
    failure = EngineError(503, "engine_error", "gone")
    engine = ScriptedEngine([ScriptedReply([1, 2, 3], error=failure, error_after=after)])
    seen: list[EngineChunk] = []

    async def read() -> None:
        async for chunk in Chunks(engine, ask()):
            seen.append(chunk)

    with pytest.raises(EngineError) as caught:
        await read()
    assert caught.value is failure
    assert ids_of(seen) == [1, 2, 3][:after]
    assert engine.aborted == []
    assert engine.running == 0


@pytest.mark.parametrize("after", [0, 2, 3])
async def test_a_silent_reply_ends_only_when_it_is_closed(after: int) -> None:
    engine = ScriptedEngine([ScriptedReply([1, 2, 3], hang_after=after)])
    seen: list[EngineChunk] = []

    async def read() -> None:
        async with aclosing(Chunks(engine, ask(request_id="hung"))) as chunks:
            async for chunk in chunks:
                seen.append(chunk)

    reading = asyncio.ensure_future(read())
    await until(lambda: engine.running and len(ids_of(seen)) == after)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert ids_of(seen) == [1, 2, 3][:after]
    assert engine.aborted == ["hung"]
    assert engine.running == 0


async def test_pacing_is_kept() -> None:
    engine = ScriptedEngine([ScriptedReply([1, 2, 3], first_delay=0.05, delay=0.03)])
    loop = asyncio.get_running_loop()
    begin = loop.time()
    chunks = [(loop.time() - begin, chunk) async for chunk in Chunks(engine, ask())]
    assert ids_of([chunk for _, chunk in chunks]) == [1, 2, 3]
    times = [at for at, _ in chunks]
    assert times[0] >= 0.05
    assert times[-1] >= 0.11


async def test_an_end_token_in_the_script_ends_the_reply_unless_it_is_ignored() -> None:
    info = EngineInfo(context_length=64, vocab_size=100, eos_token_ids=frozenset({9}))
    engine = ScriptedEngine([ScriptedReply([1, 9, 2])], info)
    stopped = await collect(engine, ask())
    assert (ids_of(stopped), stopped[-1].finish.reason) == ([1, 9], "stop")  # type: ignore[union-attr]
    ignoring = EngineRequest("r", [1], Sampling(max_tokens=9, ignore_eos=True))
    assert ids_of(await collect(engine, ignoring)) == [1, 9, 2]


async def test_it_records_what_it_was_asked() -> None:
    engine = ScriptedEngine([ScriptedReply([1])])
    request = ask([5, 6], request_id="mine")
    await collect(engine, request)
    assert engine.requests == [request]


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def decode(ids: list[int]) -> str:
    return "".join(map(chr, ids))


async def test_a_file_says_the_same_in_yaml_and_json(tmp_path: Path) -> None:
    script = {
        "model": "m",
        "context_length": 99,
        "constraints": ["json_schema"],
        "replies": [
            {"text": "hi", "chunk": [1, 2], "cached_tokens": 1},
            {"when": "x", "token_ids": [5], "error": {"status": 503, "message": "no", "after": 1}},
        ],
    }
    (tmp_path / "s.json").write_text(json.dumps(script))
    (tmp_path / "s.yaml").write_text(
        "model: m\ncontext_length: 99\nconstraints: [json_schema]\nreplies:\n"
        "  - {text: hi, chunk: [1, 2], cached_tokens: 1}\n"
        "  - when: x\n    token_ids: [5]\n    error: {status: 503, message: 'no', after: 1}\n"
    )
    engines = [
        scripted_engine(tmp_path / name, encode=encode, decode=decode, vocab_size=300, eos_token_ids=[2])  # type: ignore[arg-type]
        for name in ("s.json", "s.yaml")
    ]
    for engine in engines:
        assert engine.info.context_length == 99
        assert engine.info.constraints == {"json_schema"}
        chunks = await collect(engine, ask())
        assert [list(chunk.token_ids) for chunk in chunks] == [[ord("h")], [ord("i"), 2]]
        assert chunks[-1].finish.matched == 2  # type: ignore[union-attr]
        with pytest.raises(EngineError) as caught:
            await collect(engine, ask([ord("x")]))
        assert caught.value.status == 503


async def test_a_json_file_may_escape_every_character(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"replies": [{"text": "\U0001f324\ufe0f\t\u00e9"}]}))
    engine = scripted_engine(tmp_path / "s.json", encode=encode)
    assert list(engine.replies[0].token_ids) == encode("\U0001f324\ufe0f\t\u00e9")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("replies: [{txt: a}]", "txt"),
        ("replies: []", "no replies"),
        ("replies: [{text: a, delay: fast}]", r"\$.replies\[0\].delay"),
        ("replies: [{text: a, token_ids: [1]}]", "both"),
        ("replies: [", "wrong"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    with pytest.raises(EngineStartError, match=told):
        scripted_engine(path, encode=encode)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="cannot read"):
        scripted_engine(tmp_path / "none.yaml", encode=encode)
