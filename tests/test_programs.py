"""The programs of `benchmarks/` and `scripts/` start as the README says: from a clone, with an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = [
    path
    for directory in ("benchmarks", "scripts")
    for path in sorted((ROOT / directory).glob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
OTHERS = {"gguf", "torch", "transformers"}
"""Packages of programs that run in the environment of an engine."""
IMPORT = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='imported')"


def test_the_programs_that_are_told_of_say_how_they_are_used() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    told = {name for page in pages for name in re.findall(r"python ((?:benchmarks|scripts)/\w+\.py)", page.read_text())}
    assert told
    for name in told:
        assert "ArgumentParser(" in (ROOT / name).read_text(), name


@pytest.mark.heavy
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_program_starts_from_anywhere(program: Path, tmp_path: Path) -> None:
    """With --help where it takes arguments by name, else as far as its imports."""
    named = "ArgumentParser(" in program.read_text()
    command = [str(program), "--help"] if named else ["-c", IMPORT, str(program.parent), str(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if any(f"No module named {name!r}" in ended.stderr for name in OTHERS):
        pytest.skip("runs in the environment of an engine")
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert not named or "usage: " in ended.stdout
