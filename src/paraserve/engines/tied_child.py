"""Becomes another program that is told to stop when its parent dies, however that comes about.

Run as ``python -m paraserve.engines.tied_child PARENT PROGRAM ARGUMENT …``. Linux alone has a word for it; elsewhere
the program simply runs. A program that cannot be run is exit code 127, as in a shell.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

NOT_RUN = 127
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(NOT_RUN)


if __name__ == "__main__":
    main()
