#!/usr/bin/env bash
# Real SGLang on the CPU (docs/engines.md): the contract of the adapter and the rules of SGLang itself in five set-ups of
# a tiny model; the server's e2e suite with both kinds of stream, and SGLang killed under us, with a small real one.
# Heavy: 2 GB of packages, half an hour; not part of CI. For behaviour, not speed.
#
#   scripts/e2e-sglang.sh
#
# Makes what it needs: paraserve's own environment as ./test does, and one for SGLang. Ends with 75 where that cannot be.
# SGLANG_ENV  where SGLang's is kept (default: a temporary directory, removed at the end)
# PYTHON      interpreter to make them with, 3.11 to 3.14
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
. scripts/e2e.sh

version=0.5.23
env=${SGLANG_ENV:-$work/env}

install_sglang() {
  [[ $(uname -s) = Linux ]] || fail "SGLang is for Linux"
  say "installing SGLang $version into $env (2 GB)"
  install "$env/bin/pip" install --no-deps "sglang==$version"
  # What computes on GPUs is left out, and torch is an older one, of which there is a build without CUDA.
  "$env/bin/python" - > "$work/requirements.txt" <<'PY'
import re
from importlib.metadata import requires
GPU = (
    "torch|cuda|nvidia-(?!ml)|nvshmem|flash|humming|quack|sgl|smg|tilelang|tml|timm|deepseek|modelscope|py-spy|av=|decord"
)
for line in requires("sglang"):
    if "extra ==" not in line and not re.match(GPU, line):
        print(line)
PY
  install "$env/bin/pip" install torch==2.13.0 accelerate safetensors -r "$work/requirements.txt"
  install "$env/bin/pip" install --no-deps torchvision==0.28.0
  # paraserve starts SGLang with its own Python, which has pyzmq.
  install "$env/bin/pip" install .
  site=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  : > "$site/torchvision/_meta_registrations.py"  # of a build for CUDA: it looks for operators that are not there
  cp scripts/sgl_kernel_stub.py "$site/sgl_kernel.py"
}

installed "$version" install_sglang
export SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1
flags=(--device cpu --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph
  --disable-overlap-schedule --dtype float32 --sleep-on-idle)

# sglang NAME MODEL [FLAG…]
sglang() {
  say "SGLang $version: $1"
  free_port
  start "$1" 600 "$env/bin/python" -m sglang.launch_server "${flags[@]}" --host 127.0.0.1 --port "$port" \
    --model-path "$work/$2" "${@:3}"
}

# contract NAME MODEL CONTEXT [FLAG…]; $only is an expression for a part of it.
only=
contract() {
  sglang "$1" "$2" --context-length "$3" "${@:4}"
  PARASERVE_SGLANG_URL=$url PARASERVE_SGLANG_CONTEXT=$3 PARASERVE_GREEDY=$work/$2.json \
    tested "contract, $1" scripts/sglang_contract.py -k "$only"
}

say "a checkpoint of random weights, one of the default model, and what transformers replies with each"
checkpoint tiny tiny
checkpoint small
contract "cumulative" tiny 8192 --grammar-backend xgrammar --max-total-tokens 16384
stop "$server"
contract "incremental, llguidance, in pages" tiny 2048 --grammar-backend llguidance --incremental-streaming-output \
  --page-size 16 --max-total-tokens 1200
stop "$server"
contract "without a tokenizer" tiny 2048 --skip-tokenizer-init --max-total-tokens 4096
stop "$server"
SGLANG_RUST_SERVER=1 contract "Rust front end" tiny 2048 --grammar-backend xgrammar --max-total-tokens 4096 \
  --incremental-streaming-output
stop "$server"

say "SGLang killed under paraserve, which starts it again"
PARASERVE_SGLANG_PYTHON=$env/bin/python PARASERVE_SGLANG_MODEL=$work/tiny \
  PARASERVE_SGLANG_FLAGS="${flags[*]} --context-length 2048 --max-total-tokens 4096" \
  tested "kill and restart" scripts/sglang_restart.py

# What depends on the model. The rest was asked of the tiny one, which reads prompts of thousands of tokens at once.
only="greedy or end_token or constraint or forced or cached"
for kind in cumulative incremental; do
  stream=
  if [[ $kind = incremental ]]; then stream=--incremental-streaming-output; fi
  contract "default model, $kind" small 4096 --grammar-backend xgrammar --max-total-tokens 16384 $stream
  suite "suite, $kind" "--engine sglang --engine-url $url --model-path $work/small"
  stop "$server"
done

say "SGLang without its HTTP server"
for model in tiny small; do
  by_wire sglang env PYTHONPATH=.:scripts "$env/bin/python" scripts/sglang_wire_engine.py "$work/address.json" "$work/$model" \
    "${flags[@]}" --max-total-tokens 16384 --context-length 4096
  only=
  if [[ $model = small ]]; then only="greedy or end_token or constraint or forced or cached"; fi
  PARASERVE_WIRE_ADDRESS=$work/address.json PARASERVE_GREEDY=$work/$model.json \
    tested "contract by wire, $model" scripts/sglang_wire_contract.py -k "$only"
  stop "$server"
done
PARASERVE_WIRE_ENGINE=sglang PARASERVE_WIRE_PYTHON=$env/bin/python PARASERVE_WIRE_MODEL=$work/tiny \
  PARASERVE_WIRE_FLAGS="${flags[*]} --context-length 8192 --max-total-tokens 200000" \
  tested "kill and restart by wire" scripts/wire_restart.py
"$env/bin/pip" list 2> /dev/null | grep -E '^(sglang|torch|transformers|xgrammar|llguidance) '
conclude "SGLang $version"
