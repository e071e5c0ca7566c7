"""Shell completion: each shell reads its script, and offers every flag, the choices of one, and files where they go."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from paraserve.cli import _SHELLS as SHELLS
from paraserve.cli import main
from paraserve.settings import ServerSettings
from paraserve.settings.declare import options_of

OPTIONS = options_of(ServerSettings)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} on this machine")
    return str(request.param)


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_flag_is_offered(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for option in OPTIONS:
        names = [option.key, f"no-{option.key}"] if option.kind == "switch" else [option.key]
        for name in names:
            assert (f"-l {name} " if shell == "fish" else f"--{name}") in text, name


def test_the_shell_takes_the_script(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "completion"
    path.write_text(script(shell, capsys))
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def offered(words: list[str], capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What bash completes the last word to."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_paraserve; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "-c", script("bash", capsys) + ask], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_offers_commands_flags_choices_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    assert offered(["paraserve", ""], capsys) >= {"serve", "options", "completion"}
    assert offered(["paraserve", "serve", "--ssl-"], capsys) == {"--ssl-certfile", "--ssl-keyfile"}
    assert offered(["paraserve", "serve", "--engine", ""], capsys) == {"llama.cpp", "sglang", "vllm", "scripted"}
    assert offered(["paraserve", "serve", "--model-path", f"{tmp_path}/m"], capsys) == {f"{tmp_path}/model.gguf"}
    assert offered(["paraserve", "serve", "--port", ""], capsys) == set()
    assert offered(["paraserve", "completion", "z"], capsys) == {"zsh"}


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_an_unknown_shell_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", *arguments]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
