"""The server's end-to-end suite through the real sglang-router: ``python scripts/router_e2e.py [pytest argument …]``.

The workers speak SGLang's wire and have the embedded llama.cpp behind them, so that replies mean something. Runs the
suite once for each mode of the router; the exit status is 1 when one of them failed. ``scripts/e2e-router.sh`` makes
the environment (``PARASERVE_ROUTER_PYTHON``) and calls this.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import get_args

from real_router import Mode, router, started

from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions, default_model_path
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.tokenizers.gguf import gguf_tokenizer
from tests.engines.embedded import embedded
from tests.fakes.llama_model import LlamaModel
from tests.fakes.sglang_checks import Arguments
from tests.fakes.sglang_fake import FakeSGLang

NOTICED = 2.0
"""Seconds after which SGLang itself ends a sequence whose client has left."""


async def run(mode: Mode, arguments: Sequence[str]) -> int:
    path = default_model_path()
    token_bytes = gguf_tokenizer(path).token_bytes
    split = mode == "prefill-decode"
    async with AsyncExitStack() as stack:
        models = []
        for _ in range(2 if split else 1):  # two regular workers share one, whichever of them the router takes
            models.append(await stack.enter_async_context(embedded(token_bytes, EmbeddedOptions(str(path)))))
        info = models[0].info
        workers = [
            FakeSGLang(
                model=LlamaModel(engine=models[number % len(models)], vocab=info.vocab_size),
                arguments=Arguments(context_length=info.context_length),
                incremental=split,
                prefill=split and number == 0,
                notices_leaving=NOTICED,
            )
            for number in range(2)
        ]
        routed = await stack.enter_async_context(router(mode, workers))
        trial = SGLangEngine(routed.url, ModelFacts(info.vocab_size, context_length=info.context_length))
        await started(trial)
        await trial.stop()
        print(f"== the e2e suite of the server, through the router, {mode}", flush=True)
        engine = f"--engine sglang --engine-url {routed.url} --model-path {path}"
        suite = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments),
            env={**os.environ, "PARASERVE_E2E_ENGINE": engine},
        )
        return await suite.wait()


async def main() -> int:
    arguments = sys.argv[1:] or ["tests/e2e"]
    return max([await run(mode, arguments) for mode in get_args(Mode)])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
