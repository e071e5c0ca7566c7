"""What a process does with its memory once it is ready."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import ctypes
import gc
from pathlib import Path

from paraserve.serving.memory import release_startup_memory

def resident():
    if not Path("/proc/self/statm").exists():
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept, freed = [], []
for _ in range(200_000):
    kept.append(bytearray(200))
    freed.append(bytearray(1000))
freed.clear()
before = resident()
release_startup_memory()
print(before - resident(), gc.get_freeze_count(), int(hasattr(ctypes.CDLL(None), "malloc_trim")), len(kept))
"""


def test_what_the_start_has_freed_goes_back_and_what_stays_is_not_collected() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    given_back, frozen, trims, _ = map(int, done.stdout.split())
    assert frozen > 0
    assert not trims or given_back > 50 << 20
