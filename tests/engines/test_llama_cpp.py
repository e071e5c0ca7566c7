"""llama.cpp with the real default model: the engine contract, and what its server leaves to the adapter."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from paraserve.engines.base import (
    Constraint,
    EngineChunk,
    EngineError,
    EngineRequest,
    EngineStartError,
    Finish,
    RoutingHints,
    Sampling,
    TokenLogprob,
)
from paraserve.engines.child import ChildServer, EngineAddress
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path, embedded_program
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.formats.families import FORMATS
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.grammar import tool_call_constraint
from paraserve.tokenizers.gguf import gguf_tokenizer
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer
from tests.engines.contract import Chunks, EngineCase, EngineContract, collect, idle, ids_of
from tests.engines.embedded import busy_slots, embedded

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOTS = 4
CITY = ToolSpec(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    strict=True,
)
QUESTIONS = (
    "What is the capital of France?",
    "What is the capital of Japan?",
    "Write the numbers from one to twenty.",
    "Name a large animal.",
)


def chat(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


SPLIT_PROMPT = chat("Repeat exactly: 🦜🧬 日本語 ᚠᛇᚻ") + "🦜"
"""The greedy reply begins with characters that are several tokens each."""


@dataclass
class Real:
    engine: LlamaCppEngine
    tokenizer: HuggingFaceTokenizer

    async def ask(
        self,
        prompt: str | Sequence[int],
        *,
        logprobs: int | None = None,
        constraint: Constraint | None = None,
        **sampling: object,
    ) -> list[EngineChunk]:
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        values = replace(Sampling(max_tokens=40, temperature=0.0), **sampling)  # type: ignore[arg-type]
        return await collect(self.engine, EngineRequest("real", ids, values, constraint=constraint, logprobs=logprobs))

    async def text(self, prompt: str | Sequence[int], **options: object) -> str:
        chunks = await self.ask(prompt, **options)  # type: ignore[arg-type]
        return self.tokenizer.decode(ids_of(chunks), skip_special_tokens=True)


@pytest.fixture(scope="module")
def tokenizer() -> HuggingFaceTokenizer:
    return gguf_tokenizer(default_model_path())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tokenizer: HuggingFaceTokenizer) -> AsyncIterator[Real]:
    phases: list[str] = []
    options = EmbeddedOptions(str(default_model_path()), context_length=512, slots=SLOTS, threads=1)
    async with embedded(tokenizer.token_bytes, options, phases.append) as engine:
        assert phases == ["warming up"]
        yield Real(engine, tokenizer)


class TestLlamaCppContract(EngineContract):
    @pytest.fixture
    def case(self, real: Real) -> EngineCase:
        long_prompt = real.tokenizer.encode("The sea is wide and the boat is small. " * 40)
        return EngineCase(
            real.engine,
            [real.tokenizer.encode(chat(question)) for question in QUESTIONS],
            partial(busy_slots, real.engine),
            slow_prompt=long_prompt,
            capacity=SLOTS,
            seconds=180.0,
            bad_constraints=(
                Constraint("json_schema", '{"type": "nonsense"}'),
                Constraint("json_schema", "{"),
                Constraint("json_schema", "[]"),
                Constraint("regex", "("),
                Constraint("ebnf", "root ::= ("),
                Constraint("ebnf", '%llguidance {}\nstart: "a"'),
                Constraint("ebnf", 'root ::= root "a"'),
                Constraint("lark", 'start: "a'),
                Constraint("lark", "start: missing"),
            ),
        )


class TestTokens:
    async def test_the_end_token_is_given_out_and_named(self, real: Real) -> None:
        chunks = await real.ask(chat(QUESTIONS[0]))
        end = real.tokenizer.added_tokens["<|im_end|>"]
        assert real.tokenizer.decode(ids_of(chunks)) == "The capital of France is Paris.<|im_end|>"
        assert chunks[-1].finish == Finish("stop", end)
        assert end in real.engine.info.eos_token_ids

    async def test_ids_of_characters_that_span_tokens_are_all_there(self, real: Real) -> None:
        prompt = SPLIT_PROMPT
        ids = ids_of(await real.ask(prompt, max_tokens=24, ignore_eos=True))
        assert len(ids) == 24
        assert any(_is_fragment(real, token_id) for token_id in ids)
        assert "🧬" in real.tokenizer.decode(ids)
        # Each prefix is what a shorter limit gives, also where the limit cuts a character.
        for limit in range(1, 8):
            assert ids_of(await real.ask(prompt, max_tokens=limit, ignore_eos=True)) == ids[:limit]

    async def test_bytes_that_are_no_text_come_out_too(self, real: Real) -> None:
        fragments = [t for t in range(real.engine.info.vocab_size) if _is_fragment(real, t)]
        options: dict[str, Any] = {
            "max_tokens": 8,
            "temperature": 1.0,
            "ignore_eos": True,
            "logit_bias": dict.fromkeys(fragments, 9.0),
        }
        for seed in range(6):
            ids = ids_of(await real.ask(chat("Hi"), seed=seed, **options))
            assert len(ids) == 8
            assert any(token_id in fragments for token_id in ids)
        chunks = await real.ask(chat("Hi"), seed=1, logprobs=1, **options)
        assert [entry.token_id for chunk in chunks for entry in chunk.logprobs or ()] == ids_of(chunks)

    async def test_a_hot_seed_gives_the_same_reply_again_and_another_seed_another(self, real: Real) -> None:
        hot: dict[str, Any] = {"temperature": 1.2, "max_tokens": 24, "ignore_eos": True}
        first, again, other, huge = [
            ids_of(await real.ask(chat("Tell me a story."), seed=seed, **hot)) for seed in (5, 5, 6, 2**40 + 1)
        ]
        assert first == again
        assert len({tuple(first), tuple(other), tuple(huge)}) == 3

    async def test_without_a_seed_replies_differ(self, real: Real) -> None:
        hot: dict[str, Any] = {"temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
        replies = {tuple(ids_of(await real.ask(chat("Tell me a story."), **hot))) for _ in range(3)}
        assert len(replies) == 3

    async def test_a_prefix_that_was_read_before_is_reported_as_cached(self, real: Real) -> None:
        prompt = real.tokenizer.encode(chat("A question that nobody has asked before: why is the moon so pale?"))
        await real.ask(prompt, max_tokens=2)
        again = await real.ask(prompt, max_tokens=2)
        assert again[0].prompt_tokens == len(prompt)
        assert again[0].cached_tokens == len(prompt) - 1


class TestLogprobs:
    async def test_the_whole_vocabulary_sums_to_one_before_any_sampler(self, real: Real) -> None:
        width = real.engine.info.vocab_size
        wide = LlamaCppEngine.__new__(LlamaCppEngine)
        wide.__dict__.update(real.engine.__dict__)
        wide._info = replace(real.engine.info, max_logprobs=width)
        # Samplers and bias that would change the distribution: the logprobs are those of the model.
        sampling = Sampling(max_tokens=1, temperature=2.0, top_k=1, presence_penalty=1.0, logit_bias={500: 5.0})
        request = EngineRequest("wide", real.tokenizer.encode(chat("Hi")), sampling, logprobs=width)
        (entry,) = (await collect(wide, request))[0].logprobs or ()
        assert math.fsum(math.exp(logprob) for _, logprob in entry.top) == pytest.approx(1.0, abs=1e-3)
        plain = await real.ask(chat("Hi"), max_tokens=1, logprobs=5)
        (expected,) = plain[0].logprobs or ()
        assert [token_id for token_id, _ in entry.top[:3]] == [token_id for token_id, _ in expected.top[:3]]
        assert entry.top[0][1] == pytest.approx(expected.top[0][1], abs=0.02)

    async def test_logprobs_do_not_change_a_greedy_reply(self, real: Real) -> None:
        bare, told = [ids_of(await real.ask(chat(QUESTIONS[0]), logprobs=logprobs)) for logprobs in (None, 2)]
        assert bare == told

    async def test_a_fragments_logprob_is_that_of_the_model(self, real: Real) -> None:
        prompt = real.tokenizer.encode(SPLIT_PROMPT)
        chunks = await real.ask(prompt, max_tokens=8, ignore_eos=True, logprobs=3)
        entries: list[TokenLogprob] = [entry for chunk in chunks for entry in chunk.logprobs or ()]
        place = next(i for i, entry in enumerate(entries) if _is_fragment(real, entry.token_id))
        # Greedy: the sampled token is the most likely one, and its probability is the alternatives' first.
        assert entries[place].top[0] == (entries[place].token_id, entries[place].logprob)


class TestPromptLogprobs:
    async def test_they_are_those_of_teacher_forcing_by_single_requests(self, real: Real) -> None:
        # An end token and characters of several tokens inside: both need another way than plain tokens.
        ids = real.tokenizer.encode(chat("The capital of France is Paris") + "Yes 🧬 and 12")
        request = EngineRequest("echo", ids, Sampling(max_tokens=0), logprobs=2, prompt_logprobs=True)
        chunks = await collect(real.engine, request)
        entries = chunks[0].prompt_logprobs
        assert entries is not None
        assert entries[0] is None
        assert [entry.token_id for entry in entries[1:] if entry] == ids[1:]
        assert all(entry is not None and len(entry.top) == 2 for entry in entries[1:])
        for place in range(1, len(ids)):
            alone = await real.engine.scores.of_token(ids[:place], ids[place], 2, {})
            entry = entries[place]
            assert entry is not None
            assert entry.logprob == pytest.approx(alone.logprob, abs=0.02)
            assert entry.top[0][0] == alone.top[0][0]

    async def test_they_come_before_the_reply_and_once(self, real: Real) -> None:
        ids = real.tokenizer.encode(chat(QUESTIONS[0]))
        request = EngineRequest("echo", ids, Sampling(max_tokens=4, temperature=0.0), logprobs=1, prompt_logprobs=True)
        chunks = await collect(real.engine, request)
        assert [chunk.prompt_logprobs is not None for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
        assert len(chunks[0].prompt_logprobs or ()) == len(ids)
        assert real.tokenizer.decode(ids_of(chunks)) == "The capital of France"


class TestSampling:
    async def test_logit_bias_forces_and_bans(self, real: Real) -> None:
        (paris,) = real.tokenizer.encode(" Paris")
        forced = ids_of(await real.ask(chat("Hi"), max_tokens=3, logit_bias={paris: 100.0}))
        assert forced == [paris] * 3
        assert paris not in ids_of(await real.ask(chat(QUESTIONS[0]), logit_bias={paris: -100.0}))

    async def test_min_tokens_holds_every_end_back_and_then_lets_go(self, real: Real) -> None:
        stop = real.tokenizer.encode(".")[0]
        free = await real.ask(chat(QUESTIONS[0]))
        held = await real.ask(chat(QUESTIONS[0]), min_tokens=20, max_tokens=200, stop_token_ids=(stop,))
        assert len(ids_of(free)) < 20
        assert 20 < len(ids_of(held)) < 200
        assert held[-1].finish is not None
        assert held[-1].finish.reason == "stop"
        assert ids_of(held)[:19].count(stop) == 0

    async def test_min_tokens_equal_to_the_limit_is_the_limit(self, real: Real) -> None:
        chunks = await real.ask(chat(QUESTIONS[0]), min_tokens=12, max_tokens=12)
        assert len(ids_of(chunks)) == 12
        assert chunks[-1].finish == Finish("length")
        assert [chunk.finish is not None for chunk in chunks].count(True) == 1

    async def test_the_penalties_of_presence_and_frequency_leave_the_prompts_words_alone(self, real: Real) -> None:
        prompt = chat("Say: apple apple apple apple apple apple apple apple")
        plain = ids_of(await real.ask(prompt, max_tokens=1))
        fined = ids_of(await real.ask(prompt, max_tokens=1, frequency_penalty=2.0, presence_penalty=2.0))
        assert fined == plain

    async def test_a_frequency_penalty_ends_repetition(self, real: Real) -> None:
        prompt = real.tokenizer.encode(" one two" * 12)
        plain = ids_of(await real.ask(prompt, max_tokens=30, ignore_eos=True))
        fined = ids_of(await real.ask(prompt, max_tokens=30, ignore_eos=True, frequency_penalty=2.0))
        assert _most(plain) > 10
        assert _most(fined) < _most(plain) / 2

    async def test_a_limit_of_no_tokens_makes_none(self, real: Real) -> None:
        (chunk,) = await real.ask(chat("Hi"), max_tokens=0)
        assert (list(chunk.token_ids), chunk.finish) == ([], Finish("length"))

    @pytest.mark.parametrize(
        ("request_changes", "field"),
        [
            ({"sampling": Sampling(max_tokens=600)}, "max_tokens"),
            ({"token_ids": []}, "prompt"),
            ({"token_ids": [49152]}, "prompt"),
            ({"token_ids": [-1]}, "prompt"),
            ({"sampling": Sampling(max_tokens=9, logit_bias={49152: 1.0})}, "logit_bias"),
            ({"sampling": Sampling(max_tokens=9, stop_token_ids=(10**9,))}, "stop_token_ids"),
            ({"sampling": Sampling(max_tokens=9, min_tokens=2), "constraint": Constraint("json_object")}, "min_tokens"),
            ({"logprobs": 21}, "top_logprobs"),
            ({"constraint": Constraint("json_object"), "in_reasoning": True}, "response_format"),
            ({"routing": RoutingHints(cache_salt="s")}, "cache_salt"),
        ],
    )
    async def test_what_cannot_be_done_is_refused_with_its_field(
        self, real: Real, request_changes: dict[str, object], field: str
    ) -> None:
        request = EngineRequest("refused", [1, 2], Sampling(max_tokens=4))
        with pytest.raises(EngineError) as caught:
            await collect(real.engine, replace(request, **request_changes))  # type: ignore[arg-type]
        assert caught.value.status == 400
        assert caught.value.param == field

    async def test_the_whole_context_can_be_used(self, real: Real) -> None:
        context = real.engine.info.context_length
        prompt = (real.tokenizer.encode("One two three four five six. ") * 200)[: context - 6]
        chunks = await real.ask(prompt, max_tokens=6, ignore_eos=True)
        assert len(ids_of(chunks)) == 6
        assert chunks[-1].finish == Finish("length")


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 99}},
    "required": ["city", "age"],
    "additionalProperties": False,
}


class TestConstraints:
    async def test_a_json_schema_is_obeyed(self, real: Real) -> None:
        text = await real.text(
            chat("Give me a city and an age."), constraint=Constraint("json_schema", json.dumps(SCHEMA)), max_tokens=80
        )
        jsonschema.validate(json.loads(text), SCHEMA)

    async def test_a_json_object_is_one(self, real: Real) -> None:
        text = await real.text(chat('Answer {"a": 1}.'), constraint=Constraint("json_object"), max_tokens=80)
        assert isinstance(json.loads(text), dict)

    @pytest.mark.parametrize("hot", [0.0, 1.5])
    async def test_a_regex_is_obeyed_from_end_to_end(self, real: Real, hot: float) -> None:
        constraint = Constraint("regex", r"[0-9]{3}/[a-z]{2}\/\.\n")
        text = await real.text(chat("Hi"), constraint=constraint, temperature=hot)
        assert (len(text), text[3], text[6:]) == (9, "/", "/.\n")

    async def test_ebnf_is_obeyed(self, real: Real) -> None:
        assert await real.text(chat("Hi"), constraint=Constraint("ebnf", 'root ::= "left" | "right"')) in (
            "left",
            "right",
        )

    @pytest.mark.parametrize("format", [format for format in FORMATS if format.calls], ids=lambda format: format.name)
    async def test_every_familys_calls_can_be_said_in_ebnf(self, real: Real, format: Format) -> None:
        """For an engine that no structural tag reaches. The grammar must compile, and one token of it must come."""
        for choice in ("required", "auto"):
            for start in ReplyStart:
                grammar = tool_call_constraint(format, [CITY], choice, target="ebnf", start=start)
                assert grammar is not None
                assert await real.text(chat("Hi"), constraint=Constraint("ebnf", grammar), max_tokens=1) is not None

    async def test_a_call_is_forced_by_ebnf(self, real: Real) -> None:
        hermes = next(format for format in FORMATS if format.name == "hermes")
        grammar = tool_call_constraint(hermes, [CITY], "required", target="ebnf", parallel=False)
        text = await real.text(chat("Weather in Oslo?"), constraint=Constraint("ebnf", grammar or ""), max_tokens=80)
        call = json.loads(text.strip().removeprefix("<tool_call>").removesuffix("</tool_call>"))
        assert call["name"] == "get_weather"
        jsonschema.validate(call["arguments"], CITY.parameters)

    async def test_lark_is_obeyed_with_schemas_inside(self, real: Real) -> None:
        grammar = 'start: "<call>" %json {"type": "integer", "maximum": 9} "</call>"'
        text = await real.text(chat("Hi"), constraint=Constraint("lark", grammar))
        assert text.startswith("<call>")
        assert text.endswith("</call>")
        assert int(text[6:-7]) <= 9

    async def test_a_schema_keyword_that_cannot_be_enforced_is_refused(self, real: Real) -> None:
        schema = '{"type": "string", "if": {"minLength": 3}}'
        with pytest.raises(EngineError) as caught:
            await real.ask(chat("Hi"), constraint=Constraint("json_schema", schema))
        assert (caught.value.status, caught.value.param) == (400, "response_format")


class TestRunningServer:
    """The same adapter with ``url``: a real server behind TCP."""

    async def test_it_gives_the_same_reply_and_facts_and_an_abort_reaches_it(self, real: Real) -> None:
        async with _tcp_listener(real.engine, []) as url:
            remote = LlamaCppEngine(real.tokenizer.token_bytes, EngineAddress(url))
            await remote.start()
            try:
                assert replace(remote.info, version="") == replace(real.engine.info, version="")
                ids = ids_of(await Real(remote, real.tokenizer).ask(chat(QUESTIONS[0])))
                assert real.tokenizer.decode(ids) == "The capital of France is Paris.<|im_end|>"
                request = EngineRequest("far", ids, Sampling(max_tokens=300, ignore_eos=True))
                stream = Chunks(remote, request)
                await anext(stream)
                await stream.aclose()
                assert await idle(EngineCase(remote, [[1], [2]], partial(busy_slots, remote)))
                assert (await remote.health()).ok
            finally:
                await remote.stop()

    async def test_the_clients_headers_go_along_with_all_that_is_asked_for_it(self, real: Real) -> None:
        """The reply, the log probabilities of its prompt and those of pieces of a character."""
        hints = RoutingHints(headers={"x-request-id": "job-7", "Host": "evil"})
        sent: list[bytes] = []
        async with _tcp_listener(real.engine, sent) as url:
            remote = LlamaCppEngine(real.tokenizer.token_bytes, EngineAddress(url))
            await remote.start()
            try:
                sent.clear()
                prompt = real.tokenizer.encode("Hi")
                sampling = Sampling(max_tokens=4, min_tokens=2, temperature=0.0)
                asked = EngineRequest("n", [*prompt, *prompt], sampling, logprobs=1, routing=hints)
                await collect(remote, replace(asked, prompt_logprobs=True))
            finally:
                await remote.stop()
        heads = b"".join(sent).split(b"POST /completion")[1:]
        assert len(heads) >= 3
        assert all(b"x-request-id: job-7\r\n" in head for head in heads)
        assert b"evil" not in b"".join(sent)

    async def test_a_server_that_is_no_llama_cpp_is_told(self, tokenizer: HuggingFaceTokenizer) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            address = EngineAddress(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            engine = LlamaCppEngine(tokenizer.token_bytes, address)
            with pytest.raises(EngineStartError, match=r"not a llama\.cpp server"):
                await engine.start()


class TestLifecycle:
    async def test_a_reply_that_nobody_reads_is_held_back_and_stays_whole(self, real: Real) -> None:
        expected = ids_of(await real.ask(chat(QUESTIONS[2]), max_tokens=40, ignore_eos=True))
        request = EngineRequest(
            "slow",
            real.tokenizer.encode(chat(QUESTIONS[2])),
            Sampling(max_tokens=40, temperature=0.0, ignore_eos=True),
        )
        seen: list[int] = []
        async with aclosing(Chunks(real.engine, request)) as chunks:
            async for chunk in chunks:
                seen += chunk.token_ids
                await asyncio.sleep(0.02)
        assert seen == expected

    async def test_a_dead_engine_is_told_and_ends_its_streams_with_an_error(
        self, tokenizer: HuggingFaceTokenizer
    ) -> None:
        options = EmbeddedOptions(str(default_model_path()), context_length=256, slots=1, threads=1)
        server = ChildServer(embedded_program(options))
        engine = LlamaCppEngine(tokenizer.token_bytes, await server.start())
        await engine.start()
        request = EngineRequest("dying", [1, 2, 3], Sampling(max_tokens=200, ignore_eos=True))
        stream = Chunks(engine, request)
        await anext(stream)
        assert server._process is not None
        server._process.kill()
        with pytest.raises(EngineError) as caught:
            await collect_rest(stream)
        assert caught.value.status in (502, 503)
        assert await server.ended() == "signal SIGKILL"
        assert not (await engine.health()).ok
        await engine.stop()
        await server.stop()

    async def test_a_file_that_is_no_model_is_one_line(self, tmp_path, capfd) -> None:  # type: ignore[no-untyped-def]
        path = tmp_path / "broken.gguf"
        path.write_bytes(b"GGUF" + bytes(100))
        with pytest.raises(EngineStartError) as caught:
            await ChildServer(embedded_program(EmbeddedOptions(str(path), slots=1))).start()
        message = str(caught.value)
        assert "broken.gguf" in message
        assert "\n" not in message
        assert capfd.readouterr() == ("", "")

    async def test_a_missing_file_and_a_missing_server_are_told(self, tokenizer: HuggingFaceTokenizer) -> None:
        with pytest.raises(EngineStartError, match="no model file"):
            embedded_program(EmbeddedOptions("/nowhere/model.gguf"))
        remote = LlamaCppEngine(tokenizer.token_bytes, EngineAddress("http://127.0.0.1:9"))
        with pytest.raises(EngineStartError, match="reached"):
            await remote.start()

    async def test_nothing_is_left_behind(self, real: Real) -> None:
        assert await idle(EngineCase(real.engine, [[1], [2]], partial(busy_slots, real.engine)))


@asynccontextmanager
async def _tcp_listener(engine: LlamaCppEngine, sent: list[bytes]) -> AsyncIterator[str]:
    """A TCP port that leads to the embedded server's socket; a client that leaves is passed on. ``sent`` gets what
    clients send."""
    path = engine._address.unix_socket
    assert path is not None

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: list[bytes]) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                kept.append(piece)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, far_writer, sent), pump(far_reader, writer, []))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def collect_rest(stream: AsyncIterator[EngineChunk]) -> list[EngineChunk]:
    return [chunk async for chunk in stream]


def _most(ids: Sequence[int]) -> int:
    return max(Counter(ids).values())


def _is_fragment(real: Real, token_id: int) -> bool:
    try:
        real.tokenizer.token_bytes(token_id).decode()
    except UnicodeDecodeError:
        return True
    return False
