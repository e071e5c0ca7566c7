"""An engine's server as a child process."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from paraserve.engines import upkeep
from paraserve.engines.base import EngineStartError
from paraserve.engines.build import engine_of_ours, free_port, sglang_program, vllm_program
from paraserve.engines.child import ChildServer, EngineAddress, Program
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.settings import ServerSettings
from tests.engines.contract import collect, ids_of
from tests.engines.remote_faults import PROMPT, ask
from tests.fakes.sequences import VOCAB, FakeModel
from tests.waiting import PATIENCE, until

PROGRAM = str(Path(__file__).resolve().parents[1] / "fakes" / "sglang_program.py")


def child(command: list[str], port: int, **timeouts: float) -> ChildServer:
    program = Program(name="it", command=tuple(command), address=EngineAddress(f"http://127.0.0.1:{port}"))
    return ChildServer(program, **timeouts)


def sessions_of(marker: str) -> list[str]:
    """Processes whose command line holds ``marker``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (process / "cmdline").read_bytes().decode(errors="replace"):
                found.append(process.name)
        except OSError:
            continue
    return [pid for pid in found if pid != str(os.getpid())]


async def test_child_is_started_waited_for_used_and_stopped() -> None:
    port = free_port()
    server = child([sys.executable, PROGRAM, "--port", str(port), "--load-seconds", "0.3"], port)
    try:
        engine = SGLangEngine((await server.start()).url, ModelFacts(VOCAB))
        await engine.start()
        assert engine.info.version == "0.5.23"
        assert (await engine.health()).ok
        assert ids_of(await collect(engine, ask())) == FakeModel().reply_ids(PROMPT)[:12]
    finally:
        await server.stop()
    assert sessions_of(f"{PROGRAM}\0--port\0{port}") == []
    assert not (await engine.health()).ok
    await engine.stop()


async def test_child_that_dies_while_it_starts_is_told_at_once() -> None:
    engine = child([sys.executable, "-c", "raise SystemExit(3)"], free_port())
    with pytest.raises(EngineStartError, match="status 3"):
        await engine.start()


async def test_program_that_is_not_there_is_told() -> None:
    with pytest.raises(EngineStartError, match="is it installed"):
        await child(["no-such-program-of-ours"], free_port()).start()


async def test_child_that_never_gets_ready_is_ended() -> None:
    marker = f"child-{free_port()}-slow"
    engine = child([sys.executable, "-c", "import time; time.sleep(60)", marker], free_port(), start_timeout=0.5)
    with pytest.raises(EngineStartError, match="not ready"):
        await engine.start()
    assert sessions_of(marker) == []


async def test_cancelled_start_leaves_no_child() -> None:
    marker = f"child-{free_port()}-cancelled"
    engine = child([sys.executable, "-c", "import time; time.sleep(60)", marker], free_port())
    starting = asyncio.ensure_future(engine.start())
    await until(lambda: sessions_of(marker))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert sessions_of(marker) == []


async def test_child_that_ignores_the_signal_is_killed_with_its_own_children() -> None:
    marker = f"child-{free_port()}-stubborn"
    inner = f"import time; time.sleep(60)  # {marker}"
    code = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"subprocess.run([sys.executable, '-c', {inner!r}])"
    )
    engine = child([sys.executable, "-c", code, marker], free_port(), start_timeout=1.0, stop_timeout=0.3)
    with pytest.raises(EngineStartError, match="not ready"):
        await engine.start()
    await until(lambda: not sessions_of(marker))


async def test_child_that_dies_later_is_told_and_can_be_started_again() -> None:
    port = free_port()
    server = child([sys.executable, PROGRAM, "--port", str(port)], port)
    await server.start()
    for pid in sessions_of(f"{PROGRAM}\0--port\0{port}"):
        os.kill(int(pid), 9)
    assert await server.ended() == "signal SIGKILL"
    await server.start()
    assert len(sessions_of(f"{PROGRAM}\0--port\0{port}")) == 1
    await server.stop()


