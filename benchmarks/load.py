"""What a streamed token and a request cost a server, in CPU time, beside the least that ASGI on uvicorn can do.

    python benchmarks/load.py                    # the whole table
    python benchmarks/load.py plain small        # rows whose name has one of the words
    python benchmarks/load.py memory --memory-requests 100000
    python benchmarks/load.py --against http://127.0.0.1:8000 --against-pid 4242

Each row runs the floor and the server in turns (floor, server, floor, …), so that a noisy machine is noisy for both,
and shows medians. Microseconds of CPU of the server's process tree, which holds the scripted engine as well (a stand-in for
an engine behind HTTP is a process of its own and does not count): its own share is the row "scripted engine alone", and nothing is subtracted. ``--against`` sends the same requests to a peer; its
CPU is shown when its process id is given. Prints Markdown. The whole table with three runs took 11 minutes on two busy
cores; a run that takes more than `RUN_SECONDS` ends it all.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import uvloop
from load_client import Reply, Target, run_load
from load_scenarios import PATHS, SCENARIOS, Api, script
from load_servers import (
    ServerProcess,
    floor_command,
    free_port,
    model_at,
    paraserve_command,
    served,
    standin_command,
)

from paraserve.engines.base import EngineChunk, EngineRequest, Sampling
from paraserve.engines.llama_cpp.embedded import default_model_path
from paraserve.engines.scripted.script_file import scripted_engine
from paraserve.tokenizers.base import Tokenizer
from paraserve.tokenizers.checkpoint import load_checkpoint


@dataclass(frozen=True, slots=True)
class Row:
    """Args:
    pace: seconds between tokens (between bursts); 0 is full speed.
    burst: tokens that the engine gives at once.
    in_step: tokens of all streams come at the same moments, as from an engine that decodes a batch; else each stream
        has moments of its own, the worst that can be.
    engine: the scripted one in the process, or whose HTTP server is stood in for by a process of its own.
    requests: in one run; enough that CPU time, which the system counts in steps of 10 ms, says something.
    api: whose request it is; beside another than chat's, the same as chat is measured in turns with it.
    store: whether the response is stored.
    ratio, microseconds, of_chat: the target: how many times the floor, microseconds, or how many times chat.
    """

    name: str
    scenario: str
    streams: int = 64
    tokens: int = 256
    pace: float = 0.0
    burst: int = 1
    in_step: bool = True
    requests: int = 64
    ratio: float | None = None
    microseconds: float | None = None
    api: Api = "chat"
    store: bool = False
    of_chat: float | None = None
    engine: str = "scripted"

    @property
    def per_token(self) -> bool:
        return SCENARIOS[self.scenario].stream


# ruff: noqa: E501 - a table
def _rows_of(name: str, api: Api) -> tuple[Row, ...]:
    return (
        Row(f"{name}: plain, 64 streams, 5 ms", "plain", pace=0.005, requests=128, api=api, of_chat=1.2),
        Row(f"{name}: reasoning, 64 streams, 5 ms", "reasoning", pace=0.005, requests=128, api=api, of_chat=1.2),
        Row(f"{name}: GLM call, 64 streams, 5 ms", "glm-call", pace=0.005, requests=128, api=api, of_chat=1.2),
        Row(f"{name}: plain, one token a turn, full speed", "plain", requests=1024, api=api, of_chat=1.2),
        Row(f"{name}: plain, full speed, 16 at once", "plain", burst=16, requests=2048, api=api, of_chat=1.2),
        Row(
            f"{name}: small, not streamed", "small", tokens=8, burst=16, streams=16, requests=8000, api=api, of_chat=1.2
        ),
    )


ROWS = (
    Row("plain, 64 streams, 5 ms", "plain", pace=0.005, requests=128, ratio=1.4),
    Row("plain, 64 streams, 5 ms, spread", "plain", pace=0.005, in_step=False, requests=128, ratio=1.4),
    Row("plain, 1,024 streams, 10 ms", "plain", streams=1024, pace=0.010, requests=1024, ratio=1.4),
    Row("reasoning, 64 streams, 5 ms", "reasoning", pace=0.005, requests=128, ratio=1.5),
    Row("GLM call, 64 streams, 5 ms", "glm-call", pace=0.005, requests=128, ratio=1.8),
    Row("GLM eight calls, 64 streams, 5 ms", "glm-8-calls", pace=0.005, requests=128, ratio=1.8),
    Row("Kimi call, 64 streams, 5 ms", "kimi-call", pace=0.005, requests=128, ratio=1.8),
    Row("Qwen call, 64 streams, 5 ms", "qwen-call", pace=0.005, requests=128),
    Row("Hermes call, 64 streams, 5 ms", "hermes-call", pace=0.005, requests=128),
    Row("plain, SGLang over HTTP, 64 streams, 5 ms", "plain", pace=0.005, requests=128, ratio=1.6, engine="sglang"),
    Row("plain, vLLM over HTTP, 64 streams, 5 ms", "plain", pace=0.005, requests=128, ratio=1.6, engine="vllm"),
    Row("reasoning, SGLang over HTTP, 64 streams, 5 ms", "reasoning", pace=0.005, requests=128, ratio=1.6, engine="sglang"),
    Row("plain, SGLang over HTTP, full speed, 16 at once", "plain", burst=16, requests=1024, engine="sglang"),
    Row("plain, one token a turn, full speed", "plain", requests=1024),
    Row("plain, full speed, 16 at once", "plain", burst=16, requests=2048, microseconds=3.0),
    Row("plain, full speed, 16 at once, 1 stream", "plain", streams=1, burst=16, tokens=4096, requests=64),
    Row("plain, full speed, 512 streams", "plain", streams=512, burst=16, requests=2048, microseconds=3.0),
    Row("GLM call, full speed, 16 at once", "glm-call", burst=16, requests=1024),
    Row("GLM call, 1k tokens, full speed, 16 at once", "glm-call", tokens=1_024, burst=16, streams=16, requests=256),
    Row("GLM call, 4k tokens, full speed, 16 at once", "glm-call", tokens=4_096, burst=16, streams=16, requests=96),
    Row("GLM call, 16k tokens, full speed, 16 at once", "glm-call", tokens=16_384, burst=16, streams=16, requests=32),
    Row("Kimi call, full speed, 16 at once", "kimi-call", burst=16, requests=1024),
    Row("Kimi call, 4k tokens, full speed, 16 at once", "kimi-call", tokens=4_096, burst=16, streams=16, requests=96),
    Row("Kimi call, 16k tokens, full speed, 16 at once", "kimi-call", tokens=16_384, burst=16, streams=16, requests=32),
    Row("small, not streamed", "small", tokens=8, burst=16, streams=16, requests=8000, microseconds=100.0),
    Row("1,200-token prompt, 5 tools, not streamed", "1200-token prompt, 5 tools", tokens=8, burst=16, streams=16, requests=3000, microseconds=330.0),
    Row("200 KB prompt, not streamed", "200 KB prompt", tokens=8, burst=16, streams=4, requests=40),
    *_rows_of("Responses", "responses"),
    *_rows_of("Messages", "messages"),
    Row("Responses: small, not streamed, stored", "small", tokens=8, burst=16, streams=16, requests=8000, api="responses", store=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One run against one server: CPU in microseconds for each token (or request), and the replies."""

    cost: float
    replies: list[Reply]
    seconds: float


