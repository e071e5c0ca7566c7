"""The fake SGLang server as a program: ``python sglang_program.py --port 30000 [--incremental] [--load-seconds 2]``.

It takes the flags of ``sglang.launch_server`` that the child process of ``paraserve`` gets, and ignores others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.sglang_fake import FakeSGLang

ARGUMENTS = argparse.ArgumentParser(description=__doc__.splitlines()[0])
ARGUMENTS.add_argument("--port", type=int, required=True)
ARGUMENTS.add_argument("--incremental-streaming-output", "--incremental", action="store_true", dest="incremental")
ARGUMENTS.add_argument("--load-seconds", type=float, default=0.0)
ARGUMENTS.add_argument("--behaviour", type=json.loads, default={}, help="fields of Behaviour, as JSON")


def main() -> None:
    options, _ = ARGUMENTS.parse_known_args()
    time.sleep(options.load_seconds)
    fake = FakeSGLang(incremental=options.incremental)
    for name, value in options.behaviour.items():
        setattr(fake.model.behaviour, name, value)
    uvicorn.run(fake, host="127.0.0.1", port=options.port, log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
