"""SGLang without its HTTP server, for front ends one after another: ``sglang_wire_engine.py ADDRESS MODEL FLAG…``.

Writes its address into a file when it is ready, and ends it when it is told to end. For ``scripts/e2e-sglang.sh``,
by SGLang's Python.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from vllm_wire_engine import keep

from paraserve.engines.sglang.headless import HeadlessSGLang, check_wire, schedulers_program


async def main(address: Path, model: str, flags: list[str]) -> None:
    check_wire(Path(model), flags, workers=1, any_release=False)
    await keep(HeadlessSGLang(schedulers_program(model, flags)), address)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
