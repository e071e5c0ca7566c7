"""Greedy replies of the embedded llama.cpp against those of another program with the same float32 weights.

    python scripts/llama_cpp_agreement.py COPY.gguf REPLIES.json

``COPY.gguf`` comes from ``scripts/dequantize_gguf.py``, ``REPLIES.json`` from ``scripts/greedy_reference.py``. A
difference is allowed where the two most likely tokens are closer than float32 arithmetic in another order tells
apart; the exit status is 1 for any other.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from uuid import uuid4

import kits  # noqa: F401 - those of the tests

from paraserve.engines.base import EngineRequest, Sampling
from paraserve.engines.llama_cpp.embedded import EmbeddedOptions
from paraserve.tokenizers.gguf import gguf_tokenizer
from tests.engines.contract import collect
from tests.engines.embedded import embedded

TIE = 1e-3
"""Of natural log probabilities."""


async def main(copy: str, replies: list[dict[str, list[int]]]) -> int:
    failed = 0
    options = EmbeddedOptions(copy, context_length=2048, slots=1)
    async with embedded(gguf_tokenizer(Path(copy)).token_bytes, options) as engine:
        for reply in replies:
            wanted = reply["ids"]
            request = EngineRequest(uuid4().hex, reply["prompt"], Sampling(len(wanted), temperature=0.0), logprobs=2)
            chunks = await collect(engine, request)
            got = [token for chunk in chunks for token in chunk.token_ids]
            differs = next((i for i, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]), None)
            gap = None
            if differs is not None:
                top = [entry for chunk in chunks for entry in chunk.logprobs or ()][differs].top
                gap = top[0][1] - top[1][1]
                failed += gap >= TIE
            print(f"{len(wanted)} tokens, first difference: {differs}, gap there: {gap}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text())["replies"])))