RUN_SECONDS = 120.0
"""The longest that one run of a row may take"""


def measure(server: ServerProcess, target: Target, row: Row) -> Run:
    request = target.request(PATHS[row.api], SCENARIOS[row.scenario].body(row.api, store=row.store))
    before, began = server.cpu() if server.pid else 0.0, time.monotonic()
    load = run_load(target, request, streams=row.streams, requests=row.requests)
    try:
        replies = uvloop.run(asyncio.wait_for(load, RUN_SECONDS))
    except TimeoutError:
        raise SystemExit(f"{row.name}: a run took more than {RUN_SECONDS:g} s") from None
    used = (server.cpu() if server.pid else 0.0) - before
    failed = [reply.error for reply in replies if reply.error]
    if failed:
        raise SystemExit(f"{row.name}: {len(failed)} of {len(replies)} requests failed: {failed[0]}")
    units = sum(reply.tokens for reply in replies) if row.per_token else len(replies)
    return Run(used / units * 1e6, replies, time.monotonic() - began)


class Bench:
    """Args: against: a peer, or none."""

    def __init__(self, tokenizer: Tokenizer, runs: int, against: tuple[ServerProcess, Target] | None) -> None:
        self._tokenizer = tokenizer
        self._end_id = min(tokenizer.eos_token_ids)
        self._runs = runs
        self._against = against

    def run(self, row: Row, directory: Path) -> str:
        """The row as Markdown."""
        scenario = SCENARIOS[row.scenario]
        ids = scenario.reply_ids(self._tokenizer, row.tokens, self._end_id)
        path = directory / "script.json"
        path.write_text(script(ids, pace=row.pace, burst=row.burst, in_step=row.in_step))
        with ExitStack() as stack:
            port, floor_port = free_port(), free_port()
            engine: list[str] = []
            if row.engine != "scripted":
                engine_port = free_port()
                standin = stack.enter_context(served(standin_command(row.engine, engine_port, path), engine_port))
                engine = ["--engine", row.engine, "--engine-url", standin.url]
            ours = stack.enter_context(served(paraserve_command(port, path, scenario.flags(), engine), port))
            floor = stack.enter_context(
                served(floor_command(floor_port, len(ids), row.pace, in_step=row.in_step), floor_port)
            )
            sides = [(floor, Target(floor.url), row), (ours, Target(ours.url), row)]
            if row.api != "chat":
                sides.append((ours, Target(ours.url), replace(row, api="chat")))
            if self._against is not None:
                sides.append((*self._against, row))
            for server, target, asked in sides:  # caches, pools and lazy imports
                measure(server, target, replace(asked, requests=row.streams))
            costs: list[list[float]] = [[] for _ in sides]
            first: list[float] = []
            for _ in range(self._runs):
                for side, (server, target, asked) in enumerate(sides):
                    run = measure(server, target, asked)
                    costs[side].append(run.cost)
                    if side == 1:
                        first += [reply.first for reply in run.replies]
            medians = [statistics.median(side) for side in costs]
            cells = [f"{medians[0]:.1f}", f"{medians[1]:.1f} ({min(costs[1]):.1f}–{max(costs[1]):.1f})"]
            cells += [f"{medians[1] / medians[0]:.2f}", _target(row, medians), f"{ours.resident() / 2**20:.0f}"]
            peer = medians[-1] if self._against is not None else 0.0
            cells += [f"{peer:.1f}" if peer else "–"] if self._against is not None else []
        return f"| {row.name} | " + " | ".join(cells) + " |"


