"""The embedded engine's own process: runs llama.cpp's server until a signal ends it, at once: it holds nothing that is
worth a slow goodbye. Never knows about requests.

Run as ``python -m paraserve.engines.llama_cpp.embedded_process OPTIONS SOCKET``.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

import msgspec

from paraserve.engines.llama_cpp.embedded import DEFAULT_CONTEXT_LENGTH, EmbeddedOptions

# llama.cpp's own levels (common/log.h): errors alone, or everything.
ERRORS_ONLY, EVERYTHING = 1, 5
# Copies of idle conversations in main memory; llama.cpp's default of 8 GiB is not for a laptop.
PROMPT_CACHE_MIB = 512
# Tokens of prompts that are read between two steps of the replies that run: the longest that those wait, and that an
# abort waits, for somebody's long prompt.
PREFILL_BATCH = 64


def main() -> None:
    xllamacpp = importlib.import_module("xllamacpp")  # not at the top: the parent says better what is missing
    options = msgspec.json.decode(sys.argv[1], type=EmbeddedOptions)
    params = xllamacpp.CommonParams()
    params.model.path = options.model_path
    params.hostnames = [sys.argv[2]]
    params.n_parallel = options.slots
    params.n_ctx = (options.context_length or DEFAULT_CONTEXT_LENGTH) * options.slots
    params.n_batch = params.n_ubatch = max(PREFILL_BATCH, options.slots)
    params.kv_unified = False  # every request can use its whole context, whatever the others do
    params.ctx_shift = False  # a full context ends a reply; it does not silently drop its beginning
    params.fit_params = False
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.n_gpu_layers = options.gpu_layers
    params.verbosity = EVERYTHING if options.verbose else ERRORS_ONLY
    params.ui = False
    params.endpoint_slots = True
    # llama.cpp's threads wait for each other without sleeping: one that has to share its core holds up all of them (on
    # two busy cores, two threads made a token in 280 ms and one in 6), so one core is left to the server itself.
    params.cpuparams.n_threads = options.threads or max(1, len(os.sched_getaffinity(0)) - 1)
    try:
        _server = xllamacpp.Server(params)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever C++ made of it
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
