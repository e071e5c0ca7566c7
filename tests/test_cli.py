"""The commands as a user runs them: help, refusals, exit codes, the generated page of options."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paraserve import __version__
from paraserve.cli import configuration_page, main
from paraserve.settings import ServerSettings
from paraserve.settings.declare import options_of

ROOT = Path(__file__).resolve().parents[1]


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "serve" in out
    assert "options" in out


def test_serve_help_shows_every_flag_under_its_group(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert main(["serve", "--port", "1", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for option in options_of(ServerSettings):
        group = lines.index(f"{option.group}:")
        assert any(line.startswith(f"  {option.flag}") for line in lines[group:]), option.flag
    described = lines[lines.index("Model:") :]
    assert all(len(line) <= 72 or line.startswith("  --") for line in described)


def test_help_answers_without_loading_the_server() -> None:
    code = (
        "import sys; from paraserve.cli import main; main(['serve', '--help']); "
        "heavy = {'starlette', 'uvicorn', 'tokenizers', 'httpx', 'jinja2', 'yaml', 'asyncio'}; "
        "sys.exit(' '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "paraserve", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"paraserve {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--prot", "1"], "paraserve serve: unknown flag --prot; did you mean --port?"),
        (["serve", "--config"], "paraserve serve: --config needs a value: --config FILE"),
        (["serve", "--config=none.yaml"], "paraserve serve: cannot read configuration file none.yaml: No such file"),
        (["sevre"], "paraserve: unknown command sevre; did you mean serve? (see paraserve --help)"),
        (["--port", "1"], "paraserve: unknown command --port; to serve with it: paraserve serve --port ..."),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_the_file_that_the_environment_names_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "paraserve.toml"
    config.write_text("prot = 1\n")
    monkeypatch.setenv("PARASERVE_CONFIG", os.fspath(config))
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == f"paraserve serve: {config}: prot: unknown key; did you mean port?\n"


def test_the_page_of_options_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == configuration_page().rstrip("\n") + "\n", "run: paraserve options > docs/configuration.md"