def _target(row: Row, medians: Sequence[float]) -> str:
    if row.ratio is not None:
        return f"{'met' if medians[1] <= row.ratio * medians[0] else 'missed'}: ≤ {row.ratio} x floor"
    if row.api != "chat":
        of_chat = f"{medians[1] / medians[2]:.2f} x chat"
        met = "–" if row.of_chat is None else "met" if medians[1] <= row.of_chat * medians[2] else "missed"
        return f"{met}: {of_chat}" + (f" ≤ {row.of_chat}" if row.of_chat else "")
    if row.microseconds is not None:
        return f"{'met' if medians[1] <= row.microseconds else 'missed'}: ≤ {row.microseconds:g} µs"
    return "–"


def engine_alone(path: Path, tokens: int) -> float:
    """Microseconds of CPU that the scripted engine itself takes for a token, its waiting included."""
    engine = scripted_engine(path, encode=lambda _: [])
    request = EngineRequest("alone", [1], Sampling(max_tokens=tokens))

    async def work() -> float:
        before = time.process_time()
        counts = [Count() for _ in range(64)]
        for count in counts:
            engine.submit(request, count)
        await asyncio.gather(*(count.ended for count in counts))
        return (time.process_time() - before) / sum(count.tokens for count in counts) * 1e6

    return uvloop.run(work())


class Count:
    """A `Sink` that counts tokens."""

    def __init__(self) -> None:
        self.tokens = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, chunk: EngineChunk) -> None:
        self.tokens += len(chunk.token_ids)

    def end(self, error: Exception | None) -> None:
        self.ended.set_result(None)


