"""vLLM that is started without its HTTP server: when that is done, and its process, with a fake core as the program."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paraserve.engines import upkeep
from paraserve.engines.base import EngineError, EngineStartError
from paraserve.engines.build import engine_of_ours
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.vllm.headless import HeadlessVLLM, headless_program
from paraserve.engines.vllm.installed import loras, wire_facts
from paraserve.engines.vllm.wire import VLLMWireEngine
from paraserve.engines.wire.refusals import NotByWire
from paraserve.settings import ServerSettings, load_settings
from paraserve.settings.declare import ConfigurationError
from tests.engines.contract import Chunks, collect, ids_of
from tests.engines.remote_faults import PROMPT, ask, long
from tests.fakes import vllm_core
from tests.fakes.sequences import VOCAB, FakeModel
from tests.waiting import until

CORE = vllm_core.__file__
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A vLLM of a release on ``PATH``. Gives the directory of its package."""

    def make(version: str = "0.32.0") -> Path:
        site, programs = tmp_path / "site", tmp_path / "bin"
        shutil.copytree(vllm_core.PACKAGE, site / "vllm", dirs_exist_ok=True)
        (site / "vllm" / "__init__.py").touch()
        about = site / f"vllm-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
        programs.mkdir()
        for name, command in (
            ("vllm", f'exec {sys.executable} {CORE} "$@"'),
            ("python", f'PYTHONPATH={site} exec {sys.executable} "$@"'),
        ):
            (programs / name).write_text(f"#!/bin/sh\n{command}\n")
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        return site / "vllm"

    return make


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"vocab_size": 1000}')
    return path


# Which way.


def test_the_installed_release_is_read_and_not_run(install: Install, model: Path) -> None:
    file = install() / "v1" / "engine" / "__init__.py"
    file.write_text(file.read_text() + "\nraise SystemExit('it was run')\n")
    facts = wire_facts(model, ["--max-model-len", "99", "--lora-modules", "a=/x"], any_release=False)
    assert (facts["version"], facts["vocab_size"], facts["loras"]) == ("0.32.0", 1000, {"a": "/x"})
    assert facts["layout"]["EngineCoreRequest"][:2] == [["request_id"], ["prompt_token_ids"]]


@pytest.mark.parametrize(
    "flag",
    [
        "--data-parallel-size=2",
        "--data_parallel_size=2",
        "-dp",
        "--kv-transfer-config",
        "--config",
        "--speculative-config",
        "--nnodes",
    ],
)
def test_what_was_not_run_by_these_messages_goes_over_http(install: Install, model: Path, flag: str) -> None:
    install()
    with pytest.raises(NotByWire, match=flag.partition("=")[0].replace("_", "-")):
        wire_facts(model, [flag], any_release=True)


def test_a_model_that_takes_media_goes_over_http(install: Install, model: Path) -> None:
    install()
    (model / "preprocessor_config.json").touch()
    with pytest.raises(NotByWire, match="media"):
        wire_facts(model, [], any_release=True)


def test_a_release_that_nobody_has_run_is_taken_only_when_it_is_asked_for(install: Install, model: Path) -> None:
    install("0.33.1")
    with pytest.raises(NotByWire, match=r"0\.33\.1"):
        wire_facts(model, [], any_release=False)
    assert wire_facts(model, [], any_release=True)["version"] == "0.33.1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    priority: int = 0\n", ""),
        ("    request_id: str\n", "    request_id: str\n    other: int\n"),
        ("class UtilityOutput(", "class Utility("),
        ("class EngineCoreOutput(", "class EngineCoreOutput((("),
    ],
)
def test_messages_that_are_not_known_are_refused(install: Install, model: Path, old: str, new: str) -> None:
    file = install() / "v1" / "engine" / "__init__.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(NotByWire, match="not known"):
        wire_facts(model, [], any_release=True)


def test_without_vllm_or_pyzmq_the_reason_is_told(
    install: Install, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineStartError, match="no vllm command"):
        engine_of_ours(settings(model, "zmq"))
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "zmq" else find(name))
    with pytest.raises(EngineStartError, match=r"paraserve\[wire\]"):
        engine_of_ours(settings(model, "zmq"))


