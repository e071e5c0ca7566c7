"""Memory between the start of a process and its first request.

Reading a checkpoint and trying its encoders takes tens of megabytes for a moment, in pieces between those that stay.
Never knows what was read.
"""

from __future__ import annotations

import ctypes
import gc


def release_startup_memory() -> None:
    """Call once, when everything that the process serves with is there.

    What is there stays: the garbage collector need not look through it for the garbage of requests. What the start has
    freed goes back to the system, where the C library can give it back (glibc; measured: 37 of 164 MB).
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
