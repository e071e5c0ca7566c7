"""vLLM without its HTTP server, for several front ends one after another: ``vllm_wire_engine.py ADDRESS MODEL FLAG…``.

Writes its address into a file when it is ready, and ends it when it is told to end. For ``scripts/e2e-wire.sh``.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from paraserve.engines.child import ChildServer
from paraserve.engines.vllm.headless import HeadlessVLLM, headless_program
from paraserve.engines.vllm.installed import wire_facts


async def keep(engine: ChildServer, address: Path) -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    try:
        ready = msgspec.json.encode(await engine.start())
        await asyncio.to_thread(address.write_bytes, ready)
        ended = asyncio.ensure_future(engine.ended())
        await asyncio.wait({ended, asyncio.ensure_future(told.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            print(f"it has ended with {ended.result()}")
    finally:
        await engine.stop()


async def main(address: Path, model: str, flags: list[str]) -> None:
    facts = wire_facts(Path(model), flags, any_release=False)
    await keep(HeadlessVLLM(headless_program(model, facts, flags), clients=2), address)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