def test_adapters_are_read_from_every_spelling_of_the_flag() -> None:
    flags = ["--x", "--lora-modules", "a=/p=q", '{"name": "b", "path": "/b"}', "--lora-modules=c=/c", "--y", "d=/d"]
    assert loras(flags) == {"a": "/p=q", "b": "/b", "c": "/c"}
    with pytest.raises(NotByWire, match="lora-modules"):
        loras(["--lora-modules", '{"name": "b"}'])


def settings(model: Path, wire: str, **changes: object) -> ServerSettings:
    return ServerSettings(engine="vllm", model_path=str(model), engine_wire=wire, **changes)


def test_auto_takes_the_wire_where_it_can_and_says_why_not(
    install: Install, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    install()
    assert isinstance(engine_of_ours(settings(model, "auto")), HeadlessVLLM)
    assert not isinstance(engine_of_ours(settings(model, "http")), HeadlessVLLM)
    assert not isinstance(engine_of_ours(settings(model, "auto"), ["--nnodes", "2"]), HeadlessVLLM)
    told = [record.getMessage() for record in caplog.records if "engine wire" in record.getMessage()]
    assert told == [
        "engine wire: zmq (vLLM 0.32.0)",
        "engine wire: http (--engine-wire)",
        "engine wire: http (vLLM with --nnodes is reached over HTTP)",
    ]


def test_zmq_that_cannot_be_ends_the_start_with_the_other_way(install: Install, model: Path) -> None:
    install()
    with pytest.raises(EngineStartError, match=r"--nnodes.*--engine-wire http"):
        engine_of_ours(settings(model, "zmq"), ["--nnodes", "2"])
    with pytest.raises(EngineStartError, match=r"--engine-extra-fields.*--engine-wire http"):
        engine_of_ours(settings(model, "zmq", engine_extra_fields=("kv_transfer_params",)))


@pytest.mark.parametrize("engine", [["--engine", "llama.cpp"], ["--engine", "vllm", "--engine-url", "http://h:1"]])
def test_zmq_is_for_a_vllm_of_ours(engine: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="--engine-wire http"):
        load_settings([*engine, "--model-path", "m", "--engine-wire", "zmq"], {})


# The process.


def head(model: Path, *flags: str, **timeouts: float) -> HeadlessVLLM:
    return HeadlessVLLM(headless_program(str(model), wire_facts(model, flags, any_release=False), flags), **timeouts)


@pytest.mark.heavy
async def test_it_is_started_used_killed_started_again_and_stopped(
    install: Install, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LONGEST_WAIT", 0.0)
    install()
    server, told, back = head(model), list[str](), asyncio.Event()
    try:
        engine = VLLMWireEngine(await server.start(), ModelFacts(VOCAB))
        await engine.start()
        assert engine.info.context_length == 4096
        assert ids_of(await collect(engine, ask())) == FakeModel().reply_ids(PROMPT)[:12]
        watching = asyncio.create_task(upkeep.keep_running(server, restart=True, on_away=told.append, on_back=back.set))
        stream = Chunks(engine, long())
        await anext(stream)
        assert server._process is not None
        os.kill(server._process.pid, 9)
        with pytest.raises(EngineError, match="broke"):
            async for _ in stream:
                pass
        await back.wait()
        assert len(told) == 1
        await until(lambda: not engine.away)
        await engine._until_reachable()
        assert ids_of(await collect(engine, ask())) == FakeModel().reply_ids(PROMPT)[:12]
        watching.cancel()
        await engine.stop()
    finally:
        await server.stop()


@pytest.mark.heavy
async def test_one_that_ends_while_it_starts_and_one_that_never_gets_ready_are_told(
    install: Install, model: Path
) -> None:
    install()
    ends, slow = head(model, "--load-seconds", "no"), head(model, "--load-seconds", "60", start_timeout=0.5)
    for server, why in ((ends, "status 2"), (slow, "not ready")):
        try:
            with pytest.raises(EngineStartError, match=why):
                await server.start()
            assert server._process is None
        finally:
            await server.stop()