async def test_an_engine_that_dies_or_does_not_start_is_started_again_and_those_who_asked_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "LONGEST_WAIT", 0.0)
    port, told, back = free_port(), list[str](), asyncio.Event()
    marker = f"{PROGRAM}\0--port\0{port}"
    server = child([sys.executable, PROGRAM, "--port", str(port)], port)
    await server.start()
    attempts = iter((EngineStartError("no memory"), None))

    async def start() -> EngineAddress:
        if failure := next(attempts):
            raise failure
        return await ChildServer.start(server)

    monkeypatch.setattr(server, "start", start)
    kept = asyncio.create_task(upkeep.keep_running(server, restart=True, on_away=told.append, on_back=back.set))
    os.kill(int(*sessions_of(marker)), 9)
    async with asyncio.timeout(PATIENCE):
        await back.wait()
    assert told == ["the engine's process has ended with signal SIGKILL"]
    assert len(sessions_of(marker)) == 1
    kept.cancel()
    await asyncio.wait({kept})
    await server.stop()


@pytest.mark.parametrize(
    ("given", "has"), [([], True), (["--sleep-on-idle"], True), (["--no-sleep-on-idle", "--tp", "2"], False)]
)
def test_an_sglang_of_ours_sleeps_when_it_is_idle_unless_told_otherwise(given: list[str], has: bool) -> None:
    command = sglang_program("/m", 7, given).command
    assert command.count("--sleep-on-idle") == has
    assert "--no-sleep-on-idle" not in command


async def test_an_sglang_that_is_not_installed_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EngineStartError, match="install it, or name a running one: --engine-url"):
        await ChildServer(sglang_program("/m", 7)).start()


def test_commands_carry_the_engines_own_flags_last() -> None:
    sglang = sglang_program("/m", 7, ["--tp", "2"]).command
    assert sglang[1:5] == ("-m", "sglang.launch_server", "--model-path", "/m")
    assert "--incremental-streaming-output" in sglang
    assert sglang[-3:] == ("--sleep-on-idle", "--tp", "2")
    vllm = vllm_program("/m", 7, ["--tensor-parallel-size", "2"]).command
    assert vllm[:3] == ("vllm", "serve", "/m")
    assert "--enable-scale-out" in vllm
    assert vllm[-2:] == ("--tensor-parallel-size", "2")


async def test_launched_engine_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineStartError, match="cannot run vllm"):
        await ChildServer(vllm_program("/m", 7)).start()


async def test_child_gets_variables_of_its_own() -> None:
    code = "import os; raise SystemExit(int(os.environ['PARASERVE_TEST_STATUS']))"
    program = Program(
        name="it",
        command=(sys.executable, "-c", code),
        address=EngineAddress("http://127.0.0.1:9"),
        environment={"PARASERVE_TEST_STATUS": "7"},
    )
    with pytest.raises(EngineStartError, match="status 7"):
        await ChildServer(program).start()


OWNER = """
import asyncio, sys
from paraserve.engines.child import *
async def main():
    address = EngineAddress(f"http://127.0.0.1:{sys.argv[1]}")
    await ChildServer(Program(name="it", command=(sys.executable, *sys.argv[2:]), address=address)).start()
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_child_ends_when_its_parent_is_killed() -> None:
    port = free_port()
    command = [sys.executable, "-c", OWNER, str(port), PROGRAM, "--port", str(port)]
    owner = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"ready\n"
    marker = f"{PROGRAM}\0--port\0{port}"
    assert len(sessions_of(marker)) == 2
    owner.kill()
    await owner.wait()
    await until(lambda: not sessions_of(marker))


@pytest.mark.parametrize("flag", ["--port", "--port=8", "--host", "--model-path"])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_flag_that_the_server_chooses_is_refused(engine: str, flag: str) -> None:
    settings = ServerSettings(engine=engine, model_path="/m")
    with pytest.raises(EngineStartError, match="leave it out"):
        engine_of_ours(settings, [flag, "8"])