def first_token(tokenizer: Tokenizer, directory: Path) -> list[str]:
    """Time to the first token of a 1 KB prompt, alone and beside 64 busy streams."""
    path = directory / "script.json"
    end_id = min(tokenizer.eos_token_ids)
    path.write_text(script(SCENARIOS["plain"].reply_ids(tokenizer, 256, end_id), pace=0.005, burst=1))
    probe_body = {**SCENARIOS["plain"].body(), "max_tokens": 2}
    probe_body["messages"] = [{"role": "user", "content": "x" * 1000}]
    port = free_port()
    with served(paraserve_command(port, path, SCENARIOS["plain"].flags()), port) as server:
        target = Target(server.url)
        probe = target.request("/v1/chat/completions", probe_body)
        busy_request = target.request("/v1/chat/completions", SCENARIOS["plain"].body())

        async def times(busy: int) -> list[float]:
            load = asyncio.ensure_future(run_load(target, busy_request, streams=64, requests=busy)) if busy else None
            await asyncio.sleep(0.2 if busy else 0)
            replies = []
            connection = await target.connect()
            for _ in range(300):
                replies.append(await connection.send(probe))
                await asyncio.sleep(0.005)
            connection.close()
            if load is not None:
                load.cancel()
                await asyncio.gather(load, return_exceptions=True)
            return sorted(reply.first * 1e3 for reply in replies[20:])

        alone, beside = uvloop.run(times(0)), uvloop.run(times(1_000_000))
    lines = []
    for name, found in (("idle", alone), ("beside 64 streams", beside)):
        p99 = found[int(len(found) * 0.99)]
        lines.append(f"| first token, 1 KB prompt, {name} | {statistics.median(found):.2f} | {p99:.2f} |")
    return lines


def memory(tokenizer: Tokenizer, directory: Path, requests: int) -> list[str]:
    """Resident memory while ``requests`` small requests are answered, every third of them streamed."""
    path = directory / "script.json"
    end_id = min(tokenizer.eos_token_ids)
    path.write_text(script(SCENARIOS["plain"].reply_ids(tokenizer, 8, end_id), pace=0.0, burst=16))
    port, lines = free_port(), []
    with served(paraserve_command(port, path, SCENARIOS["plain"].flags()), port) as server:
        target = Target(server.url)
        bodies = [SCENARIOS[name].body() for name in ("small", "plain", "small")]
        payloads = [target.request("/v1/chat/completions", body) for body in bodies]
        for part in range(11):
            lines.append(f"| after {part * requests // 10:,} requests | {server.resident() / 2**20:.1f} |")
            for payload in payloads if part < 10 else ():
                replies = uvloop.run(run_load(target, payload, streams=16, requests=requests // 30))
                if failed := [reply.error for reply in replies if reply.error]:
                    raise SystemExit(f"memory: {len(failed)} requests failed: {failed[0]}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only rows whose name has one of these")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", metavar="URL", help="a peer that gets the same requests")
    parser.add_argument("--against-pid", type=int, default=0, help="the peer's process, to show its CPU")
    parser.add_argument("--memory-requests", type=int, default=0, help="show memory over so many requests as well")
    options = parser.parse_args()
    began = time.monotonic()
    tokenizer = load_checkpoint(default_model_path()).tokenizer
    against = None
    if options.against:
        peer = Target(options.against, model_at(options.against))
        against = (ServerProcess(options.against, options.against_pid), peer)
    bench = Bench(tokenizer, options.runs, against)
    rows = [row for row in ROWS if not options.words or any(word in row.name for word in options.words)]
    packages = ", ".join(f"{name} {version(name)}" for name in ("paraserve", "uvicorn", "uvloop", "msgspec"))
    print(f"{date.today()}, {_processor()}, Python {platform.python_version()}, {packages}, {options.runs} runs\n")
    print("| row | floor µs | paraserve µs (range) | ratio | target | MB |" + (" peer µs |" if against else ""))
    print("|---|---|---|---|---|---|" + ("---|" if against else ""))
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for row in rows:
            print(bench.run(row, directory), flush=True)
        if not options.words or "engine" in options.words:
            _print_engine(tokenizer, directory)
        if not options.words or "first" in options.words:
            print("\n| | median ms | p99 ms |\n|---|---|---|")
            print("\n".join(first_token(tokenizer, directory)))
        if options.memory_requests:
            print("\n| | MB |\n|---|---|")
            print("\n".join(memory(tokenizer, directory, options.memory_requests)))
    print(f"\n{(time.monotonic() - began) / 60:.1f} minutes")


def _print_engine(tokenizer: Tokenizer, directory: Path) -> None:
    path = directory / "script.json"
    ids = SCENARIOS["plain"].reply_ids(tokenizer, 256, min(tokenizer.eos_token_ids))
    shapes: dict[str, Callable[[], str]] = {
        "5 ms": lambda: script(ids, pace=0.005, burst=1),
        "one token a turn": lambda: script(ids, pace=0.0, burst=1),
        "16 at once": lambda: script(ids * 16, pace=0.0, burst=16),
    }
    for name, write in shapes.items():
        path.write_text(write())
        costs = sorted(engine_alone(path, 20_000) for _ in range(3))
        print(f"| scripted engine alone, {name} | – | {costs[1]:.1f} | – | – | – |")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
