"""The soak as a test: `benchmarks/soak.py` for a minute, or for as long as `PARASERVE_SOAK_SECONDS` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WARM_UP_SECONDS = 600.0
"""What the warm-up may take: two minutes on two idle cores."""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_nothing_is_left_over_after_a_minute_of_everything_at_once(workers: str) -> None:
    seconds = os.environ.get("PARASERVE_SOAK_SECONDS", "60")
    command = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--seconds", seconds, "--workers", workers]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=float(seconds) + WARM_UP_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert "nothing is left over" in ended.stdout
