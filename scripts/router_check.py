"""Runs SGLang's adapter through the real sglang-router, in front of fake SGLang workers: regular and prefill/decode.

    python scripts/router_check.py --router-python VENV/bin/python

``--router-python`` is an interpreter that has ``sglang-router``. The workers run in this process, so that the checks
can see what reached them. Every check prints a line; the exit status is 1 when one failed. ``scripts/e2e-router.sh``
makes the environment and calls this.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fakes.sequences import LONG, VOCAB, Behaviour
from tests.fakes.serving import free_port, serving
from tests.fakes.sglang_fake import FakeSGLang

from paraserve.engines.base import EngineError, EngineRequest, EngineStartError, RoutingHints, Sampling
from paraserve.engines.http import HTTPTimeouts
from paraserve.engines.remote import ModelFacts
from paraserve.engines.sglang import SGLangEngine

PROMPT = [5, 6, 7, 8]
ROUTER_FLAGS = [
    "--host", "127.0.0.1", "--policy", "round_robin", "--log-level", "error", "--disable-retries",
    "--disable-circuit-breaker", "--health-check-interval-secs", "600",
]  # fmt: skip


@dataclass
class Setting:
    """A router in one mode, its workers, and the adapter that talks to it."""

    mode: str
    engine: SGLangEngine
    workers: list[FakeSGLang]
    failed: list[str] = field(default_factory=list)

    @property
    def prefill(self) -> FakeSGLang:
        return self.workers[0]

    @property
    def decode(self) -> FakeSGLang:
        return self.workers[-1]

    def say(self, what: str, good: bool, detail: str = "") -> None:
        print(f"{'ok  ' if good else 'FAIL'} {self.mode}: {what}{f' ({detail})' if detail else ''}")
        if not good:
            self.failed.append(what)

    def reset(self) -> None:
        for worker in self.workers:
            worker.model.behaviour = Behaviour()
            worker.requests.clear()
            worker.headers.clear()
            worker.aborts.clear()

    async def idle(self, within: float = 1.0) -> bool:
        for _ in range(int(within / 0.02)):
            if not any(worker.model.running for worker in self.workers):
                return True
            await asyncio.sleep(0.02)
        return False


def ask(prompt: list[int] | None = None, tokens: int = 12, **changes: object) -> EngineRequest:
    return EngineRequest(uuid4().hex, prompt or PROMPT, Sampling(tokens, temperature=0.0), **changes)  # type: ignore[arg-type]


async def outcome(setting: Setting, request: EngineRequest) -> tuple[list[int], EngineError | None, float]:
    ids: list[int] = []
    started = time.monotonic()
    try:
        async with aclosing(setting.engine.generate(request)) as chunks:
            async for chunk in chunks:
                ids += chunk.token_ids
    except EngineError as error:
        return ids, error, time.monotonic() - started
    return ids, None, time.monotonic() - started


async def check_reply(setting: Setting) -> None:
    expected = setting.decode.model.reply_ids(PROMPT)[:12]
    ids, error, _ = await outcome(setting, ask())
    setting.say("a reply is the worker's", ids == expected, f"{error.code}: {error.message}" if error else "")
    hints = RoutingHints(headers={"x-smg-routing-key": "key"})
    ids, error, _ = await outcome(setting, ask(logprobs=2, routing=hints))
    setting.say("log probabilities come through", ids == expected, error.message if error else "")
    seen = [headers.get("x-smg-routing-key") for worker in setting.workers for headers in worker.headers]
    setting.say("the routing key reaches the workers", "key" in seen, f"seen: {seen}")


async def check_refusals(setting: Setting) -> None:
    for status, ours in ((400, 400), (500, 502), (503, 503)):
        setting.reset()
        for worker in setting.workers:
            worker.model.behaviour.status = status
            worker.model.behaviour.message = "top_p must be in (0, 1]"
        _, error, seconds = await outcome(setting, ask())
        told = f"{error.status} {error.code} {error.message!r} after {seconds:.2f} s" if error else "no error"
        setting.say(f"a worker's {status} is a {ours}", error is not None and error.status == ours, told)


async def check_leaving(setting: Setting) -> None:
    setting.reset()
    async with aclosing(setting.engine.generate(ask([LONG, 1], 400))) as chunks:
        await anext(chunks)
    freed = await setting.idle(3.0)
    aborts = sum(len(worker.aborts) for worker in setting.workers)
    setting.say("leaving frees the workers within three seconds", freed, f"aborts that reached a worker: {aborts}")
    for worker in setting.workers:
        for name in list(worker.model.running):
            worker.model.abort(name)


async def check_bootstrap(setting: Setting) -> None:
    setting.reset()
    await outcome(setting, ask())
    bodies = [body for worker in setting.workers for body in worker.requests]
    rooms = {body.get("bootstrap_room") for body in bodies}
    good = len(bodies) == 2 and len(rooms) == 1 and None not in rooms
    setting.say("both sides got the router's bootstrap room", good, f"{len(bodies)} requests, rooms {rooms}")


async def check_prefill_error(setting: Setting) -> None:
    for status, ours in ((400, 400), (500, 502)):
        setting.reset()
        setting.prefill.model.behaviour.status = status
        setting.decode.model.behaviour.silent_after = 0
        _, error, seconds = await outcome(setting, ask())
        told = f"{error.status} {error.message!r} after {seconds:.2f} s" if error else "no error"
        good = error is not None and error.status == ours and seconds < 1.0
        setting.say(f"the prefill side's {status} reaches the client within a second", good, told)
        setting.say("and the decode side is freed", await setting.idle(3.0))
        for name in list(setting.decode.model.running):
            setting.decode.model.abort(name)


@asynccontextmanager
async def router(python: str, mode: str) -> AsyncIterator[Setting]:
    async with AsyncExitStack() as stack:
        split = mode == "prefill/decode"
        workers = [FakeSGLang(prefill=split, notices_leaving=2.0), FakeSGLang(incremental=split, notices_leaving=2.0)]
        urls = [await stack.enter_async_context(serving(worker)) for worker in workers]
        port = free_port()
        where = ["--worker-urls", *urls]
        if split:
            where = ["--pd-disaggregation", "--prefill", urls[0], "8998", "--decode", urls[1]]
        command = [python, "-m", "sglang_router.launch_router", "--port", str(port), *ROUTER_FLAGS, *where]
        command += ["--prometheus-port", str(free_port())]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        try:
            engine = SGLangEngine(
                f"http://127.0.0.1:{port}", ModelFacts(VOCAB, context_length=4096), timeouts=HTTPTimeouts(idle=8.0)
            )
            await started(engine, process)
            setting = Setting(mode, engine, workers)
            setting.reset()
            yield setting
            await engine.stop()
        finally:
            process.terminate()
            await process.wait()


async def started(engine: SGLangEngine, process: asyncio.subprocess.Process) -> None:
    """Start the adapter as soon as the router lets it."""
    for _ in range(60):
        try:
            await engine.start()
            if (await engine.health()).ok:
                return
            await engine.stop()
        except EngineStartError as error:
            problem = str(error)
        if process.returncode is not None:
            raise SystemExit(f"the router ended with status {process.returncode}")
        await asyncio.sleep(0.5)
    raise SystemExit(f"the router did not get ready: {problem}")


CHECKS: dict[str, list[Callable[[Setting], Awaitable[None]]]] = {
    "regular": [check_reply, check_refusals, check_leaving],
    "prefill/decode": [check_reply, check_refusals, check_bootstrap, check_prefill_error, check_leaving],
}


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--router-python", required=True)
    options = arguments.parse_args()
    failures = 0
    for mode, checks in CHECKS.items():
        async with router(options.router_python, mode) as setting:
            print(f"     {mode}: {setting.engine.info}")
            for check in checks:
                setting.reset()
                await check(setting)
            failures += len(setting.failed)
    print(f"{failures} checks failed" if failures else "all checks passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
